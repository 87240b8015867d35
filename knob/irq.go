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

// interrupts moves the interrupts of the lanes' device queues to the lanes' CPUs, and all others off them,
// also interrupts that come later (Documentation/core-api/irq/irq-affinity.rst). Managed and per-CPU
// interrupts refuse to move, so these steps are optional, and the witness counts what is left.
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
		steps = append(steps, affinityStep(irq.IRQ, to))
	}
	return append(steps, maskStep(v.Root, defaultAffinity, cpus, others)...), nil
}

// balancers keeps irqbalance off the lanes' CPUs, and off the interrupts of their device queues. Once it is
// told which CPUs to avoid, irqbalance no longer avoids isolated CPUs by itself, so balancers names those too
// (irqbalance(1)).
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

// balancerDefaults leaves irqbalance to its own configuration alone.
func balancerDefaults(u *Unrecorded) error {
	u.addStep(journal.Step{Kind: systemd.KindIrqbalance, Target: systemd.BalancerTarget})
	return nil
}

// ForNewInterrupts reports whether a step sets the CPUs that new interrupts get.
func ForNewInterrupts(s journal.Step) bool {
	return s.Kind == change.KindFile && s.Target == "/"+defaultAffinity
}

// CameLater returns a step for each interrupt that came while new ones got the CPUs of one of masks, as if
// the step had set them. Undoing it gives the interrupt what the kernel derives from mask, the mask from
// before the lanes (kernel/irq/manage.c, irq_setup_affinity). It leaves out interrupts that were there before
// (known), and those that somebody has moved since.
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
		s := affinityStep(irq.IRQ, cpuset.Set{})
		_, has := v.valuesBefore[[2]string{s.Kind, s.Target}]
		if has || irq.Affinity == nil || slices.Contains(known, irq.IRQ) {
			continue
		}
		near := v.nodeCPUs(irq.IRQ)
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

// nodeCPUs returns the CPUs of the NUMA node of an interrupt's device; none if the node is not known.
func (v View) nodeCPUs(irq int) cpuset.Set {
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

// affinityStep returns the step that sets the CPUs of an interrupt. The kernel may refuse it.
func affinityStep(irq int, cpus cpuset.Set) journal.Step {
	return optional(fileStep("/proc/irq/"+strconv.Itoa(irq)+"/smp_affinity_list", cpus.String()))
}

const defaultAffinity = "proc/irq/default_smp_affinity"

// InterruptOf returns the interrupt whose CPUs a step sets.
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

// workqueues keeps unbound work queues off the lanes' CPUs, also those with a mask of their own, such as
// writeback's (Documentation/core-api/workqueue.rst).
func workqueues(v View, p plan.Placement) ([]journal.Step, error) {
	cpus := p.CPUs()
	others := v.Host.Online().Difference(cpus)
	steps := maskStep(v.Root, workqueueDir+"/cpumask", cpus, others)
	masks, err := fs.Glob(v.Root, workqueueDir+"/*/cpumask")
	for _, name := range masks {
		for _, s := range maskStep(v.Root, name, cpus, others) {
			steps = append(steps, optional(s)) // its driver may have removed it meanwhile
		}
	}
	return steps, err
}

func workqueueFiles() []string {
	return []string{"/" + workqueueDir + "/cpumask", "/" + workqueueDir + "/*/cpumask"}
}

// packetSteering keeps the processing of received packets (RPS) off the lanes' CPUs. The choice of send
// queues (XPS) gives a CPU no work, so it stays (Documentation/networking/scaling.rst).
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
			for _, s := range maskStep(v.Root, mask, cpus, cpuset.Set{}) { // an empty mask disables RPS
				steps = append(steps, optional(s))
			}
		}
	}
	return steps, err
}

// packetSteeringFiles matches the files of devices at most four levels below their host bridge. It includes
// xps_cpus, because journals of older versions set that too and must be undone.
func packetSteeringFiles() []string {
	files := []string{"/sys/devices/virtual/net/*/queues/[rt]x-*/[rx]ps_cpus"}
	for depth := 1; depth <= 4; depth++ {
		files = append(files, "/sys/devices/pci*"+strings.Repeat("/*", depth)+"/net/*/queues/[rt]x-*/[rx]ps_cpus")
	}
	return files
}

// maskStep removes cpus from the cpumask in a file. If none would be left, it sets the mask to others. The
// step keeps the file's width, because the kernel prints masks with leading zeros and the value read back
// must compare equal. A file that is missing or holds no mask is left alone.
func maskStep(root fs.FS, name string, cpus, others cpuset.Set) []journal.Step {
	now, text, ok := readMask(root, name)
	if !ok || !now.Intersects(cpus) {
		return nil
	}
	to := now.Difference(cpus)
	if to.IsEmpty() {
		to = others
	}
	return []journal.Step{fileStep("/"+name, padMask(to.Mask(), text))}
}

// interruptDefaults lets interrupts whose CPUs look as lanes leave them fire on all CPUs again, or on those
// of irqaffinity= (Documentation/admin-guide/kernel-parameters.txt).
func interruptDefaults(u *Unrecorded) error {
	to, everywhere := u.Host.Online(), u.possibleCPUs()
	if list, ok := u.Host.Kernel.Parameters().Get("irqaffinity"); ok {
		if set, err := cpuset.ParseWithin(list, everywhere); err == nil {
			to, everywhere = set, set
		}
	}
	for _, irq := range u.Host.Interrupts {
		now := irq.Affinity
		if now != nil && (*now == u.withoutLanes(u.Host.Online()) || now.IsSubsetOf(u.Lanes)) {
			u.addStep(fileStep("/proc/irq/"+strconv.Itoa(irq.IRQ)+"/smp_affinity_list", to.String()))
		}
	}
	u.resetMask(defaultAffinity, everywhere)
	return nil
}

// workqueueDefaults gives unbound queues the mask that boot leaves to the kernel's own work (isolcpus=,
// nohz_full=), and a queue with its own mask all CPUs.
func workqueueDefaults(u *Unrecorded) error {
	u.resetMask(workqueueDir+"/cpumask",
		u.possibleCPUs().Difference(u.Host.BootIsolated()).Difference(u.ticklessCPUs()))
	own, err := fs.Glob(u.Root, workqueueDir+"/*/cpumask")
	for _, name := range own {
		if now, _, ok := readMask(u.Root, name); ok && now == u.withoutLanes(u.possibleCPUs()) {
			u.resetMask(name, u.possibleCPUs())
		}
	}
	return err
}

// packetSteeringDefaults turns the steering of received packets off.
func packetSteeringDefaults(u *Unrecorded) error {
	devices, err := fs.Glob(u.Root, "sys/class/net/*")
	for _, name := range devices {
		dir, ok := resolve(u.Root, name)
		if !ok {
			continue
		}
		received, _ := fs.Glob(u.Root, dir+"/queues/rx-*/rps_cpus") // fails only for a bad pattern
		for _, mask := range received {
			if now, _, ok := readMask(u.Root, mask); ok && !now.IsEmpty() && !now.Intersects(u.Lanes) {
				u.resetMask(mask, cpuset.Set{})
			}
		}
	}
	return err
}
