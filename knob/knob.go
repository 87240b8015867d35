// Package knob turns a placement into the steps that make it true on a host: one file a knob.
//
// A knob looks at the host as it was before Isolane (View) and returns what is to be changed, so that the
// same function serves apply, a dry run, drift and repair. It changes nothing itself.
//
// To add one: a file with its steps and the files that it may write, and a line in knobs.
package knob

import (
	"isolane.dev/isolane/change"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/plan"
)

// knob is one way in which a placement shows on a host.
type knob struct {
	// steps returns all steps that make a placement true, whatever is in force already.
	steps func(View, plan.Placement) ([]journal.Step, error)
	// files are the files that the steps may write outside of cgroups, as patterns of path.Match. A journal that
	// names any other file is rejected.
	files []string
	// defaults is one of Defaults; nil for none.
	defaults func(*Unrecorded) error
}

// knobs returns all knobs in their order. Whenever a partition comes or goes, the kernel widens the
// affinities of all its threads to every CPU outside of partitions (kernel/cgroup/cpuset.c), and takes
// partitioned CPUs from the work queues. So both are set before the cpusets, and restored after them when
// lanes are released. Units come before the cpusets too: CPUs that a unit names cannot become a partition.
func knobs() []knob {
	return []knob{
		{affinities, nil, affinityDefaults},
		{kernelThreads, nil, kernelThreadDefaults},
		{workqueues, workqueueFiles(), workqueueDefaults},
		{units, nil, unitDefaults},
		{Cpusets, nil, cpusetDefaults},
		{spreaders, nil, nil},
		{hugepages, hugepageFiles(), hugepageDefaults},
		{balancers, nil, balancerDefaults},
		{interrupts, interruptFiles(), interruptDefaults},
		{packetSteering, packetSteeringFiles(), packetSteeringDefaults},
		{watchdogs, watchdogFiles(), watchdogDefaults},
		{idleStates, idleStateFiles(), idleStateDefaults},
		{governors, governorFiles(), governorDefaults},
		{realTime, realTimeFiles(), realTimeDefaults},
		{busyPoll, busyPollFiles(), busyPollDefaults},
	}
}

// Steps returns what makes p true on the host. It makes cpusets. It keeps from the lanes' CPUs: interrupts
// other than those of their own device queues, movable kernel threads, unbound work queues, packet steering,
// the watchdog, deep idle states and frequency changes. It adds hugepages on the lanes' nodes, and what their
// scheduling asks for.
func Steps(v View, p plan.Placement) ([]journal.Step, error) {
	var steps []journal.Step
	for _, k := range knobs() {
		more, err := k.steps(v, p)
		if err != nil {
			return nil, err
		}
		steps = append(steps, more...)
	}
	return steps, nil
}

// affinities keeps the threads outside of the lanes to the CPUs that they had.
func affinities(_ View, p plan.Placement) ([]journal.Step, error) {
	lanes := p.CPUs()
	if lanes.IsEmpty() {
		return nil, nil
	}
	return []journal.Step{{Kind: change.KindAffinities, Target: change.AffinitiesTarget,
		After: lanes.String()}}, nil
}

// Thread returns those of Steps that concern one kernel thread, which may be new.
func Thread(v View, p plan.Placement, pid int) ([]journal.Step, error) {
	return v.kernelThread(pid, p.CPUs())
}

// Ops returns the operations of all kinds of steps that lanes need, except for the Spreader, which the
// program supplies. root is "/", or a directory that stands in for the kernel's files.
func Ops(root string) map[string]journal.Op {
	var files []string
	for _, k := range knobs() {
		files = append(files, k.files...)
	}
	return change.Ops(root, files...)
}

func affinityDefaults(u *Unrecorded) error {
	u.addUnknown("CPUs of other threads",
		"what a program or taskset chose among CPUs "+u.Lanes.String()+" before the lanes is not known")
	return nil
}

func fileStep(path, value string) journal.Step {
	return journal.Step{Kind: change.KindFile, Target: path, After: value}
}

// optional marks a step that the kernel may refuse.
func optional(s journal.Step) journal.Step {
	s.Optional = true
	return s
}
