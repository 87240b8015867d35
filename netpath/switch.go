package netpath

import (
	"context"
	"fmt"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
)

// Switch is a path through a switch of the host that has lanes of its own (spec.switch).
type Switch interface {
	IsSwitch() bool // not every path of Open vSwitch is one
	// PossibleSwitch says why the switch cannot be given a lane now. others are the lanes that it has already.
	PossibleSwitch(others []string) error
	// SwitchSteps returns the steps that tell the switch what its own lanes have on this host.
	SwitchSteps(h host.Host, lanes []plan.Lane) ([]journal.Step, error)
}

// StrictSwitch is a Switch that restricts what its own lane may declare.
type StrictSwitch interface {
	// DeclaredSwitch returns a *lane.FieldError for a declaration that is wrong on every host.
	DeclaredSwitch(spec lane.Spec) error
}

// FindSwitch returns the switch that a lane is for; nil for a lane of workloads. The error says why it cannot
// be.
func FindSwitch(paths []Path, spec lane.Spec) (Switch, error) {
	if spec.Switch == "" {
		return nil, nil
	}
	s, is := Find(paths, lane.Network{Path: spec.Switch}).(Switch)
	if !is || !s.IsSwitch() {
		return nil, unknown(paths, "spec.switch", spec.Switch)
	}
	if spec.Network.Path != "" {
		return nil, fmt.Errorf("spec.switch: %s: expected no spec.network.path in its lane, but in those of its "+
			"workloads", spec.Switch)
	}
	if strict, is := s.(StrictSwitch); is {
		return s, strict.DeclaredSwitch(spec)
	}
	return s, nil
}

// Lasting is a path whose switch keeps the ports and cards of lanes over a reboot, which ends the lanes. A
// card that is still its port serves nobody.
type Lasting interface {
	// RemoveLeftovers removes these and returns what they were. It does nothing if the switch does not answer.
	RemoveLeftovers(ctx context.Context) (removed []string, err error)
}

// isPort returns an error that says which device the uplink is a port of.
func (u Uplink) isPort() error {
	const kernelOVS = "ovs-system" // the master of all ports of Open vSwitch in the kernel
	if u.Master == kernelOVS {
		return fmt.Errorf("spec.network.device: %s is a port of Open vSwitch: expected its bridge (ovs-vsctl "+
			"port-to-br %[1]s); one of lanes before the last boot goes with isolane recover", u.Name)
	}
	return fmt.Errorf("spec.network.device: %s is a port of %s: expected %[2]s", u.Name, u.Master)
}
