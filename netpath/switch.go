package netpath

import (
	"fmt"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
)

// Poll is what a switch has whose threads poll, of all lanes that are its own.
type Poll struct {
	Main   cpuset.Set // the CPUs of its other threads; none: they are where it was started
	PMD    cpuset.Set // a poll-mode thread on each
	Memory []uint64   // MiB of hugepages by NUMA node, up to the last that has memory; none where it has none
}

// Switch is a path through a switch of the host that has lanes itself (spec.switch).
type Switch interface {
	// PossibleSwitch says why the switch cannot be told its CPUs now.
	PossibleSwitch() error
	// SwitchSteps tell it.
	SwitchSteps(p Poll) []journal.Step
}

// FindSwitch is the switch that a lane is for; nil where it is a lane of workloads. The error says why it
// cannot be.
func FindSwitch(paths []Path, spec lane.Spec) (Switch, error) {
	if spec.Switch == "" {
		return nil, nil
	}
	s, is := Find(paths, lane.Network{Path: spec.Switch}).(Switch)
	if !is {
		return nil, fmt.Errorf("spec.switch: %s: this version drives no such switch", spec.Switch)
	}
	if spec.Network.Path != "" {
		return nil, fmt.Errorf("spec.switch: %s: expected no spec.network.path in its lane, but in those of its "+
			"workloads", spec.Switch)
	}
	return s, nil
}
