package change

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"isolane.dev/isolane/cpuset"
)

// Hierarchy is a mounted tree of cgroups (cgroups(7)).
type Hierarchy struct {
	Mount string // the directory where it is mounted
	V2    bool

	root        string   // the cgroup that is mounted there, "/" but in a container
	controllers []string // of cgroup v1, or the name: "name=systemd"
}

// HierarchyOf returns the hierarchy that a directory belongs to, from /proc/self/mountinfo
// (proc_pid_mountinfo(5)).
func HierarchyOf(root fs.FS, dir string) (Hierarchy, error) {
	const file = "proc/self/mountinfo"
	data, err := fs.ReadFile(root, file)
	if err != nil {
		return Hierarchy{}, err
	}
	var found Hierarchy
	kind := ""
	for line := range strings.Lines(string(data)) {
		head, tail, _ := strings.Cut(line, " - ")
		h, t := strings.Fields(head), strings.Fields(tail)
		if len(h) < 5 || len(t) < 3 {
			continue
		}
		at := unescape(h[4])
		// The last of those mounted at the same place hides the others.
		if below(dir, at) && len(at) >= len(found.Mount) {
			kind = t[0]
			found = Hierarchy{Mount: at, V2: kind == "cgroup2", root: unescape(h[3]),
				controllers: strings.Split(t[2], ",")}
		}
	}
	if kind != "cgroup" && kind != "cgroup2" {
		return Hierarchy{}, fmt.Errorf("/%s: %s is in no cgroup hierarchy: "+
			"expected a directory such as /sys/fs/cgroup/NAME", file, dir)
	}
	return found, nil
}

// unescape undoes what the kernel does to white space in a path.
func unescape(name string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(name)
}

// below says whether dir is top or in it.
func below(dir, top string) bool {
	return dir == top || strings.HasPrefix(dir, strings.TrimSuffix(top, "/")+"/")
}

// Of returns the directory of the cgroup that a task is in; proc is "proc/PID" or "proc/PID/task/TID".
func (h Hierarchy) Of(root fs.FS, proc string) (string, error) {
	data, err := fs.ReadFile(root, proc+"/cgroup")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(data)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 || !h.listed(f[0], f[1]) {
			continue
		}
		if !below(f[2], h.root) || path.Clean(f[2]) != f[2] {
			return "", fmt.Errorf("/%s/cgroup: %s is not below %s, which is mounted at %s: "+
				"run Isolane in the host's namespaces", proc, f[2], h.root, h.Mount)
		}
		return path.Join(h.Mount, strings.TrimPrefix(f[2], h.root)), nil
	}
	return "", fmt.Errorf("/%s/cgroup: expected a line of the hierarchy at %s", proc, h.Mount)
}

// listed says whether a line of /proc/PID/cgroup is of this hierarchy: "0::" of v2, else the
// controllers as it was mounted with.
func (h Hierarchy) listed(id, controllers string) bool {
	if h.V2 || controllers == "" {
		return h.V2 && id == "0" && controllers == ""
	}
	for name := range strings.SplitSeq(controllers, ",") {
		if !slices.Contains(h.controllers, name) {
			return false
		}
	}
	return true
}

// CPUs are those that a cgroup gives its tasks: in force, from the nearest cgroup above where it has
// none of its own.
func (h Hierarchy) CPUs(root fs.FS, dir string) (cpuset.Set, error) {
	file := "cpuset.effective_cpus"
	if h.V2 {
		file = "cpuset.cpus.effective"
	}
	var err error
	for ; below(dir, h.Mount); dir = path.Dir(dir) {
		name := path.Join(dir, file)
		var data []byte
		if data, err = fs.ReadFile(root, name[1:]); err == nil {
			set, perr := cpuset.Parse(string(data))
			if perr != nil {
				return set, fmt.Errorf("%s: %w", name, perr)
			}
			return set, nil
		}
	}
	return cpuset.Set{}, err
}
