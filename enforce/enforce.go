// Package enforce turns a placement into the steps that make it true: one file a knob; and keeps lanes in
// force with a journal of them.
//
// A knob looks at the host and returns what is to be changed, so the same function serves apply, a dry
// run, drift and repair. It changes nothing itself.
package enforce

import (
	"isolane.dev/isolane/change"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/plan"
)

// knob is one way in which a placement shows on a host: the steps that are missing, and what they may write
// outside of cgroups, as patterns of path.Match. A journal that names another file is refused.
type knob struct {
	steps func(View, plan.Placement) ([]journal.Step, error)
	files []string
}

// knobs are all, in their order. What the kernel changes too, with each partition that comes or goes, is set
// before the cpusets and put back after them: it gives all its threads, also those that had fewer, every CPU
// that is in no partition (kernel/cgroup/cpuset.c), and takes those that are in one from the work queues.
// Units come before the cpusets too: CPUs that one of them names cannot become a partition.
func knobs() []knob {
	return []knob{
		{affinities, nil},
		{kernelThreads, nil},
		{workqueues, workqueueFiles()},
		{units, nil},
		{cpusets, nil},
		{spreaders, nil},
		{hugepages, hugepageFiles()},
		{interrupts, interruptFiles()},
		{packetSteering, packetSteeringFiles()},
		{watchdogs, watchdogFiles()},
		{idleStates, idleStateFiles()},
		{governors, governorFiles()},
		{realTime, realTimeFiles()},
		{busyPoll, busyPollFiles()},
	}
}

// Steps returns what makes p true on the host: cpusets, and for the lanes' CPUs no interrupt but those of
// their own device queues, no movable kernel thread, no unbound work queue, no packet steered there, no
// watchdog, no deep idle state and no change of frequency; hugepages on the lanes' nodes; and what their
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

// affinities keep the threads outside of the lanes to the CPUs that they had.
func affinities(_ View, p plan.Placement) ([]journal.Step, error) {
	lanes := p.CPUs()
	if lanes.IsEmpty() {
		return nil, nil
	}
	return []journal.Step{{Kind: change.KindAffinities, Target: change.AffinitiesTarget,
		After: lanes.String()}}, nil
}

func file(path, value string) journal.Step {
	return journal.Step{Kind: change.KindFile, Target: path, After: value}
}

// optional marks a step that the kernel may refuse.
func optional(s journal.Step) journal.Step {
	s.Optional = true
	return s
}
