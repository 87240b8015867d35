package host

import (
	"path"
	"strings"

	"isolane.dev/isolane/cpuset"
)

// allowNodes notes the memory nodes that the cpuset in force gives to the reading process (proc_pid_status(5),
// cpuset(7)). Where nothing says so they stay nil.
func (r *reader) allowNodes(nodes []NUMANode) {
	mems := r.allowedNodes()
	if mems == nil {
		return
	}
	for i := range nodes {
		is := mems.Contains(nodes[i].ID)
		nodes[i].Allowed = &is
	}
}

func (r *reader) allowedNodes() *cpuset.Set {
	status, _ := r.read("proc/self/status")
	for line := range strings.Lines(status) {
		list, ok := strings.CutPrefix(line, "Mems_allowed_list:")
		if !ok {
			continue
		}
		set, err := cpuset.Parse(list)
		if err != nil {
			r.warn("/proc/self/status: Mems_allowed_list: %v", err)
			return nil
		}
		return &set
	}
	return r.inCpuset("mems")
}

// inCpuset is what the cgroup of the reading process allows (cpuset(7)), cpus or mems, for snapshots without
// /proc/self/status. /dev/cpuset is how it was mounted before there were cgroups.
func (r *reader) inCpuset(what string) *cpuset.Set {
	of := r.text("proc/self/cpuset")
	if of == "" {
		return nil
	}
	files := []string{"/dev/cpuset" + of + "/" + what}
	c := r.cgroup()
	if c.CpusetV1 != nil {
		files = append(files, *c.CpusetV1+of+"/cpuset.effective_"+what, *c.CpusetV1+of+"/cpuset."+what)
	}
	if c.Unified != nil {
		files = append(files, *c.Unified+of+"/cpuset."+what+".effective")
	}
	for _, file := range files {
		if set := r.list(strings.TrimPrefix(path.Clean(file), "/")); set != nil {
			return set
		}
	}
	return nil
}
