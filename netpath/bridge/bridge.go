// Package bridge is the path that most hosts use: veth, Linux bridge, veth.
package bridge

import (
	"isolane.dev/isolane/change"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/netpath"
)

// Path is the path "bridge".
type Path struct{}

// Name returns "bridge".
func (Path) Name() string { return "bridge" }

// Words say what it is.
func (Path) Words() string {
	return "veth, Linux bridge, veth: what most hosts use"
}

// Steps returns what makes the path between the two ends.
func (Path) Steps(p netpath.Pair) ([]journal.Step, error) {
	br, err := change.LinkStep(p.Bridge, change.Link{Type: "bridge"})
	if err != nil {
		return nil, err
	}
	ends, err := p.Ends(p.Bridge)
	return append([]journal.Step{br}, ends...), err
}
