package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"isolane.dev/isolane/audit"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/settings"
	"isolane.dev/isolane/host/task"
)

const irqGuide = "Documentation/core-api/irq/irq-affinity.rst"

// interruptRules check which interrupts reach lane CPUs, and who may send more there.
func interruptRules() []rule {
	return []rule{{
		id: "irq-fired", title: "interrupts have fired on lane CPUs and still go there",
		classes: severities(audit.Fault, audit.Fault, audit.Warn), needsLanes: true,
		impact: "2 to 20 µs each, and the softirq work behind it; right only for the lane's own device queues",
		fix:    "echo {housekeeping} > /proc/irq/N/smp_affinity_list", boot: "irqaffinity={housekeeping}",
		source: isolationGuide, check: firedInterrupts,
	}, {
		id: "irq-directed", title: "interrupts go to lane CPUs", needsLanes: true,
		impact: "2 to 20 µs as soon as one fires; right only for the lane's own device queues",
		fix:    "echo {housekeeping} > /proc/irq/N/smp_affinity_list", boot: "irqaffinity={housekeeping}",
		source: isolationGuide, check: directedInterrupts,
	}, {
		id: "irq-pending", title: "interrupts set to other CPUs leave lane CPUs only when they fire",
		classes: severities(audit.Info, audit.Info, audit.Info), needsLanes: true,
		impact: "one more interrupt each on a lane CPU, 2 to 20 µs, if it ever fires again",
		fix:    "nothing: smp_affinity_list is set, and effective_affinity_list follows with the next interrupt",
		source: irqGuide, check: pendingInterrupts,
	}, {
		id: "irq-managed", title: "managed interrupts go to lane CPUs, and the kernel refuses to move them",
		classes: severities(audit.Fault, audit.Fault, audit.Warn), needsLanes: true,
		impact: "2 to 20 µs whenever a lane CPU, or one that shares the queue, does I/O on the device",
		fix:    "fewer queues (module parameters, ethtool -L), or no I/O on that device from lane CPUs",
		boot:   "isolcpus=managed_irq,{lane}: it moves only queues with a housekeeping CPU in their mask",
		source: parameters + ", isolcpus= managed_irq", check: managedInterrupts,
	}, {
		id: "irq-allowed", title: "interrupts may be moved to lane CPUs",
		classes:    severities(audit.Info, audit.Info, audit.Info),
		needsLanes: true,
		impact:     "the kernel may choose a lane CPU when another goes offline or the driver restarts",
		fix:        "echo {housekeeping} > /proc/irq/N/smp_affinity_list", boot: "irqaffinity={housekeeping}",
		source: irqGuide, check: allowedInterrupts,
	}, {
		id: "irq-default", title: "new interrupts go to all CPUs",
		impact: "the next device that comes up may interrupt a lane",
		fix:    "echo {housekeeping-mask} > /proc/irq/default_smp_affinity", boot: "irqaffinity={housekeeping}",
		source: irqGuide, check: defaultInterrupts,
	}, {
		id: "irqbalance", title: "irqbalance may move interrupts to lane CPUs",
		impact: "every 10 s it moves interrupts that were pinned by hand",
		fix:    "stop it, or IRQBALANCE_BANNED_CPULIST={lane} in its configuration",
		source: "irqbalance(1), IRQBALANCE_BANNED_CPULIST", check: irqbalance,
	}, {
		id: "tuned", title: "tuned parts the CPUs otherwise than the lanes", needsLanes: true,
		impact: "its profile moves interrupts, work queues and threads to the CPUs that it does not isolate",
		source: "tuned-profiles-cpu-partitioning(7)", check: tuned,
	}, {
		id: "irq-threads", title: "threads of interrupts may run on lane CPUs",
		classes: severities(audit.Warn, audit.Fault, audit.Info), needsLanes: true,
		impact: "at FIFO 50 they preempt a lane thread below that for 5 to 50 µs",
		fix:    "they follow /proc/irq/N/smp_affinity; where they must stay, give lane threads a higher priority",
		source: perCPU, check: interruptThreads,
	}}
}

// effective returns the CPUs to which an interrupt goes; its affinity, if the kernel does not say.
func effective(i host.Interrupt) cpuset.Set {
	if i.Effective != nil {
		return *i.Effective
	}
	return orEmpty(i.Affinity)
}

func name(i host.Interrupt) string {
	var words []string
	for _, word := range []*string{i.Name, i.Device} {
		if word != nil {
			words = append(words, *word)
		}
	}
	if len(words) == 0 {
		return strconv.Itoa(i.IRQ)
	}
	return fmt.Sprintf("%d (%s)", i.IRQ, strings.Join(words, ", "))
}

// isPending reports whether an interrupt has been moved to housekeeping CPUs, but goes to a lane CPU until it
// fires next: most chips can be changed only then (irq_move_masked_irq in kernel/irq/migration.c).
func (s *subject) isPending(i host.Interrupt) bool {
	affinity := orEmpty(i.Affinity)
	return i.Effective != nil && i.Effective.Intersects(s.lane) && affinity.Intersects(s.Online()) &&
		!affinity.Intersects(s.lane)
}

// interrupts returns one hit with all interrupts that `is` accepts, in the order of rank. where returns the
// CPUs of an interrupt.
func (s *subject) interrupts(where func(host.Interrupt) cpuset.Set, is func(host.Interrupt) bool) []hit {
	var found []host.Interrupt
	known, unsure := false, 0
	for _, i := range s.Interrupts {
		known = known || i.Affinity != nil || i.Effective != nil
		if !where(i).Intersects(s.lane) || !is(i) {
			continue
		}
		if i.Managed == nil {
			unsure++
		}
		found = append(found, i)
	}
	if !known {
		s.Lacks("/proc/irq/*/smp_affinity")
	}
	kinds := map[string]string{} // of PCI devices, by address
	for _, d := range s.PCIDevices {
		kinds[d.Address] = d.Kind
	}
	slices.SortStableFunc(found, func(a, b host.Interrupt) int { return rank(a, kinds) - rank(b, kinds) })
	var h hit
	for _, i := range found {
		h.add(where(i).Intersection(s.lane), "IRQ %s: CPUs %s", name(i), where(i))
	}
	note := ""
	if unsure > 0 {
		note = fmt.Sprintf(" (of %d it is not known whether they are managed: only debugfs says so)", unsure)
	}
	return h.counted("%d of %d interrupts%s", len(s.Interrupts), note)
}

// rank orders interrupts by what an engineer can do about them: queues of network and storage devices first,
// then what seldom fires, and last those that never fire because they have no handler, or cannot be moved.
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

func defaultInterrupts(s *subject) []hit {
	return s.overlaps([]string{"/proc/irq/default_smp_affinity"}, s.Mask)
}

func pendingInterrupts(s *subject) []hit { return s.interrupts(effective, s.isPending) }

func firedInterrupts(s *subject) []hit {
	known := slices.ContainsFunc(s.Interrupts, func(i host.Interrupt) bool { return i.Fired != nil })
	if !known {
		s.Lacks("/proc/interrupts")
	}
	return s.directed(true)
}

func directedInterrupts(s *subject) []hit { return s.directed(false) }

// directed finds interrupts that go to lane CPUs and can be moved: those that have fired there, or those that
// have not.
func (s *subject) directed(hasFired bool) []hit {
	return s.interrupts(effective, func(i host.Interrupt) bool {
		fired := orEmpty(i.Fired).Intersection(effective(i)).Intersects(s.lane)
		return fired == hasFired && !isTrue(i.Managed) && !s.isPending(i)
	})
}

func managedInterrupts(s *subject) []hit {
	if !slices.ContainsFunc(s.Interrupts, func(i host.Interrupt) bool { return i.Managed != nil }) {
		s.Lacks("/sys/kernel/debug/irq/irqs")
	}
	return s.interrupts(effective, func(i host.Interrupt) bool { return isTrue(i.Managed) && !s.isPending(i) })
}

func allowedInterrupts(s *subject) []hit {
	return s.interrupts(func(i host.Interrupt) cpuset.Set { return orEmpty(i.Affinity) },
		func(i host.Interrupt) bool { return !effective(i).Intersects(s.lane) })
}

// irqbalance without a list bans the CPUs that are isolated or nohz_full when it starts. An empty list bans
// nothing (since March 2026; before, it counted as no list).
func irqbalance(s *subject) []hit {
	running := s.Runs("irqbalance")
	banned, line := s.Banned()
	h := hit{requested: line, inForce: fmt.Sprintf("it bans CPUs %s and no longer what is isolated", banned)}
	switch {
	case line == "":
		banned = orEmpty(s.Kernel.Isolated).Union(orEmpty(s.Kernel.NohzFull))
		h.inForce = "it bans what is isolated or nohz_full: CPUs " + orNone(banned, "none")
	case banned.IsEmpty():
		h.inForce = "it bans nothing, and no longer what is isolated"
	}
	if s.Tasks == nil {
		s.Lacks("/proc/*/status (does irqbalance run?)")
	}
	h.cpus = s.lane.Difference(banned)
	if h.cpus.IsEmpty() || !running && (s.Tasks != nil || line == "") {
		return nil
	}
	if !running {
		h.classes = new(severities(audit.Info, audit.Info, audit.Info))
		h.inForce += "; whether it runs is not known"
	}
	return []hit{h}
}

// tuned supports profiles that have a file of variables.
func tuned(s *subject) []hit {
	profile := strings.TrimSpace(s.Files["/etc/tuned/active_profile"])
	file := "/etc/tuned/" + profile + "-variables.conf"
	if !s.Runs("tuned") {
		return s.noHit(s.Tasks != nil, "/proc/*/status (does tuned run?)")
	}
	for line := range strings.Lines(s.Files[file]) {
		key, list, _ := strings.Cut(strings.TrimSpace(line), "=")
		cpus, err := cpuset.Parse(strings.TrimSpace(list))
		if strings.TrimSpace(key) == "isolated_cores" && err == nil && cpus != s.lane {
			return []hit{{cpus: s.lane, requested: file + ": " + strings.TrimSpace(line),
				inForce: fmt.Sprintf("its profile %s isolates CPUs %s, the lanes have %s", profile, cpus, s.lane),
				fix:     "isolated_cores={lane} in " + file + ", then tuned-adm profile " + profile}}
		}
	}
	return nil
}

// interruptThreads skips threads that move with the next interrupt (irq_thread_check_affinity in
// kernel/irq/manage.c).
func interruptThreads(s *subject) []hit {
	pending := map[int]bool{}
	for _, i := range s.Interrupts {
		pending[i.IRQ] = s.isPending(i)
	}
	return s.tasksOnLane(func(t settings.Task) bool {
		irq, is := task.Interrupt(t.Name)
		return t.Kernel && is && !pending[irq]
	})
}
