package rules

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"isolane.dev/isolane/audit"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
)

const (
	isolationGuide = "Documentation/admin-guide/cpu-isolation.rst"
	cgroupGuide    = "Documentation/admin-guide/cgroup-v2.rst, cpuset.cpus.partition"
)

// cpuRules check which CPUs the lanes have, and whether the scheduler leaves them alone.
func cpuRules() []rule {
	return []rule{{
		id: "lane-online", title: "lane CPUs are offline",
		classes:    severities(audit.Fault, audit.Fault, audit.Fault),
		needsLanes: true,
		impact:     "threads pinned there run elsewhere, or not at all",
		fix:        "echo 1 > /sys/devices/system/cpu/cpuN/online, or plan the lane on CPUs that are there",
		source:     "Documentation/core-api/cpu_hotplug.rst", check: offlineLane,
	}, {
		id: "boot-cpu", title: "the boot CPU belongs to a lane",
		classes:    severities(audit.Fault, audit.Fault, audit.Warn),
		needsLanes: true,
		impact:     "timekeeping, the first interrupts and unbound work stay there: tens of µs, every tick",
		fix:        "give the lane other CPUs", source: "Documentation/timers/no_hz.rst", check: bootCPU,
	}, {
		id: "whole-cores", title: "a core is split between a lane and housekeeping",
		classes: severities(audit.Fault, audit.Fault, audit.Warn), needsLanes: true,
		impact: "the other thread takes up to half of the core's throughput, whenever it runs",
		fix:    "give the lane whole cores, or take siblings offline: echo 0 > /sys/devices/system/cpu/cpuN/online",
		boot:   "name whole cores in isolcpus=, nohz_full= and the cpusets, or nosmt", source: isolationGuide,
		check: splitCores,
	}, {
		id: "smt", title: "both threads of a core are lane CPUs",
		classes:    severities(audit.Info, audit.Info, audit.None),
		needsLanes: true,
		impact:     "two lane threads that run at once share the core's units and L1 and L2 cache",
		fix:        "use one thread of each core and leave the other idle (smt: isolate)", source: isolationGuide,
		check: bothThreads,
	}, {
		id: "core-kinds", title: "lane CPUs are of different kinds", needsLanes: true,
		impact: "the same thread takes up to twice as long on an efficiency core",
		fix:    "give each lane CPUs of one kind", source: "Documentation/scheduler/sched-capacity.rst",
		check: mixedKinds,
	}, {
		id: "load-balancing", title: "the scheduler balances other tasks onto lane CPUs",
		classes: severities(audit.Fault, audit.Fault, audit.Warn), needsLanes: true,
		impact: "any task that is not pinned may run there for milliseconds",
		fix: "cgroup v2: a cpuset with cpuset.cpus={lane} and cpuset.cpus.partition=isolated; v1: " +
			"cpuset.sched_load_balance=0. Where CRI-O does it per pod (annotation cpu-load-balancing.crio.io: " +
			"disable, OpenShift), this is normal until such a pod runs",
		boot: "isolcpus=domain,managed_irq,{lane} where a partition cannot be used", source: isolationGuide,
		check: balanced,
	}, {
		id: "partition", title: "a cpuset partition is not valid",
		classes: severities(audit.Fault, audit.Fault, audit.Warn),
		impact:  "its CPUs are balanced like all others, although a partition was requested",
		fix:     "remove the cause that the kernel gives in brackets, and write the partition type again",
		source:  cgroupGuide, check: invalidPartitions,
	}, {
		id: "resctrl", title: "lane CPUs share their whole L3 with CPUs of no lane", needsLanes: true,
		impact: "a neighbour that streams memory evicts the lane's lines: up to tens of percent, at worst some " +
			"µs; nothing else prevents it",
		fix:    "a group under /sys/fs/resctrl with its own cache ways and cpus_list {lane}",
		source: "Documentation/filesystems/resctrl.rst", check: sharedCacheWays,
	}}
}

func offlineLane(s *subject) []hit {
	return onCPUs(s.named.Difference(s.lane), "lane CPUs "+s.named.String(), "online are %s", s.Online())
}

func bootCPU(s *subject) []hit {
	if !s.lane.Contains(s.bootCPU()) {
		return nil
	}
	h := hit{cpus: cpuset.Of(s.bootCPU()), inForce: "the boot CPU is one of lane CPUs " + s.lane.String()}
	if isTrue(s.Kernel.Hypervisor) {
		h.fix = "give the lane other CPUs, in a guest too: isolate a virtual CPU other than 0"
	}
	return []hit{h}
}

func splitCores(s *subject) []hit {
	var h hit
	var others cpuset.Set
	for id := range s.lane.All() {
		siblings := s.Siblings(id)
		if c, _ := s.CPU(id); c.Core == nil {
			s.Lacks(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", id))
		}
		outside := siblings.Difference(s.lane)
		if outside.IsEmpty() || others.Intersects(outside) {
			continue
		}
		others = others.Union(outside)
		inside := siblings.Intersection(s.lane)
		h.add(inside, "core of CPUs %s: %s lane, %s housekeeping", siblings, inside, outside)
	}
	return h.counted("%d cores: housekeeping has CPUs %s beside lane CPUs %s", others, h.cpus)
}

func bothThreads(s *subject) []hit {
	var shared cpuset.Set
	for id := range s.lane.All() {
		if both := s.Siblings(id).Intersection(s.lane); both.Len() > 1 {
			shared = shared.Union(both)
		}
	}
	return onCPUs(shared, "", "CPUs %s are siblings of each other", shared)
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
	return onCPUs(s.lane, "", "performance cores: CPUs %s; efficiency cores: CPUs %s", p, e)
}

// balanced finds the lane CPUs that share a scheduler domain with other CPUs. The kernel takes a CPU out of
// such domains in three ways: by isolcpus=domain, by a valid partition that has only lane CPUs (and may
// balance over these), or (v1) if no cpuset that balances has it together with others.
func balanced(s *subject) []hit {
	partitions, hasPartitions := cpuset.Parse(s.Files["/sys/fs/cgroup/cpuset.cpus.isolated"])
	if s.Kernel.Isolated == nil && hasPartitions != nil {
		return s.noHit(false, "/sys/devices/system/cpu/isolated")
	}
	left := s.lane.Difference(orEmpty(s.Kernel.Isolated)).Difference(partitions).Difference(s.ownDomains())
	if group, known := s.balancedV1(); known {
		left = left.Intersection(group)
	}
	why := ""
	if isolcpus, ok := s.Kernel.Parameters().Isolcpus(); ok && !isolcpus.Has("domain") {
		why = "; without the flag domain, isolcpus= leaves its CPUs to the load balancer"
	}
	return onCPUs(left, s.requested("isolcpus"), "CPUs %s are in scheduler domains with others%s", left, why)
}

// ownDomains returns the CPUs of valid partitions that have only lane CPUs.
func (s *subject) ownDomains() cpuset.Set {
	var own cpuset.Set
	for _, p := range s.Cgroups("/sys/fs/cgroup", "cpuset.cpus.partition") {
		cpus, err := cpuset.Parse(s.Files[path.Dir(p)+"/cpuset.cpus.effective"])
		if (s.Files[p] == "root" || s.Files[p] == "isolated") && err == nil && cpus.IsSubsetOf(s.lane) {
			own = own.Union(cpus)
		}
	}
	return own
}

// balancedV1 returns the CPUs over which v1 cpusets balance that have more than lane CPUs. It returns false
// if the hierarchy is missing.
func (s *subject) balancedV1() (cpus cpuset.Set, known bool) {
	const root, file = "/sys/fs/cgroup/cpuset", "cpuset.sched_load_balance"
	switch s.Files[root+"/"+file] {
	case "":
		return cpuset.Set{}, false
	case "1":
		return s.Online(), true // whatever the groups below say
	}
	for _, p := range s.Cgroups(root, file) {
		group, err := cpuset.Parse(s.Files[path.Dir(p)+"/cpuset.effective_cpus"])
		if s.Files[p] == "1" && err == nil && group.Len() > 1 && !group.IsSubsetOf(s.lane) {
			cpus = cpus.Union(group)
		}
	}
	return cpus, true
}

func invalidPartitions(s *subject) []hit {
	var h hit
	for _, p := range s.Cgroups("/sys/fs/cgroup", "cpuset.cpus.partition") {
		if strings.Contains(s.Files[p], "invalid") {
			effective, _ := cpuset.Parse(s.Files[path.Dir(p)+"/cpuset.cpus.effective"])
			h.add(effective, "%s: %s", p, s.Files[p])
		}
	}
	s.lacksCgroups()
	return h.counted("%d partitions are invalid")
}

// sharedCacheWays does not matter to a lane that has an L3 to itself.
func sharedCacheWays(s *subject) []hit {
	const file = "/sys/fs/resctrl/cpus_list" // of the default group, in which everybody is
	shared := s.sharedL3()
	if shared.IsEmpty() {
		return nil
	}
	if _, mounted := s.Files[file]; !mounted && slices.Contains(s.Kernel.Flags, "cat_l3") {
		return []hit{{cpus: shared,
			inForce: "the CPU can divide its L3 (cat_l3), and /sys/fs/resctrl is not mounted",
			fix:     "mount -t resctrl resctrl /sys/fs/resctrl, then a group with cpus_list {lane}"}}
	}
	return s.overlaps(s.Optional(file), func(file string) (cpuset.Set, bool) {
		cpus, ok := s.List(file)
		return cpus.Intersection(shared), ok
	})
}

// sharedL3 returns the lane CPUs that share their L3 with others, as far as is known.
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
