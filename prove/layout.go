package prove

import (
	"errors"
	"fmt"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/solver"
	"isolane.dev/isolane/results"
)

// The lanes that are planned: the application's, and where the machine is large enough one for the
// outside client, so that nothing of the platform runs on its CPU.
const (
	applicationLane = "edge-app"
	clientLane      = "edge-client"
)

// ErrTooSmall says that the machine has not enough CPUs for a proof.
var ErrTooSmall = errors.New("a proof needs two CPUs, one for the outside client and one for the application")

// layout says which CPUs each part of a run gets.
type layout struct {
	placement plan.Placement // of the application's lane alone
	lane      cpuset.Set     // the application's CPUs when it is pinned or in its lane
	client    cpuset.Set     // the same in every cell
	platform  cpuset.Set     // all others: where floating things may run
	rest      cpuset.Set     // neighbours in pinned and lane cells
	shared    bool           // the neighbours have to share the client's CPU in pinned and lane cells
}

// newLayout plans the application and the client on h, beside lanes in force. With two CPUs the client has
// the one that the lane leaves, and confined neighbours have nowhere to go but there.
func newLayout(h host.Host, placed plan.Placement, spec lane.Spec) (layout, error) {
	usable := h.Usable().Difference(placed.CPUs())
	if usable.Len() < 2 {
		return layout{}, fmt.Errorf("%w: this one lets isolane use CPU %s", ErrTooSmall, usable)
	}
	app := lane.Lane{Metadata: lane.Metadata{Name: applicationLane}, Spec: spec}
	both, err := solver.Solve(h, placed, []lane.Lane{app, theClient()})
	if err == nil {
		n := len(placed.Lanes)
		inLane, outside := both.Lanes[n], both.Lanes[n+1]
		l := layout{lane: inLane.CPUs, client: outside.CPUs, placement: both}
		l.placement.Lanes = both.Lanes[:n+1]
		l.platform = usable.Difference(l.client)
		l.rest = l.platform.Difference(inLane.Owned())
		return l, nil
	}
	alone, err := solver.Solve(h, placed, []lane.Lane{app})
	if err != nil {
		return layout{}, err
	}
	l := layout{placement: alone, lane: alone.Lanes[len(placed.Lanes)].CPUs, shared: true}
	l.client = cpuset.Of(alone.Housekeeping.First())
	l.platform = usable.Difference(l.client)
	l.rest = l.client
	return l, nil
}

// theClient asks for a CPU on which nothing of the platform runs.
func theClient() lane.Lane {
	return lane.Lane{Metadata: lane.Metadata{Name: clientLane}, Spec: lane.Spec{CPUs: lane.CPUs{Count: 1}}}
}

// layoutBeside plans what is outside of a lane in force: the client has a CPU alone where there are two.
func layoutBeside(h host.Host, placed plan.Placement, inForce cpuset.Set) layout {
	outside := h.Usable().Difference(placed.CPUs())
	l := layout{lane: inForce, client: cpuset.Of(outside.First()), platform: outside, rest: outside}
	if l.shared = outside.Len() < 2; l.shared {
		return l
	}
	if p, err := solver.Solve(h, placed, []lane.Lane{theClient()}); err == nil {
		l.client = p.Lanes[len(placed.Lanes)].CPUs
	}
	l.rest = outside.Difference(l.client)
	return l
}

// assign fills in which CPUs the parts of a cell get.
func (l layout) assign(c results.Cell) results.Cell {
	c.Client = l.client
	c.Application = l.lane
	if c.Placement == Floating {
		c.Application = l.platform
	}
	if c.Noise == Noisy {
		c.Neighbours = l.rest
		if c.Placement == Floating {
			c.Neighbours = l.platform
		}
	}
	return c
}
