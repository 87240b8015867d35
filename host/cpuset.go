package host

import (
	"path"
	"slices"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/task"
)

// allowedCPUs returns the CPUs that the cpuset in force allows the reading process. It adds those that
// isolcpus= takes away: they are still in the cpuset of every process, so a lane may have them.
func (r *reader) allowedCPUs() *cpuset.Set {
	cpus := r.allowed("Cpus_allowed_list", "cpus")
	if isolated := orZero(r.list(cpuDir + "/isolated")); cpus != nil && !isolated.IsEmpty() {
		all := cpus.Union(isolated.Intersection(orZero(r.inCpuset("cpus"))))
		return &all
	}
	return cpus
}

// allowNodes sets in nodes which the cpuset in force allows the reading process; nil if the source does not
// say.
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
	list, ok := task.Status(text).Value(key)
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

// inCpuset returns the cpus or mems that the cgroup of the reading process allows (cpuset(7)), for snapshots
// without /proc/self/status. /dev/cpuset is where cpusets were mounted before there were cgroups.
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

// BootIsolated returns the CPUs that isolcpus= takes from the scheduler: a process runs there only if its own
// affinity says so.
func (h Host) BootIsolated() cpuset.Set {
	requested, ok := h.Kernel.Parameters().Isolcpus()
	if !ok || !requested.Has("domain") || h.Kernel.Isolated == nil {
		return cpuset.Set{}
	}
	cpus, _ := requested.CPUs(h.Possible()) // none if the list is wrong
	return cpus.Intersection(*h.Kernel.Isolated)
}

// Allowance is what may be planned of a host. What it does not name is limited to what the process may use.
type Allowance struct {
	CPUs, MemoryNodes cpuset.Set // empty: not named
	Others            cpuset.Set // CPUs of housekeeping's that no lane may have
	// Memory is the number of bytes per NUMA node, besides the hugepages in its pools.
	Memory map[int]uint64
	// Hugepages is the number of pages in the pools of each node, by page size in bytes.
	Hugepages map[int]map[uint64]uint64
}

// Allowing returns the host as if it had only what a caller allows, for callers that plan for more or less
// than their own process may use.
func (h Host) Allowing(a Allowance) Host {
	h.CPUs, h.NUMANodes = slices.Clone(h.CPUs), slices.Clone(h.NUMANodes)
	for i := range h.CPUs {
		if is := a.CPUs.Contains(h.CPUs[i].ID); !a.CPUs.IsEmpty() {
			h.CPUs[i].Allowed = &is
		}
	}
	for i := range h.NUMANodes {
		n := &h.NUMANodes[i]
		if is := a.MemoryNodes.Contains(n.ID); !a.MemoryNodes.IsEmpty() {
			n.Allowed = &is
		}
		n.allow(a)
	}
	return h
}

// allow removes from the node what is not allowed. The pages of a pool are part of the node's memory.
func (n *NUMANode) allow(a Allowance) {
	n.Hugepages = slices.Clone(n.Hugepages)
	pools := uint64(0)
	for i, p := range n.Hugepages {
		if p.Total == nil {
			continue
		}
		pages := *p.Total
		if most, ok := a.Hugepages[n.ID][p.PageBytes]; ok && most < pages {
			n.MemoryBytes -= min(n.MemoryBytes, (pages-most)*p.PageBytes)
			pages = most
			n.Hugepages[i].Total = &pages
		}
		pools += pages * p.PageBytes
	}
	if most, ok := a.Memory[n.ID]; ok {
		n.MemoryBytes = min(n.MemoryBytes, pools+most)
	}
}
