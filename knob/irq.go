package knob

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/change/systemd"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/plan"
)

// interrupts moves those of the lanes' device queues to the lanes, and what else may fire on the lanes'
// CPUs to the others, also interrupts that come later (Documentation/core-api/irq/irq-affinity.rst).
// Managed and per-CPU interrupts refuse to move; so these steps are optional, and the witness counts
// what is left.
func interrupts(v View, p plan.Placement) ([]journal.Step, error) {
	cpus := p.CPUs()
	others := v.Host.Online().Difference(cpus)
	own := map[int]int{}
	for _, l := range p.Lanes {
		for _, i := range l.Interrupts {
			own[i.IRQ] = i.CPU
		}
	}
	var steps []journal.Step
	for _, irq := range v.Host.Interrupts {
		if irq.Affinity == nil {
			continue
		}
		to := irq.Affinity.Difference(cpus)
		cpu, mine := own[irq.IRQ]
		switch {
		case mine:
			to = cpuset.Of(cpu)
		case !irq.Affinity.Intersects(cpus):
			continue
		case to.IsEmpty():
			to = others
		}
		steps = append(steps, affinity(irq.IRQ, to))
	}
	return append(steps, maskStep(v.Root, defaultAffinity, cpus, others)...), nil
}

// balancers keep irqbalance off the lanes' CPUs and the interrupts of their own queues. Where it is told of
// CPUs it no longer looks which ones are isolated, so it is told of these too (irqbalance(1)).
func balancers(v View, p plan.Placement) ([]journal.Step, error) {
	if p.CPUs().IsEmpty() || !exists(v.Root, "/run/systemd/system") || // sd_booted(3)
		!exists(v.Root, "/usr/lib/systemd/system/"+systemd.BalancerTarget) {
		return nil, nil
	}
	cpus := p.CPUs().Union(v.Host.BootIsolated())
	if tickless := v.Host.Kernel.NohzFull; tickless != nil {
		cpus = cpus.Union(*tickless)
	}
	value := cpus.String()
	for _, l := range p.Lanes {
		for _, i := range l.Interrupts {
			value += " " + strconv.Itoa(i.IRQ)
		}
	}
	return []journal.Step{optional(journal.Step{Kind: systemd.KindIrqbalance, Target: systemd.BalancerTarget,
		After: value})}, nil
}

// balancerDefaults: irqbalance has its own configuration alone.
func balancerDefaults(u *Unrecorded) error {
	u.set(journal.Step{Kind: systemd.KindIrqbalance, Target: systemd.BalancerTarget})
	return nil
}

// ForNewInterrupts says whether a step sets the CPUs that new interrupts get.
func ForNewInterrupts(s journal.Step) bool {
	return s.Kind == change.KindFile && s.Target == "/"+defaultAffinity
}

// CameLater are the interrupts that have come while new ones got the CPUs of one of these masks, as steps
// that have set theirs: taken back they have what the kernel gives by the mask from before the lanes
// (kernel/irq/manage.c, irq_setup_affinity). Known are those that were there before. One that somebody has
// moved meanwhile is not among them.
func CameLater(v View, mask string, masks []string, known []int) ([]journal.Step, error) {
	before, err := cpuset.ParseMask(mask)
	var afters []cpuset.Set
	for _, m := range masks {
		after, perr := cpuset.ParseMask(m)
		afters, err = append(afters, after), errors.Join(err, perr)
	}
	if err != nil {
		return nil, err
	}
	online := v.Host.Online()
	var steps []journal.Step
	for _, irq := range v.Host.Interrupts {
		s := affinity(irq.IRQ, cpuset.Set{})
		_, has := v.was[[2]string{s.Kind, s.Target}]
		if has || irq.Affinity == nil || slices.Contains(known, irq.IRQ) {
			continue
		}
		near := v.near(irq.IRQ)
		given := func(set cpuset.Set) string {
			if set = set.Intersection(online); set.Intersects(near) {
				set = set.Intersection(near)
			}
			return set.String()
		}
		s.Before, s.After = given(before), irq.Affinity.String()
		if s.Before != s.After && slices.ContainsFunc(afters, func(after cpuset.Set) bool {
			return given(after) == s.After
		}) {
			steps = append(steps, s)
		}
	}
	return steps, nil
}

// near are the CPUs of the NUMA node that an interrupt's device is on; none where that is not known.
func (v View) near(irq int) cpuset.Set {
	text, err := fs.ReadFile(v.Root, "proc/irq/"+strconv.Itoa(irq)+"/node")
	if err != nil {
		return cpuset.Set{}
	}
	for _, n := range v.Host.NUMANodes {
		if strconv.Itoa(n.ID) == strings.TrimSpace(string(text)) {
			return n.CPUs
		}
	}
	return cpuset.Set{}
}

// affinity sets the CPUs of an interrupt, which the kernel may refuse.
func affinity(irq int, cpus cpuset.Set) journal.Step {
	return optional(file("/proc/irq/"+strconv.Itoa(irq)+"/smp_affinity_list", cpus.String()))
}

const defaultAffinity = "proc/irq/default_smp_affinity"

// InterruptOf is the interrupt whose CPUs a step sets.
func InterruptOf(s journal.Step) (irq int, ok bool) {
	if s.Kind != change.KindFile || path.Base(s.Target) != "smp_affinity_list" {
		return 0, false
	}
	irq, err := strconv.Atoi(path.Base(path.Dir(s.Target)))
	return irq, err == nil
}

func interruptFiles() []string {
	return []string{"/proc/irq/[0-9]*/smp_affinity_list", "/" + defaultAffinity}
}

const workqueueDir = "sys/devices/virtual/workqueue"

// workqueues keeps unbound work queues off the lanes' CPUs, those with a mask of their own too, writeback's
// among them (Documentation/core-api/workqueue.rst).
func workqueues(v View, p plan.Placement) ([]journal.Step, error) {
	cpus := p.CPUs()
	others := v.Host.Online().Difference(cpus)
	steps := maskStep(v.Root, workqueueDir+"/cpumask", cpus, others)
	masks, err := fs.Glob(v.Root, workqueueDir+"/*/cpumask")
	for _, name := range masks {
		for _, s := range maskStep(v.Root, name, cpus, others) {
			steps = append(steps, optional(s)) // its driver may have taken it away meanwhile
		}
	}
	return steps, err
}

func workqueueFiles() []string {
	return []string{"/" + workqueueDir + "/cpumask", "/" + workqueueDir + "/*/cpumask"}
}

// packetSteering keeps the processing of received packets (RPS) off the lanes' CPUs. By which queue a CPU
// sends (XPS) brings it no work, so that stays (Documentation/networking/scaling.rst).
func packetSteering(v View, p plan.Placement) ([]journal.Step, error) {
	var steps []journal.Step
	cpus := p.CPUs()
	devices, err := fs.Glob(v.Root, "sys/class/net/*")
	for _, name := range devices {
		dir, ok := resolve(v.Root, name)
		if !ok {
			continue
		}
		masks, merr := fs.Glob(v.Root, dir+"/queues/rx-*/rps_cpus")
		if merr != nil {
			return nil, fmt.Errorf("%s: %w", dir, merr)
		}
		for _, mask := range masks {
			for _, s := range maskStep(v.Root, mask, cpus, cpuset.Set{}) { // an empty mask steers nowhere
				steps = append(steps, optional(s))
			}
		}
	}
	return steps, err
}

// packetSteeringFiles are those of devices at most four levels below their host bridge. An older
// Isolane has set xps_cpus too, and its journals are undone.
func packetSteeringFiles() []string {
	files := []string{"/sys/devices/virtual/net/*/queues/[rt]x-*/[rx]ps_cpus"}
	for depth := 1; depth <= 4; depth++ {
		files = append(files, "/sys/devices/pci*"+strings.Repeat("/*", depth)+"/net/*/queues/[rt]x-*/[rx]ps_cpus")
	}
	return files
}

// maskStep takes cpus out of the cpumask in a file, or sets it to others where none would be left.
// The kernel prints masks with leading zeros: the step keeps the file's width, so that what is read
// back compares equal. A file that is missing or not a mask is left alone.
func maskStep(root fs.FS, name string, cpus, others cpuset.Set) []journal.Step {
	now, text, ok := readMask(root, name)
	if !ok || !now.Intersects(cpus) {
		return nil
	}
	to := now.Difference(cpus)
	if to.IsEmpty() {
		to = others
	}
	return []journal.Step{file("/"+name, widen(to.Mask(), text))}
}

// interruptDefaults: interrupts of which only lanes are seen to have taken CPUs may fire on all again, or on
// those of irqaffinity= (Documentation/admin-guide/kernel-parameters.txt).
func interruptDefaults(u *Unrecorded) error {
	to, everywhere := u.Host.Online(), u.possible()
	if list, ok := u.Host.Kernel.Parameters().Get("irqaffinity"); ok {
		if set, err := cpuset.ParseWithin(list, everywhere); err == nil {
			to, everywhere = set, set
		}
	}
	for _, irq := range u.Host.Interrupts {
		now := irq.Affinity
		if now != nil && (*now == u.without(u.Host.Online()) || now.IsSubsetOf(u.Lanes)) {
			u.set(file("/proc/irq/"+strconv.Itoa(irq.IRQ)+"/smp_affinity_list", to.String()))
		}
	}
	u.mask(defaultAffinity, everywhere)
	return nil
}

// workqueueDefaults: the mask of unbound queues is what boot leaves to the kernel's own work (isolcpus=,
// nohz_full=), one of its own has all CPUs.
func workqueueDefaults(u *Unrecorded) error {
	u.mask(workqueueDir+"/cpumask", u.possible().Difference(u.Host.BootIsolated()).Difference(u.tickless()))
	own, err := fs.Glob(u.Root, workqueueDir+"/*/cpumask")
	for _, name := range own {
		if now, _, ok := readMask(u.Root, name); ok && now == u.without(u.possible()) {
			u.mask(name, u.possible())
		}
	}
	return err
}

// packetSteeringDefaults: received packets are not steered.
func packetSteeringDefaults(u *Unrecorded) error {
	devices, err := fs.Glob(u.Root, "sys/class/net/*")
	for _, name := range devices {
		dir, ok := resolve(u.Root, name)
		if !ok {
			continue
		}
		received, _ := fs.Glob(u.Root, dir+"/queues/rx-*/rps_cpus") // an error only of a bad pattern
		for _, mask := range received {
			if now, _, ok := readMask(u.Root, mask); ok && !now.IsEmpty() && !now.Intersects(u.Lanes) {
				u.mask(mask, cpuset.Set{})
			}
		}
	}
	return err
}
