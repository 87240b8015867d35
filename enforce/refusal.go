package enforce

import (
	"errors"
	"strings"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/knob"
)

// Refusal is a setting that the kernel did not take, and why.
type Refusal struct {
	Kind   RefusedKind `json:"kind"`          // interrupt, thread, partition, workload or setting
	IRQ    *int        `json:"irq,omitempty"` // the number, of an interrupt
	Name   string      `json:"name"`          // what was to be set: a file, or what of which thread
	Target string      `json:"target"`        // the same for programs: a file, or a thread and its start time
	Value  string      `json:"value"`
	Cause  Cause       `json:"cause"` // error, notExclusive, bootIsolated or oldKernel
	Reason string      `json:"reason"`
}

// RefusedKind is what a refused setting is of.
type RefusedKind string

// What the kernel refuses.
const (
	OfInterrupt RefusedKind = "interrupt" // its CPUs: it is managed by the kernel, or bound to a CPU
	OfThread    RefusedKind = "thread"    // the CPUs of a thread of the kernel, which is bound
	OfPartition RefusedKind = "partition"
	OfWorkload  RefusedKind = "workload" // of an attached one: to be tried again
	OfSetting   RefusedKind = "setting"  // any other
)

// Cause is why the kernel refuses.
type Cause string

// Causes, of partitions but for the first.
const (
	Errno        Cause = "error"        // see Reason
	NotExclusive Cause = "notExclusive" // another cgroup has CPUs of it
	BootIsolated Cause = "bootIsolated" // it has CPUs of isolcpus=, of which this kernel makes none
	OldKernel    Cause = "oldKernel"    // the kernel was not asked, because it would hang
)

// String says what was refused and why, with what the kernel's reason does not tell.
func (r Refusal) String() string {
	switch {
	case r.Cause == BootIsolated:
		return r.Name + ": boot isolated these CPUs, and this kernel makes no partition of such: they stay closed " +
			"to all that does not ask for them"
	case r.Kind == OfPartition && r.Cause != NotExclusive:
		return r.Name + ": " + r.Reason + ": the lane's CPUs are kept from others as far as this kernel lets them"
	}
	return r.Name + ": " + r.Reason
}

// refusal describes a step that the kernel did not take.
func (o operations) refusal(s journal.Step, err error) Refusal {
	r := Refusal{Kind: OfSetting, Name: o.name(s), Target: s.Target, Value: s.After, Cause: Errno,
		Reason: err.Error()}
	if irq, ok := knob.InterruptOf(s); ok {
		r.Kind, r.IRQ = OfInterrupt, &irq
	}
	if s.Kind == change.KindTask {
		r.Kind = OfThread
	}
	var other *journal.ReadBackError
	if knob.IsPartition(s) {
		if r.Kind = OfPartition; errors.As(err, &other) {
			r.Cause = invalid(other.Reads)
		}
	}
	return r
}

// invalid is why a partition is not valid, by its file. The kernel tells so in words (perr_strings in
// kernel/cgroup/cpuset.c).
func invalid(partition string) Cause {
	switch {
	case strings.Contains(partition, "not exclusive"):
		return NotExclusive
	case strings.Contains(partition, "housekeeping setup"):
		return BootIsolated
	}
	return Errno
}

// isRefused says whether the kernel has refused a step of the lanes in force, so that it is no drift.
func (a Applied) isRefused(s journal.Step) bool {
	for _, r := range a.Refused {
		if r.Target == s.Target && r.Value == s.After && r.Kind != OfWorkload {
			return true
		}
	}
	return false
}
