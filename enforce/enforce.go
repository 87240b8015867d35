// Package enforce turns a placement into the steps that make it true: one file a knob; and keeps lanes in
// force with a journal of them.
//
// A knob looks at the host and returns what is to be changed, so the same function serves apply, a dry
// run, drift and repair. It changes nothing itself.
package enforce

import (
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/plan"
)

// Steps returns what makes p true on the host: cpusets, and for the lanes' CPUs no interrupt but those of
// their own device queues, no movable kernel thread, no unbound work queue, no packet steered there, no
// watchdog, no deep idle state and no change of frequency; hugepages on the lanes' nodes; and what their
// scheduling asks for.
func Steps(v View, p plan.Placement) ([]journal.Step, error) {
	steps, err := cpusets(v, p)
	if err != nil {
		return nil, err
	}
	for _, knob := range []func(View, plan.Placement) ([]journal.Step, error){
		hugepages, interrupts, workqueues, packetSteering, watchdogs, kernelThreads, idleStates, governors, realTime, busyPoll,
	} {
		more, err := knob(v, p)
		if err != nil {
			return nil, err
		}
		steps = append(steps, more...)
	}
	return steps, nil
}

func file(path, value string) journal.Step {
	return journal.Step{Kind: "file", Target: path, After: value}
}

// optional marks a step that the kernel may refuse.
func optional(s journal.Step) journal.Step {
	s.Optional = true
	return s
}
