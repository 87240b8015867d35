package host

import (
	"path"
	"slices"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/task"
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

// BootIsolated are the CPUs that isolcpus= takes from the scheduler: a process runs there only by its own
// affinity.
func (h Host) BootIsolated() cpuset.Set {
	requested, ok := h.Kernel.Parameters().Isolcpus()
	if !ok || !requested.Has("domain") || h.Kernel.Isolated == nil {
		return cpuset.Set{}
	}
	cpus, _ := requested.CPUs(h.Possible()) // none where the list is wrong
	return cpus.Intersection(*h.Kernel.Isolated)
}

// Allowance is what may be planned of a host. What it does not name is what the reading process may use.
type Allowance struct {
	CPUs, MemoryNodes cpuset.Set // empty: not named
	// Memory is how many bytes of each NUMA node, beside the huge pages that it has in pools.
	Memory map[int]uint64
	// Hugepages is how many pages of each node's pools, by their size in bytes.
	Hugepages map[int]map[uint64]uint64
}

// Allowing returns the host with what a caller allows, as if it had no more: for those that plan for more or
// for less than their own process.
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

// allow takes from the node what is not allowed. Pages of a pool are memory of the node too.
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
