package enforce

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/enforce/partition"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/knob"
)

// RefusedStep is a setting that the kernel refused, and why.
type RefusedStep struct {
	Subject Subject `json:"subject"`       // interrupt, thread, partition, workload or setting
	IRQ     *int    `json:"irq,omitempty"` // the number, if it is an interrupt
	Name    string  `json:"name"`          // what was to be set: a file, or which setting of which thread
	Target  string  `json:"target"`        // the same for programs: a file, or a thread and its start time
	Value   string  `json:"value"`
	Cause   Cause   `json:"cause"` // error, bound, notExclusive, bootIsolated or oldKernel
	Reason  string  `json:"reason"`
}

// Subject is what a setting belongs to.
type Subject string

// Subjects. The kernel refuses the first two if they are bound to a CPU, or the interrupt is managed.
const (
	Interrupt  Subject = "interrupt" // its CPUs
	Thread     Subject = "thread"    // the CPUs of a thread of the kernel
	Partition  Subject = "partition" // the kind of a cgroup's partition
	Workload   Subject = "workload"  // an attached one; it is tried again
	AnySetting Subject = "setting"   // any other
)

// Cause is why the kernel refuses a setting.
type Cause string

// Causes. All but the first two are of partitions.
const (
	Errno        Cause = "error"        // see Reason
	Bound        Cause = "bound"        // to its CPU, or managed: an interrupt or a kernel thread
	NotExclusive Cause = "notExclusive" // another cgroup has some of its CPUs
	BootIsolated Cause = "bootIsolated" // it has CPUs of isolcpus=, of which this kernel makes no partition
	OldKernel    Cause = "oldKernel"    // the kernel was not asked, because the host might hang
)

// String says what was refused and why, and adds what the kernel's reason does not say.
func (r RefusedStep) String() string {
	switch {
	case r.Cause == BootIsolated:
		return r.Name + ": boot isolated these CPUs, and this kernel makes no partition of such: they stay " +
			"closed to all that does not ask for them"
	case r.Subject == Partition && r.Cause != NotExclusive:
		return r.Name + ": " + r.Reason + ": the lane's CPUs are kept from others as far as this kernel lets them"
	}
	return r.Name + ": " + r.Reason
}

// subjectOf returns what a step belongs to, and the number if it is an interrupt.
func subjectOf(s journal.Step) (of Subject, irq *int) {
	if n, ok := knob.InterruptOf(s); ok {
		return Interrupt, &n
	}
	switch {
	case s.Kind == change.KindTask:
		return Thread, nil
	case knob.IsPartition(s):
		return Partition, nil
	}
	return AnySetting, nil
}

// describeRefused describes a step that the kernel refused.
func (o operations) describeRefused(s journal.Step, err error) RefusedStep {
	r := RefusedStep{Name: o.name(s), Target: s.Target, Value: s.After, Cause: Errno, Reason: err.Error()}
	r.Subject, r.IRQ = subjectOf(s)
	denied := errors.Is(err, unix.EPERM) || errors.Is(err, unix.EIO) // write_irq_affinity, kernel/irq/proc.c
	switch {
	case r.Subject == Interrupt && denied:
		r.Cause, r.Reason = Bound, "managed by the kernel or bound to a CPU: only isolcpus=managed_irq at boot "+
			"keeps it away; isolane watch shows whether it fires"
	case r.Subject == Thread && errors.Is(err, unix.EINVAL): // PF_NO_SETAFFINITY, kernel/sched/syscalls.c
		r.Cause, r.Reason = Bound, "bound to its CPU: isolane watch shows what it costs"
	}
	if other, is := errors.AsType[*journal.ReadBackError](err); is && r.Subject == Partition {
		r.Cause = invalidCause(other.Reads)
	}
	return r
}

// invalidCause returns why a partition is invalid, by the text of its file.
func invalidCause(text string) Cause {
	switch {
	case partition.NotExclusive(text):
		return NotExclusive
	case partition.BootIsolated(text):
		return BootIsolated
	}
	return Errno
}

// isRefused reports whether the kernel has refused a step of the lanes in force, so that it is no drift.
func (a Applied) isRefused(s journal.Step) bool {
	return slices.ContainsFunc(a.Refused, func(r RefusedStep) bool {
		return r.Target == s.Target && r.Value == s.After && r.Subject != Workload
	})
}
