package netpath

import (
	"fmt"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
)

// Switch is a path through a switch of the host that has lanes itself (spec.switch).
type Switch interface {
	IsSwitch() bool // not each path of Open vSwitch is one
	// PossibleSwitch says why the switch cannot be told now what a lane has, besides others that are its own.
	PossibleSwitch(others []string) error
	// SwitchSteps tell it what all lanes that are its own have on this host.
	SwitchSteps(h host.Host, lanes []plan.Lane) ([]journal.Step, error)
}

// FindSwitch is the switch that a lane is for; nil where it is a lane of workloads. The error says why it
// cannot be.
func FindSwitch(paths []Path, spec lane.Spec) (Switch, error) {
	if spec.Switch == "" {
		return nil, nil
	}
	s, is := Find(paths, lane.Network{Path: spec.Switch}).(Switch)
	if !is || !s.IsSwitch() {
		return nil, &NameError{"spec.switch", spec.Switch, Choices(paths)["spec.switch"]}
	}
	if spec.Network.Path != "" {
		return nil, fmt.Errorf("spec.switch: %s: expected no spec.network.path in its lane, but in those of its "+
			"workloads", spec.Switch)
	}
	return s, nil
}
