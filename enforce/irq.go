package enforce

import (
	"fmt"
	"io/fs"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/journal"
)

// interrupts moves what may fire on the CPUs to the others, also interrupts that come later
// (Documentation/core-api/irq/irq-affinity.rst). Managed and per-CPU interrupts refuse to move; so
// these steps are optional, and the witness counts what is left.
func interrupts(root fs.FS, h host.Host, cpus cpuset.Set) ([]journal.Step, error) {
	others := h.Online().Difference(cpus)
	var steps []journal.Step
	for _, irq := range h.Interrupts {
		if irq.Affinity == nil || !irq.Affinity.Intersects(cpus) {
			continue
		}
		to := irq.Affinity.Difference(cpus)
		if to.IsEmpty() {
			to = others
		}
		s := file(fmt.Sprintf("/proc/irq/%d/smp_affinity_list", irq.IRQ), to.String())
		s.Optional = true
		steps = append(steps, s)
	}
	const preset = "proc/irq/default_smp_affinity"
	return append(steps, maskStep(root, preset, cpus, others)...), nil
}

// workqueues keeps unbound work queues off the CPUs (Documentation/core-api/workqueue.rst).
func workqueues(root fs.FS, h host.Host, cpus cpuset.Set) ([]journal.Step, error) {
	const path = "sys/devices/virtual/workqueue/cpumask"
	return maskStep(root, path, cpus, h.Online().Difference(cpus)), nil
}

// maskStep takes cpus out of the cpumask in a file, or sets it to others where none would be left.
// The kernel prints masks with leading zeros: the step keeps the file's width, so that what is read
// back compares equal. A file that is missing or not a mask is left alone.
func maskStep(root fs.FS, path string, cpus, others cpuset.Set) []journal.Step {
	data, err := fs.ReadFile(root, path)
	if err != nil {
		return nil
	}
	text := trim(data)
	now, err := cpuset.ParseMask(text)
	if err != nil || !now.Intersects(cpus) {
		return nil
	}
	to := now.Difference(cpus)
	if to.IsEmpty() {
		to = others
	}
	return []journal.Step{file("/"+path, widen(to.Mask(), text))}
}
