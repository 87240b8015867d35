package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"isolane.dev/isolane/audit"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/settings"
)

const (
	sysctlVM = "Documentation/admin-guide/sysctl/vm.rst"
	thpGuide = "Documentation/admin-guide/mm/transhuge.rst"
)

// memoryRules check what may stall a memory access.
func memoryRules() []rule {
	return []rule{{
		id: "numa-balancing", title: "automatic NUMA balancing is on",
		classes: severities(audit.Warn, audit.Warn, audit.None),
		impact:  "it unmaps pages to see which task faults: 1 to 10 µs a fault, and moves them",
		fix:     "echo 0 > /proc/sys/kernel/numa_balancing", boot: "numa_balancing=disable",
		source: sysctlKernel + ", numa_balancing", check: unless("/proc/sys/kernel/numa_balancing", isZero),
	}, {
		id: "thp", title: "transparent hugepages are made for all processes",
		classes: severities(audit.Warn, audit.Warn, audit.None),
		impact:  "compaction in a page fault: 100 µs to milliseconds",
		fix:     "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (or never)",
		boot:    "transparent_hugepage=madvise", source: thpGuide, check: hugepagesForAll,
	}, {
		id: "khugepaged", title: "khugepaged compacts memory in the background",
		classes: severities(audit.Info, audit.Info, audit.None),
		impact:  "the owner of a moved page faults; khugepaged runs on any CPU it may use",
		fix:     "echo 0 > /sys/kernel/mm/transparent_hugepage/khugepaged/defrag",
		source:  thpGuide, check: khugepaged,
	}, {
		id: "ksm", title: "equal pages are merged",
		impact: "a write to a merged page copies it: some µs; ksmd runs on any CPU it may use",
		fix:    "echo 2 > /sys/kernel/mm/ksm/run (stops it and unmerges the pages)",
		source: "Documentation/admin-guide/mm/ksm.rst",
		check:  unless("/sys/kernel/mm/ksm/run", func(n int64) bool { return n != 1 }),
	}, {
		id: "hugepages-node", title: "hugepages are on other nodes than the lane",
		classes: severities(audit.Warn, audit.Warn, audit.Warn), needsLanes: true,
		impact: "each access takes 1.5 to 2 times as long, or the application does not start",
		fix:    "echo N > /sys/devices/system/node/nodeM/hugepages/hugepages-2048kB/nr_hugepages, soon after boot",
		boot:   "hugepagesz=1G hugepages=M:N (node:count, since Linux 5.16)",
		source: "Documentation/admin-guide/mm/hugetlbpage.rst", check: farHugepages,
	}, {
		id: "hugepages-surplus", title: "hugepages are made on demand",
		classes: severities(audit.Info, audit.Info, audit.Info),
		impact:  "a fault on a surplus page compacts memory first, and may fail",
		fix:     "reserve as many as are in use: nr_hugepages of the node",
		source:  "Documentation/admin-guide/mm/hugetlbpage.rst", check: surplus,
	}}
}

// pageRules check which pages may be missing or far away.
func pageRules() []rule {
	return []rule{{
		id: "swap", title: "memory may be swapped out",
		impact: "a page fault that reads from disk: 100 µs to 10 ms",
		fix:    "swapoff -a; or mlockall in the lane, memory.swap.max=0 in its cgroup and vm.swappiness up to 10",
		source: sysctlVM + ", swappiness", check: swap,
	}, {
		id: "lane-memory", title: "memory of lane tasks is on another node, swapped out or not locked",
		classes: severities(audit.Warn, audit.Fault, audit.Warn), needsLanes: true,
		impact: "1.5 to 2 times the latency for a page of another node; 100 µs to 10 ms for one in swap",
		fix:    "cpuset.mems of the lane's node and mlockall(MCL_CURRENT|MCL_FUTURE); migratepages PID from to",
		source: "Documentation/admin-guide/mm/numa_memory_policy.rst; mlock(2)", check: laneMemory,
	}, {
		id: "vm-stat", title: "memory statistics are gathered every second",
		classes: severities(audit.Info, audit.Info, audit.None),
		impact: "a work item of 1 to 5 µs on each CPU with something to report (newer kernels spare " +
			"tickless CPUs)",
		fix: "echo 10 > /proc/sys/vm/stat_interval", source: perCPU + ", vmstat",
		check: unless("/proc/sys/vm/stat_interval", atLeast(10)),
	}, {
		id: "dirty", title: "much memory may be dirty before it is written back",
		classes: severities(audit.None, audit.Info, audit.None),
		impact:  "writers are throttled all at once, and the disk is busy for seconds",
		fix:     "echo 10 > /proc/sys/vm/dirty_ratio; echo 3 > /proc/sys/vm/dirty_background_ratio",
		source:  sysctlVM + ", dirty_ratio", check: dirty,
	}, {
		id: "zone-reclaim", title: "a full node reclaims before it allocates from another",
		impact: "direct reclaim in an allocation: 100 µs and more", fix: "echo 0 > /proc/sys/vm/zone_reclaim_mode",
		source: sysctlVM + ", zone_reclaim_mode", check: unless("/proc/sys/vm/zone_reclaim_mode", isZero),
	}, {
		id: "compaction", title: "memory is compacted in the background",
		classes: severities(audit.Info, audit.Info, audit.None),
		impact:  "kcompactd moves pages under running threads: a fault of some µs each",
		fix:     "echo 0 > /proc/sys/vm/compaction_proactiveness", source: sysctlVM + ", compaction_proactiveness",
		check: unless("/proc/sys/vm/compaction_proactiveness", isZero),
	}}
}

func hugepagesForAll(s *subject) []hit {
	const file = "/sys/kernel/mm/transparent_hugepage/enabled"
	if choice, ok := s.Chosen(file); ok && choice == "always" {
		return []hit{{inForce: file + " is always"}}
	}
	return nil
}

func khugepaged(s *subject) []hit {
	enabled, ok := s.Chosen("/sys/kernel/mm/transparent_hugepage/enabled")
	defrag, also := s.Number("/sys/kernel/mm/transparent_hugepage/khugepaged/defrag")
	if !ok || !also || enabled == "never" || defrag == 0 {
		return nil
	}
	return []hit{{inForce: fmt.Sprintf("enabled is %s and khugepaged/defrag is 1", enabled)}}
}

// nodes returns the NUMA nodes of CPUs.
func (s *subject) nodes(cpus cpuset.Set) cpuset.Set {
	var nodes []int
	for id := range cpus.All() {
		if c, _ := s.CPU(id); c.NUMANode != nil {
			nodes = append(nodes, *c.NUMANode)
		}
	}
	return cpuset.Of(nodes...)
}

// farHugepages finds the page sizes of which all pages are on other nodes.
func farHugepages(s *subject) []hit {
	local := s.nodes(s.lane)
	s.lacksPools()
	far, near := map[uint64]uint64{}, map[uint64]bool{}
	for _, n := range s.NUMANodes {
		for _, pages := range n.Hugepages {
			switch {
			case pages.Total == nil || *pages.Total == 0:
			case local.Contains(n.ID):
				near[pages.PageBytes] = true
			default:
				far[pages.PageBytes] += *pages.Total
			}
		}
	}
	var hits []hit
	for _, size := range slices.Sorted(maps.Keys(far)) {
		if !near[size] {
			text := fmt.Sprintf("%d pages of %d KiB, none on node %s", far[size], size>>10, local)
			hits = append(hits, hit{cpus: s.lane, inForce: text})
		}
	}
	return hits
}

// lacksPools records that nothing is known about hugepages, if no node has any: neither has one in a kernel
// without hugepages.
func (s *subject) lacksPools() {
	if !slices.ContainsFunc(s.NUMANodes, func(n host.NUMANode) bool { return len(n.Hugepages) > 0 }) {
		s.lacksAll("/sys/kernel/mm/")
	}
}

func surplus(s *subject) []hit {
	var h hit
	s.lacksPools()
	for _, p := range s.Optional("/sys/devices/system/node/node*/hugepages/hugepages-*/surplus_hugepages") {
		if s.Files[p] != "0" {
			h.add(cpuset.Set{}, "%s: %s", p, s.Files[p])
		}
	}
	return h.counted("surplus pages in %d pools")
}

// swap: /proc/swaps has a header line and a line for each device.
func swap(s *subject) []hit {
	swaps, ok := s.Files["/proc/swaps"]
	if !ok {
		return s.noHit(false, "/proc/swaps")
	}
	swappiness, ok := s.Number("/proc/sys/vm/swappiness")
	if !ok || strings.Count(swaps, "\n") == 0 || swappiness <= 10 {
		return nil
	}
	return []hit{{inForce: fmt.Sprintf("there is swap, and /proc/sys/vm/swappiness is %d", swappiness)}}
}

// laneMemory checks the tasks that are taken for the lane's own.
func laneMemory(s *subject) []hit {
	var h hit
	for _, t := range s.AllTasks() {
		if !s.isOwn(t) {
			continue
		}
		if wrong := s.wrongMemory(t); len(wrong) > 0 {
			h.add(t.Allowed, "%d %s: %s", t.ID, t.Name, strings.Join(wrong, ", "))
		}
	}
	return h.counted("%d threads")
}

func (s *subject) wrongMemory(t settings.Task) []string {
	var wrong []string
	local := s.nodes(t.Allowed)
	if t.Swapped > 0 {
		wrong = append(wrong, fmt.Sprintf("%d KiB swapped out", t.Swapped>>10))
	}
	if t.Locked == 0 && t.Priority > 0 {
		wrong = append(wrong, "real-time, and no memory locked")
	}
	if far := t.Nodes.Difference(local); !local.IsEmpty() && !far.IsEmpty() {
		wrong = append(wrong, fmt.Sprintf("may take memory of nodes %s, its CPUs are on node %s", t.Nodes, local))
	}
	for _, n := range s.NUMANodes {
		if bytes := t.Pages[n.ID]; bytes > 0 && !local.IsEmpty() && !local.Contains(n.ID) {
			wrong = append(wrong, fmt.Sprintf("%d KiB on node %d", bytes>>10, n.ID))
		}
	}
	return wrong
}

// dirty: limits in bytes, if set, replace those in percent, which then read 0.
func dirty(s *subject) []hit {
	ratio, ok := s.Number("/proc/sys/vm/dirty_ratio")
	background, also := s.Number("/proc/sys/vm/dirty_background_ratio")
	if !ok || !also || ratio <= 10 && background <= 3 {
		return nil
	}
	return []hit{{inForce: fmt.Sprintf("dirty_ratio is %d %%, dirty_background_ratio %d %%", ratio, background)}}
}
