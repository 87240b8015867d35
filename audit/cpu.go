package audit

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
)

const (
	isolationGuide = "Documentation/admin-guide/cpu-isolation.rst"
	cgroupGuide    = "Documentation/admin-guide/cgroup-v2.rst, cpuset.cpus.partition"
)

// cpuRules ask which CPUs the lanes have, and whether the scheduler leaves them alone.
func cpuRules() []rule {
	return []rule{
		{
			id: "lane-online", title: "lane CPUs do not run",
			classes: Severities{Fault, Fault, Fault}, needsLanes: true,
			cost:    "threads pinned there run somewhere else, or not at all",
			runTime: "echo 1 > /sys/devices/system/cpu/cpuN/online, or plan the lane on CPUs that are there",
			source:  "Documentation/core-api/cpu_hotplug.rst", check: offlineLane,
		},
		{
			id: "boot-cpu", title: "the boot CPU is a lane's",
			classes: Severities{Fault, Fault, Warn}, needsLanes: true,
			cost:    "timekeeping, the first interrupts and unbound work stay there: tens of µs, every tick",
			runTime: "give the lane other CPUs",
			source:  "Documentation/timers/no_hz.rst", check: bootCPU,
		},
		{
			id: "whole-cores", title: "a core is split between a lane and housekeeping",
			classes: Severities{Fault, Fault, Warn}, needsLanes: true,
			cost:    "the other thread takes up to half of the core's throughput, whenever it runs",
			runTime: "give the lane all threads of its cores, or take the siblings offline: echo 0 > /sys/devices/system/cpu/cpuN/online",
			boot:    "name whole cores in isolcpus=, nohz_full= and the cpusets, or nosmt",
			source:  isolationGuide, check: splitCores,
		},
		{
			id: "smt", title: "both threads of a core are lane CPUs",
			classes: Severities{Info, Info, None}, needsLanes: true,
			cost:    "two lane threads that run at once share the core's units and L1 and L2 cache",
			runTime: "use one thread of each core and leave the other idle (smt: isolate)",
			source:  isolationGuide, check: bothThreads,
		},
		{
			id: "core-kinds", title: "lane CPUs are of different kinds",
			classes: Severities{Warn, Warn, Info}, needsLanes: true,
			cost:    "the same thread takes up to twice as long on an efficiency core",
			runTime: "give each lane CPUs of one kind",
			source:  "Documentation/scheduler/sched-capacity.rst", check: mixedKinds,
		},
		{
			id: "load-balancing", title: "the scheduler balances other tasks onto lane CPUs",
			classes: Severities{Fault, Fault, Warn}, needsLanes: true,
			cost: "any task that is not pinned elsewhere may run there for milliseconds",
			runTime: "cgroup v2: a cpuset with cpuset.cpus={lane} and cpuset.cpus.partition=isolated; v1: cpuset.sched_load_balance=0. " +
				"Where CRI-O does it per pod (annotation cpu-load-balancing.crio.io: disable, OpenShift), this is right until such a pod runs",
			boot:   "isolcpus=domain,managed_irq,{lane} where a partition cannot be used",
			source: isolationGuide, check: balanced,
		},
		{
			id: "partition", title: "a cpuset partition is not valid",
			classes: Severities{Fault, Fault, Warn},
			cost:    "its CPUs are balanced like all others, although somebody asked for a partition",
			runTime: "mend what the kernel names in brackets, and write the partition type again",
			source:  cgroupGuide, check: invalidPartitions,
		},
		{
			id: "resctrl", title: "lane CPUs share all of their L3 with CPUs of no lane",
			classes: Severities{Warn, Warn, Info}, needsLanes: true,
			cost:    "a neighbour that streams memory evicts the lane's lines: a few to tens of percent, and worst cases of some µs; no other knob keeps it off",
			runTime: "a group under /sys/fs/resctrl with cache ways of its own and cpus_list {lane}",
			source:  "Documentation/filesystems/resctrl.rst", check: sharedCacheWays,
		},
	}
}

func offlineLane(s *subject) []hit {
	gone := s.asked.Difference(s.lane)
	if gone.IsEmpty() {
		return nil
	}
	return []hit{{cpus: gone, asked: "lane CPUs " + s.asked.String(), inForce: "online are " + s.Online().String()}}
}

func bootCPU(s *subject) []hit {
	if !s.lane.Contains(s.bootCPU()) {
		return nil
	}
	h := hit{cpus: cpuset.Of(s.bootCPU()), inForce: fmt.Sprintf("CPU %d is in %s", s.bootCPU(), s.lane)}
	if guest := s.Kernel.Hypervisor; guest != nil && *guest {
		h.runTime = "give the lane other CPUs, in a guest too: isolate a virtual CPU other than 0"
	}
	return []hit{h}
}

func splitCores(s *subject) []hit {
	var h hit
	var others cpuset.Set
	for id := range s.lane.All() {
		siblings := s.Siblings(id)
		if c, _ := s.CPU(id); c.Core == nil {
			s.lacks(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", id))
		}
		outside := siblings.Difference(s.lane)
		if outside.IsEmpty() || others.Intersects(outside) {
			continue
		}
		others = others.Union(outside)
		h.cpus = h.cpus.Union(siblings.Intersection(s.lane))
		h.evidence = append(h.evidence, fmt.Sprintf("core of CPUs %s: %s lane, %s housekeeping", siblings,
			siblings.Intersection(s.lane), outside))
	}
	if others.IsEmpty() {
		return nil
	}
	h.inForce = fmt.Sprintf("%d cores: housekeeping has CPUs %s beside lane CPUs %s", len(h.evidence), others, h.cpus)
	return []hit{h}
}

func bothThreads(s *subject) []hit {
	var shared cpuset.Set
	for id := range s.lane.All() {
		if both := s.Siblings(id).Intersection(s.lane); both.Len() > 1 {
			shared = shared.Union(both)
		}
	}
	if shared.IsEmpty() {
		return nil
	}
	return []hit{{cpus: shared, inForce: fmt.Sprintf("CPUs %s are siblings of each other", shared)}}
}

func mixedKinds(s *subject) []hit {
	kinds := map[host.CPUKind]cpuset.Set{}
	for id := range s.lane.All() {
		c, _ := s.CPU(id)
		kinds[c.Kind] = kinds[c.Kind].Union(cpuset.Of(id))
	}
	p, e := kinds[host.Performance], kinds[host.Efficiency]
	if p.IsEmpty() || e.IsEmpty() {
		return nil
	}
	return []hit{{cpus: s.lane, inForce: fmt.Sprintf("performance cores: CPUs %s; efficiency cores: CPUs %s", p, e)}}
}

// balanced finds the lane CPUs that are in a scheduler domain with others. The kernel takes a CPU out
// of them by isolcpus=domain, by a valid partition of lane CPUs alone, which may balance over these, or (v1)
// when no cpuset that balances has it together with others.
func balanced(s *subject) []hit {
	partitions, hasPartitions := cpuset.Parse(s.files["/sys/fs/cgroup/cpuset.cpus.isolated"])
	if s.Kernel.Isolated == nil && hasPartitions != nil {
		s.lacks("/sys/devices/system/cpu/isolated")
		return nil
	}
	left := s.lane.Difference(orEmpty(s.Kernel.Isolated)).Difference(partitions).Difference(s.ownDomains())
	if group, known := s.balancedV1(); known {
		left = left.Intersection(group)
	}
	if left.IsEmpty() {
		return nil
	}
	h := hit{cpus: left, inForce: fmt.Sprintf("CPUs %s are in scheduler domains with others", left)}
	if asked, ok := s.boot.Isolcpus(); ok {
		h.asked = s.boot.asked("isolcpus")
		if !asked.Has("domain") {
			h.inForce += "; without the flag domain, isolcpus= leaves its CPUs to the load balancer"
		}
	}
	return []hit{h}
}

// ownDomains are the CPUs of valid partitions that have lane CPUs and no others.
func (s *subject) ownDomains() cpuset.Set {
	var own cpuset.Set
	for depth := range 4 {
		for _, p := range s.optional("/sys/fs/cgroup" + strings.Repeat("/*", depth+1) + "/cpuset.cpus.partition") {
			cpus, err := cpuset.Parse(s.files[path.Dir(p)+"/cpuset.cpus.effective"])
			if (s.files[p] == "root" || s.files[p] == "isolated") && err == nil && cpus.IsSubsetOf(s.lane) {
				own = own.Union(cpus)
			}
		}
	}
	return own
}

// balancedV1 returns the CPUs that a v1 cpuset balances over that has more than lane CPUs; false without the hierarchy.
func (s *subject) balancedV1() (cpus cpuset.Set, known bool) {
	const root = "/sys/fs/cgroup/cpuset"
	switch s.files[root+"/cpuset.sched_load_balance"] {
	case "":
		return cpuset.Set{}, false
	case "1":
		return s.Online(), true // whatever the groups below it say
	}
	for depth := range 4 {
		for _, p := range s.optional(root + strings.Repeat("/*", depth+1) + "/cpuset.sched_load_balance") {
			group, err := cpuset.Parse(s.files[path.Dir(p)+"/cpuset.effective_cpus"])
			if s.files[p] == "1" && err == nil && group.Len() > 1 && !group.IsSubsetOf(s.lane) {
				cpus = cpus.Union(group)
			}
		}
	}
	return cpus, true
}

func invalidPartitions(s *subject) []hit {
	var h hit
	for depth := range 4 {
		for _, p := range s.optional("/sys/fs/cgroup" + strings.Repeat("/*", depth+1) + "/cpuset.cpus.partition") {
			if !strings.Contains(s.files[p], "invalid") {
				continue
			}
			effective, _ := cpuset.Parse(s.files[path.Dir(p)+"/cpuset.cpus.effective"])
			h.cpus = h.cpus.Union(effective)
			h.evidence = append(h.evidence, fmt.Sprintf("%s: %s", p, s.files[p]))
		}
	}
	if len(h.evidence) == 0 {
		return nil
	}
	h.inForce = fmt.Sprintf("%d partitions are invalid", len(h.evidence))
	return []hit{h}
}

// sharedCacheWays is of no concern to a lane that has an L3 to itself.
func sharedCacheWays(s *subject) []hit {
	const file = "/sys/fs/resctrl/cpus_list" // of the group that everybody is in
	shared := s.sharedL3()
	if shared.IsEmpty() {
		return nil
	}
	if _, mounted := s.files[file]; !mounted && slices.Contains(s.Kernel.Flags, "cat_l3") {
		return []hit{{cpus: shared, inForce: "the CPU can divide its L3 (cat_l3), and /sys/fs/resctrl is not mounted",
			runTime: "mount -t resctrl resctrl /sys/fs/resctrl, then a group with cpus_list {lane}"}}
	}
	return s.overlaps(s.optional(file), func(file string) (cpuset.Set, bool) {
		cpus, ok := s.list(file)
		return cpus.Intersection(shared), ok
	})
}

// sharedL3 are the lane CPUs whose L3 others have too, as far as is known.
func (s *subject) sharedL3() cpuset.Set {
	others := map[int]bool{}
	for id := range s.housekeeping().All() {
		if c, _ := s.CPU(id); c.L3 != nil {
			others[*c.L3] = true
		}
	}
	var shared []int
	for id := range s.lane.All() {
		if c, _ := s.CPU(id); c.L3 == nil || others[*c.L3] {
			shared = append(shared, id)
		}
	}
	return cpuset.Of(shared...)
}
