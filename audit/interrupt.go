package audit

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
)

const irqGuide = "Documentation/core-api/irq/irq-affinity.rst"

// interruptRules ask which interrupts come to lane CPUs, and who may send more there.
func interruptRules() []rule {
	return []rule{
		{
			id: "irq-fired", title: "interrupts have fired on lane CPUs and still go there",
			classes: Severities{Fault, Fault, Warn}, needsLanes: true,
			cost:    "2 to 20 µs each, and the softirq work behind it; right only for the lane's own device queues",
			runTime: "echo {housekeeping} > /proc/irq/N/smp_affinity_list",
			boot:    "irqaffinity={housekeeping}",
			source:  isolationGuide, check: func(s *subject) []hit { return s.directed(true) },
		},
		{
			id: "irq-directed", title: "interrupts go to lane CPUs",
			classes: Severities{Warn, Warn, Info}, needsLanes: true,
			cost:    "2 to 20 µs as soon as one fires; right only for the lane's own device queues",
			runTime: "echo {housekeeping} > /proc/irq/N/smp_affinity_list",
			boot:    "irqaffinity={housekeeping}",
			source:  isolationGuide, check: func(s *subject) []hit { return s.directed(false) },
		},
		{
			id: "irq-pending", title: "interrupts are set to other CPUs, and leave lane CPUs with their threads when they fire",
			classes: Severities{Info, Info, Info}, needsLanes: true,
			cost:    "one interrupt each on a lane CPU, 2 to 20 µs, if it ever fires again",
			runTime: "nothing: smp_affinity_list is set, and effective_affinity_list follows with the next interrupt",
			source:  irqGuide, check: pendingInterrupts,
		},
		{
			id: "irq-managed", title: "managed interrupts go to lane CPUs, and the kernel refuses to move them",
			classes: Severities{Fault, Fault, Warn}, needsLanes: true,
			cost:    "2 to 20 µs whenever a lane CPU, or one that shares the queue, does I/O on the device",
			runTime: "let the driver use fewer queues (module parameters, ethtool -L), or do that device's I/O from housekeeping only",
			boot:    "isolcpus=managed_irq,{lane}: it moves the queues that have a housekeeping CPU in their mask, and no others",
			source:  parameters + ", isolcpus= managed_irq", check: managedInterrupts,
		},
		{
			id: "irq-allowed", title: "interrupts may be moved to lane CPUs",
			classes: Severities{Info, Info, Info}, needsLanes: true,
			cost:    "the kernel may choose a lane CPU when another goes offline or the driver sets up again",
			runTime: "echo {housekeeping} > /proc/irq/N/smp_affinity_list",
			boot:    "irqaffinity={housekeeping}",
			source:  irqGuide, check: allowedInterrupts,
		},
		{
			id: "irq-default", title: "new interrupts go to all CPUs",
			classes: Severities{Warn, Warn, Info},
			cost:    "the next device that comes up may interrupt a lane",
			runTime: "echo {housekeeping-mask} > /proc/irq/default_smp_affinity",
			boot:    "irqaffinity={housekeeping}",
			source:  irqGuide, check: overlap("/proc/irq/default_smp_affinity"),
		},
		{
			id: "irqbalance", title: "irqbalance may move interrupts to lane CPUs",
			classes: Severities{Warn, Warn, Info},
			cost:    "every 10 s it moves what somebody pinned by hand",
			runTime: "stop it, or IRQBALANCE_BANNED_CPULIST={lane} in its configuration",
			source:  "irqbalance(1), IRQBALANCE_BANNED_CPULIST", check: irqbalance,
		},
		{
			id: "irq-threads", title: "threads of interrupts may run on lane CPUs",
			classes: Severities{Warn, Fault, Info}, needsLanes: true,
			cost:    "at FIFO 50 they preempt a lane thread below that for 5 to 50 µs",
			runTime: "they follow /proc/irq/N/smp_affinity; give lane threads a higher priority where they must stay",
			source:  perCPU, check: interruptThreads,
		},
	}
}

// effective is where an interrupt goes; what was asked where the kernel does not say.
func effective(i host.Interrupt) cpuset.Set {
	if i.Effective != nil {
		return *i.Effective
	}
	return orEmpty(i.Affinity)
}

func name(i host.Interrupt) string {
	switch {
	case i.Name != nil && i.Device != nil:
		return fmt.Sprintf("%d (%s, %s)", i.IRQ, *i.Name, *i.Device)
	case i.Name != nil:
		return fmt.Sprintf("%d (%s)", i.IRQ, *i.Name)
	case i.Device != nil:
		return fmt.Sprintf("%d (%s)", i.IRQ, *i.Device)
	}
	return strconv.Itoa(i.IRQ)
}

// isPending says whether somebody has set an interrupt off the lanes, and it goes there until it fires:
// most chips can be told only then (irq_move_masked_irq in kernel/irq/migration.c).
func (s *subject) isPending(i host.Interrupt) bool {
	asked := orEmpty(i.Affinity)
	return i.Effective != nil && i.Effective.Intersects(s.lane) && asked.Intersects(s.Online()) && !asked.Intersects(s.lane)
}

// gather is one hit with all interrupts that is accepts, those first that an engineer can do something
// about; where says on which CPUs it has them.
func (s *subject) gather(where func(host.Interrupt) cpuset.Set, is func(host.Interrupt) bool) []hit {
	var h hit
	var found []host.Interrupt
	known, unsure := false, 0
	for _, i := range s.Interrupts {
		known = known || i.Affinity != nil || i.Effective != nil
		on := where(i).Intersection(s.lane)
		if on.IsEmpty() || !is(i) {
			continue
		}
		if i.Managed == nil {
			unsure++
		}
		h.cpus = h.cpus.Union(on)
		found = append(found, i)
	}
	kinds := s.kinds()
	slices.SortStableFunc(found, func(a, b host.Interrupt) int { return rank(a, kinds) - rank(b, kinds) })
	for _, i := range found {
		h.evidence = append(h.evidence, fmt.Sprintf("IRQ %s: CPUs %s", name(i), where(i)))
	}
	if !known {
		s.lacks("/proc/irq/*/smp_affinity")
	}
	if len(h.evidence) == 0 {
		return nil
	}
	h.inForce = fmt.Sprintf("%d of %d interrupts", len(h.evidence), len(s.Interrupts))
	if unsure > 0 {
		h.inForce += fmt.Sprintf(" (of %d it is not known whether they are managed: only debugfs says so)", unsure)
	}
	return []hit{h}
}

// kinds are those of the devices on PCI, by address.
func (s *subject) kinds() map[string]string {
	kinds := map[string]string{}
	for _, d := range s.PCIDevices {
		kinds[d.Address] = d.Kind
	}
	return kinds
}

// rank puts the queues of network and storage devices before what seldom fires, and last what has no
// handler, so that it does not fire, or cannot be moved.
func rank(i host.Interrupt, kinds map[string]string) int {
	switch {
	case i.Name == nil || i.Device == nil && slices.Contains([]string{"timer", "cascade", "rtc0"}, *i.Name):
		return 4
	case i.Device == nil:
		return 2
	case kinds[*i.Device] == "network":
		return 0
	case kinds[*i.Device] == "storage":
		return 1
	case kinds[*i.Device] == "bridge":
		return 3
	}
	return 2
}

func pendingInterrupts(s *subject) []hit {
	return s.gather(effective, s.isPending)
}

// directed finds interrupts that go to lane CPUs and can be moved: those that have fired there, or
// the others.
func (s *subject) directed(hasFired bool) []hit {
	if hasFired && s.fired == nil {
		s.lacks("/proc/interrupts")
	}
	return s.gather(effective, func(i host.Interrupt) bool {
		fired := s.fired[i.IRQ].Intersection(effective(i)).Intersects(s.lane)
		return fired == hasFired && (i.Managed == nil || !*i.Managed) && !s.isPending(i)
	})
}

func managedInterrupts(s *subject) []hit {
	if !slices.ContainsFunc(s.Interrupts, func(i host.Interrupt) bool { return i.Managed != nil }) {
		s.lacks("/sys/kernel/debug/irq/irqs")
	}
	return s.gather(effective, func(i host.Interrupt) bool { return i.Managed != nil && *i.Managed && !s.isPending(i) })
}

func allowedInterrupts(s *subject) []hit {
	return s.gather(func(i host.Interrupt) cpuset.Set { return orEmpty(i.Affinity) }, func(i host.Interrupt) bool {
		return !effective(i).Intersects(s.lane)
	})
}

// irqbalance reads what its configuration bans. Without one it bans isolated and nohz_full CPUs, as
// they are when it starts. An empty list bans nothing (since a change of March 2026; before, it counted as
// no list).
func irqbalance(s *subject) []hit {
	running := slices.ContainsFunc(s.tasks, func(t host.Task) bool { return t.Name == "irqbalance" })
	auto := orEmpty(s.Kernel.Isolated).Union(orEmpty(s.Kernel.NohzFull))
	h := hit{inForce: fmt.Sprintf("it bans what is isolated or nohz_full: CPUs %s", orNone(auto, "none"))}
	banned, configured := auto, false
	for _, file := range []string{"/etc/default/irqbalance", "/etc/sysconfig/irqbalance"} {
		for line := range strings.Lines(s.files[file]) {
			key, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
			value = strings.Trim(strings.TrimSpace(value), `"'`)
			var set cpuset.Set
			var err error
			switch key {
			case "IRQBALANCE_BANNED_CPULIST":
				set, err = cpuset.Parse(value)
			case "IRQBALANCE_BANNED_CPUS":
				set, err = cpuset.ParseMask(value)
			default:
				continue
			}
			configured, banned, h.asked = true, set, file+": "+strings.TrimSpace(line)
			h.inForce = fmt.Sprintf("it bans CPUs %s and no longer what is isolated", set)
			if err != nil || set.IsEmpty() {
				banned, h.inForce = cpuset.Set{}, "it bans nothing, and no longer what is isolated"
			}
		}
	}
	left := s.lane.Difference(banned)
	if s.tasks == nil {
		s.lacks("/proc/*/status (does irqbalance run?)")
	}
	if left.IsEmpty() || !running && (s.tasks != nil || !configured) {
		return nil
	}
	if !running {
		h.classes = &Severities{Info, Info, Info}
		h.inForce += "; whether it runs is not known"
	}
	h.cpus = left
	return []hit{h}
}

// interruptThreads leaves out those that move with the next interrupt (irq_thread_check_affinity in
// kernel/irq/manage.c).
func interruptThreads(s *subject) []hit {
	pending := map[string]bool{}
	for _, i := range s.Interrupts {
		pending[strconv.Itoa(i.IRQ)] = s.isPending(i)
	}
	return s.tasksOnLane(func(t host.Task) bool {
		name, ok := strings.CutPrefix(t.Name, "irq/")
		number, _, _ := strings.Cut(name, "-")
		return t.Kernel && ok && !pending[number]
	})
}

// cpuOf is the number in a path's part such as cpu7 or machinecheck7; -1 without one.
func cpuOf(file, prefix string) int {
	for dir := file; dir != "/" && dir != "."; dir = path.Dir(dir) {
		if n, ok := strings.CutPrefix(path.Base(dir), prefix); ok {
			if id, err := strconv.Atoi(n); err == nil {
				return id
			}
		}
	}
	return -1
}
