// Package bridge is the path that most hosts use: veth, Linux bridge, veth.
package bridge

import (
	"isolane.dev/isolane/change"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/netpath"
)

// Path is the path "bridge", or with GRO "bridge-gro".
type Path struct {
	// GRO joins the frames of both ends before they enter the bridge. Between containers hosts leave it off, as
	// veth does; frames of a network card are joined by its driver.
	GRO bool
}

// Name returns "bridge" or "bridge-gro".
func (p Path) Name() string {
	if p.GRO {
		return "bridge-gro"
	}
	return "bridge"
}

// Words say what it is.
func (p Path) Words() string {
	if p.GRO {
		return "the same with generic receive offload on the host's ends, as network cards have it"
	}
	return "veth, Linux bridge, veth: what most hosts use"
}

// Steps returns what makes the path between the two ends.
func (p Path) Steps(between netpath.Pair) ([]journal.Step, error) {
	br, err := change.LinkStep(between.Bridge, change.Link{Type: "bridge"})
	if err != nil {
		return nil, err
	}
	ends, err := between.Ends(between.Bridge, p.GRO)
	return append([]journal.Step{br}, ends...), err
}
