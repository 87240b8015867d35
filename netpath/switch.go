package netpath

import (
	"context"
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

// FindSwitch returns the switch that a lane is for; nil where it is a lane of workloads. The error says why
// it cannot be.
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

// Lasting is a path whose switch keeps what lanes had of it over a reboot, which ends the lanes: a card that
// is still its port serves nobody.
type Lasting interface {
	// RemoveLeftovers takes that away and says what it was; nothing where the switch does not answer.
	RemoveLeftovers(ctx context.Context) (removed []string, err error)
}

// isPort says what is expected of a device that is a port of something.
func (u Uplink) isPort() error {
	const kernelOVS = "ovs-system" // what all ports of Open vSwitch are of for the kernel
	if u.Master == kernelOVS {
		return fmt.Errorf("spec.network.device: %s is a port of Open vSwitch: expected its bridge (ovs-vsctl "+
			"port-to-br %[1]s); one of lanes before the last boot goes with isolane recover", u.Name)
	}
	return fmt.Errorf("spec.network.device: %s is a port of %s: expected %[2]s", u.Name, u.Master)
}
