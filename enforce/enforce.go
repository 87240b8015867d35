// Package enforce turns a placement into the steps that make it true: one file a knob.
//
// A knob looks at the host and returns what is missing, so the same function serves apply, a dry
// run, drift and repair. It changes nothing itself.
package enforce

import (
	"io/fs"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/plan"
)

// Steps returns what is missing on the host for p: cpusets, and for the lanes' CPUs no interrupt,
// no movable kernel thread, no unbound work queue and no deep idle state, and busy polling
// where a lane asks for it. root is the file system
// that h was read from.
func Steps(root fs.FS, h host.Host, p plan.Placement) ([]journal.Step, error) {
	steps, err := cpusets(h, p)
	if err != nil {
		return nil, err
	}
	lanes := p.CPUs()
	for _, knob := range []func(fs.FS, host.Host, cpuset.Set) ([]journal.Step, error){
		interrupts, workqueues, kernelThreads, idleStates,
	} {
		more, err := knob(root, h, lanes)
		if err != nil {
			return nil, err
		}
		steps = append(steps, more...)
	}
	return append(steps, busyPoll(root, h, p)...), nil
}

func file(path, value string) journal.Step {
	return journal.Step{Kind: "file", Target: path, After: value}
}
