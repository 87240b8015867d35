package host

import (
	"path"
	"slices"
	"strings"

	"isolane.dev/isolane/cpuset"
)

// allowedCPUs are those that the cpuset in force gives to the reading process. CPUs that isolcpus= closes to
// every process are in its cpuset all the same, so a lane may have them.
func (r *reader) allowedCPUs() *cpuset.Set {
	cpus := r.allowed("Cpus_allowed_list", "cpus")
	if isolated := orZero(r.list(cpuDir + "/isolated")); cpus != nil && !isolated.IsEmpty() {
		all := cpus.Union(isolated.Intersection(orZero(r.inCpuset("cpus"))))
		return &all
	}
	return cpus
}

// allowNodes sets which memory nodes the cpuset in force gives to the reading process; nil where the source
// does not say.
func (r *reader) allowNodes(nodes []NUMANode) {
	allowed := r.allowed("Mems_allowed_list", "mems")
	for i := range nodes {
		if allowed != nil {
			is := allowed.Contains(nodes[i].ID)
			nodes[i].Allowed = &is
		}
	}
}

func (r *reader) allowed(key, file string) *cpuset.Set {
	text, _ := r.read("proc/self/status")
	list, ok := parseStatus(text)[key]
	if !ok {
		return r.inCpuset(file)
	}
	set, err := cpuset.Parse(list)
	if err != nil {
		r.warn("/proc/self/status: %s: %v", key, err)
		return nil
	}
	return &set
}

// parseStatus returns the lines of /proc/PID/status (proc_pid_status(5)) that this package uses, by key.
func parseStatus(text string) map[string]string {
	lines := map[string]string{}
	for line := range strings.Lines(text) {
		switch key, value, _ := strings.Cut(line, ":"); key {
		case "Name", "Cpus_allowed_list", "Mems_allowed_list", "VmLck", "VmSwap":
			lines[key] = strings.TrimSpace(value)
		}
	}
	return lines
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

// Allowing returns the host with other CPUs and memory nodes that may be used: for who plans for more than
// its own process. An empty set leaves those that the reading process may use.
func (h Host) Allowing(cpus, nodes cpuset.Set) Host {
	h.CPUs, h.NUMANodes = slices.Clone(h.CPUs), slices.Clone(h.NUMANodes)
	for i := range h.CPUs {
		if is := cpus.Contains(h.CPUs[i].ID); !cpus.IsEmpty() {
			h.CPUs[i].Allowed = &is
		}
	}
	for i := range h.NUMANodes {
		if is := nodes.Contains(h.NUMANodes[i].ID); !nodes.IsEmpty() {
			h.NUMANodes[i].Allowed = &is
		}
	}
	return h
}
