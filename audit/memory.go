package audit

import (
	"fmt"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
)

const (
	sysctlVM = "Documentation/admin-guide/sysctl/vm.rst"
	thpGuide = "Documentation/admin-guide/mm/transhuge.rst"
)

// memoryRules ask what may stall an access to memory.
func memoryRules() []rule {
	return []rule{
		{
			id: "numa-balancing", title: "automatic NUMA balancing is on",
			classes: Severities{Warn, Warn, None},
			cost:    "it takes pages away to see who faults: 1 to 10 µs a fault, and moves them",
			runTime: "echo 0 > /proc/sys/kernel/numa_balancing", boot: "numa_balancing=disable",
			source: sysctlKernel + ", numa_balancing", check: unless("/proc/sys/kernel/numa_balancing", is(0)),
		},
		{
			id: "thp", title: "transparent hugepages are made for everyone",
			classes: Severities{Warn, Warn, None},
			cost:    "compaction in a page fault: 100 µs to milliseconds",
			runTime: "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (or never)",
			boot:    "transparent_hugepage=madvise", source: thpGuide, check: hugepagesForAll,
		},
		{
			id: "khugepaged", title: "khugepaged compacts memory in the background",
			classes: Severities{Info, Info, None},
			cost:    "a moved page faults in its owner; khugepaged runs on any CPU it may use",
			runTime: "echo 0 > /sys/kernel/mm/transparent_hugepage/khugepaged/defrag",
			source:  thpGuide, check: khugepaged,
		},
		{
			id: "ksm", title: "equal pages are merged",
			classes: Severities{Warn, Warn, Info},
			cost:    "a write to a merged page copies it: some µs; ksmd runs on any CPU it may use",
			runTime: "echo 2 > /sys/kernel/mm/ksm/run (stops it and takes the pages apart)",
			source:  "Documentation/admin-guide/mm/ksm.rst", check: unless("/sys/kernel/mm/ksm/run", func(n int64) bool { return n != 1 }),
		},
		{
			id: "hugepages-node", title: "hugepages lie on other nodes than the lane",
			classes: Severities{Warn, Warn, Warn}, needsLanes: true,
			cost:    "each access crosses the interconnect: 1.5 to 2 times the latency; or the application does not start",
			runTime: "echo N > /sys/devices/system/node/nodeM/hugepages/hugepages-2048kB/nr_hugepages, early, before memory is in pieces",
			boot:    "hugepagesz=1G hugepages=M:N (node:count, since Linux 5.17)",
			source:  "Documentation/admin-guide/mm/hugetlbpage.rst", check: hugepagesElsewhere,
		},
		{
			id: "hugepages-surplus", title: "hugepages are made on demand",
			classes: Severities{Info, Info, Info},
			cost:    "a fault on a surplus page compacts memory first, and may fail",
			runTime: "reserve as many as are used: nr_hugepages of the node",
			source:  "Documentation/admin-guide/mm/hugetlbpage.rst", check: surplus,
		},
		{
			id: "swap", title: "memory may be swapped out",
			classes: Severities{Warn, Warn, Info},
			cost:    "a page fault that reads from disk: 100 µs to 10 ms",
			runTime: "swapoff -a, or mlockall in the lane, memory.swap.max=0 in its cgroup, and vm.swappiness at most 10",
			source:  sysctlVM + ", swappiness", check: swap,
		},
		{
			id: "lane-memory", title: "memory of lane tasks is not where or what it should be",
			classes: Severities{Warn, Fault, Warn}, needsLanes: true,
			cost:    "1.5 to 2 times the latency for a page of another node; 100 µs to 10 ms for one that was swapped out",
			runTime: "cpuset.mems of the lane's node and mlockall(MCL_CURRENT|MCL_FUTURE); migratepages PID from to",
			source:  "Documentation/admin-guide/mm/numa_memory_policy.rst; mlock(2)", check: laneMemory,
		},
		{
			id: "vm-stat", title: "memory statistics are gathered every second",
			classes: Severities{Info, Info, None},
			cost:    "a work item of 1 to 5 µs on each CPU that has something to report (tickless CPUs are spared by newer kernels)",
			runTime: "echo 10 > /proc/sys/vm/stat_interval",
			source:  perCPU + ", vmstat", check: unless("/proc/sys/vm/stat_interval", atLeast(10)),
		},
		{
			id: "dirty", title: "much memory may be dirty before it is written back",
			classes: Severities{None, Info, None},
			cost:    "writers are throttled all at once, and the disk is busy for seconds",
			runTime: "echo 10 > /proc/sys/vm/dirty_ratio; echo 3 > /proc/sys/vm/dirty_background_ratio (or the limits in bytes)",
			source:  sysctlVM + ", dirty_ratio", check: dirty,
		},
		{
			id: "zone-reclaim", title: "a full node reclaims before it takes memory of another",
			classes: Severities{Warn, Warn, Info},
			cost:    "direct reclaim in an allocation: 100 µs and more",
			runTime: "echo 0 > /proc/sys/vm/zone_reclaim_mode",
			source:  sysctlVM + ", zone_reclaim_mode", check: unless("/proc/sys/vm/zone_reclaim_mode", is(0)),
		},
		{
			id: "compaction", title: "memory is compacted in the background",
			classes: Severities{Info, Info, None},
			cost:    "kcompactd moves pages under running threads: a fault of some µs each",
			runTime: "echo 0 > /proc/sys/vm/compaction_proactiveness",
			source:  sysctlVM + ", compaction_proactiveness", check: unless("/proc/sys/vm/compaction_proactiveness", is(0)),
		},
	}
}

func hugepagesForAll(s *subject) []hit {
	const file = "/sys/kernel/mm/transparent_hugepage/enabled"
	if choice, ok := s.chosen(file); ok && choice == "always" {
		return []hit{{inForce: file + " is always"}}
	}
	return nil
}

func khugepaged(s *subject) []hit {
	enabled, ok := s.chosen("/sys/kernel/mm/transparent_hugepage/enabled")
	defrag, also := s.number("/sys/kernel/mm/transparent_hugepage/khugepaged/defrag")
	if !ok || !also || enabled == "never" || defrag == 0 {
		return nil
	}
	return []hit{{inForce: fmt.Sprintf("enabled is %s and khugepaged/defrag is 1", enabled)}}
}

// nodes are the NUMA nodes of CPUs.
func (s *subject) nodes(cpus cpuset.Set) cpuset.Set {
	var nodes []int
	for id := range cpus.All() {
		if c, _ := s.CPU(id); c.NUMANode != nil {
			nodes = append(nodes, *c.NUMANode)
		}
	}
	return cpuset.Of(nodes...)
}

func hugepagesElsewhere(s *subject) []hit {
	near := s.nodes(s.lane)
	elsewhere := map[uint64]uint64{}
	here := map[uint64]bool{}
	for _, n := range s.NUMANodes {
		for _, pages := range n.Hugepages {
			if pages.Total == nil || *pages.Total == 0 {
				continue
			}
			if near.Contains(n.ID) {
				here[pages.PageBytes] = true
			} else {
				elsewhere[pages.PageBytes] += *pages.Total
			}
		}
	}
	var hits []hit
	for _, size := range []uint64{64 << 10, 2 << 20, 32 << 20, 512 << 20, 1 << 30} {
		if elsewhere[size] > 0 && !here[size] {
			hits = append(hits, hit{cpus: s.lane, inForce: fmt.Sprintf("%d pages of %d KiB, none on node %s", elsewhere[size], size>>10, near)})
		}
	}
	return hits
}

func surplus(s *subject) []hit {
	var h hit
	for _, p := range s.optional("/sys/devices/system/node/node*/hugepages/hugepages-*/surplus_hugepages") {
		if s.files[p] != "0" {
			h.evidence = append(h.evidence, p+": "+s.files[p])
		}
	}
	if len(h.evidence) == 0 {
		return nil
	}
	h.inForce = fmt.Sprintf("surplus pages in %d pools", len(h.evidence))
	return []hit{h}
}

// swap: /proc/swaps has a line for the header and one for each device.
func swap(s *subject) []hit {
	text, ok := s.text("/proc/swaps")
	swappiness, also := s.number("/proc/sys/vm/swappiness")
	if !ok || !also || strings.Count(text, "\n") == 0 || swappiness <= 10 {
		return nil
	}
	return []hit{{inForce: fmt.Sprintf("there is swap, and /proc/sys/vm/swappiness is %d", swappiness)}}
}

// laneMemory looks at the tasks that are taken for the lane's.
func laneMemory(s *subject) []hit {
	if s.tasks == nil {
		s.lacks("/proc/*/task/*/status")
	}
	var h hit
	for _, t := range s.tasks {
		if !s.isOwn(t) {
			continue
		}
		if wrong := s.wrongMemory(t); len(wrong) > 0 {
			h.cpus = h.cpus.Union(t.Allowed)
			h.evidence = append(h.evidence, fmt.Sprintf("%d %s: %s", t.ID, t.Name, strings.Join(wrong, ", ")))
		}
	}
	if len(h.evidence) == 0 {
		return nil
	}
	h.inForce = fmt.Sprintf("%d threads", len(h.evidence))
	return []hit{h}
}

func (s *subject) wrongMemory(t host.Task) []string {
	var wrong []string
	near := s.nodes(t.Allowed)
	if t.Swapped > 0 {
		wrong = append(wrong, fmt.Sprintf("%d KiB swapped out", t.Swapped>>10))
	}
	if t.Locked == 0 && t.Priority > 0 {
		wrong = append(wrong, "real-time, and no memory locked")
	}
	if far := t.Nodes.Difference(near); !near.IsEmpty() && !far.IsEmpty() {
		wrong = append(wrong, fmt.Sprintf("may take memory of nodes %s, its CPUs are on node %s", t.Nodes, near))
	}
	for _, n := range s.NUMANodes {
		if bytes := t.Pages[n.ID]; bytes > 0 && !near.IsEmpty() && !near.Contains(n.ID) {
			wrong = append(wrong, fmt.Sprintf("%d KiB on node %d", bytes>>10, n.ID))
		}
	}
	return wrong
}

// dirty: the limits in bytes, where they are set, replace those in percent, which then read 0.
func dirty(s *subject) []hit {
	ratio, ok := s.number("/proc/sys/vm/dirty_ratio")
	background, also := s.number("/proc/sys/vm/dirty_background_ratio")
	if !ok || !also || ratio <= 10 && background <= 3 {
		return nil
	}
	return []hit{{inForce: fmt.Sprintf("dirty_ratio is %d %%, dirty_background_ratio %d %%", ratio, background)}}
}
