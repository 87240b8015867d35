// Package direct is a path that measurements compare others with: one veth pair from the client to the
// application, and nothing between. It shows the machine's limit. No lane can declare it.
package direct

import (
	"errors"

	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
)

// Path is the path "direct" of scenarios.
type Path struct{}

var errNoLanes = errors.New("path direct is for measurements: expected path express")

// Name returns "direct".
func (Path) Name() string { return "direct" }

// About says what it is.
func (Path) About() string {
	return "one veth pair from the client to the application, with generic receive offload at both ends: the " +
		"machine's limit, and no path of a lane"
}

// WireGRO returns true: both ends join frames.
func (Path) WireGRO() bool { return true }

// Whole returns the steps of the pair.
func (Path) Whole(w netpath.Wire, l netpath.Lane) ([]journal.Step, error) { return w.Direct(l) }

// Declared refuses all lanes.
func (Path) Declared(lane.Network) error { return errNoLanes }

// Possible refuses all lanes.
func (Path) Possible(netpath.Lane) error { return errNoLanes }

// Steps refuses all lanes.
func (Path) Steps([]netpath.Lane) ([]journal.Step, error) { return nil, errNoLanes }
