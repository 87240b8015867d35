package prove

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/factor"
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
	client    cpuset.Set     // the same in every cell; empty where nothing measures from outside
	platform  cpuset.Set     // all others: where floating things may run
	rest      cpuset.Set     // neighbours in pinned and lane cells
	shared    bool           // the neighbours have to share the client's CPU in pinned and lane cells
}

// newLayout plans the application and, where something measures from outside, the client on h, beside lanes
// in force. With two CPUs the client has the one that the lane leaves, and confined neighbours have nowhere
// to go but there. A client that has its CPU already keeps it.
func newLayout(h host.Host, placed plan.Placement, spec lane.Spec, client cpuset.Set, outside bool) (layout,
	error) {
	usable := h.Usable().Difference(placed.CPUs())
	if usable.Len() < 2 {
		return layout{}, fmt.Errorf("%w: this one lets isolane use CPU %s", ErrTooSmall, usable)
	}
	app := lane.Lane{Metadata: lane.Metadata{Name: applicationLane}, Spec: spec}
	if !outside {
		alone, err := solver.Solve(h, placed, []lane.Lane{app})
		if err != nil {
			return layout{}, err
		}
		own := alone.Lanes[len(placed.Lanes)]
		return layout{lane: own.CPUs, placement: alone, platform: usable, rest: usable.Difference(own.Owned())}, nil
	}
	both, err := solver.Solve(h, placed, []lane.Lane{app, theClient(client)})
	if err == nil {
		n := len(placed.Lanes)
		inLane, client := both.Lanes[n], both.Lanes[n+1]
		l := layout{lane: inLane.CPUs, client: client.CPUs, placement: both}
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

// theClient asks for a CPU on which nothing of the platform runs: the one that it has, if it has one.
func theClient(has cpuset.Set) lane.Lane {
	return lane.Lane{Metadata: lane.Metadata{Name: clientLane}, Spec: lane.Spec{CPUs: lane.CPUs{Count: 1,
		List: has}}}
}

// layoutBeside plans what is outside of a lane in force: a client that measures has a CPU alone where there
// are two.
func layoutBeside(h host.Host, placed plan.Placement, inForce cpuset.Set, measured bool) layout {
	free := h.Usable().Difference(placed.CPUs())
	l := layout{lane: inForce, platform: free, rest: free}
	if !measured {
		return l
	}
	l.client = cpuset.Of(free.First())
	if l.shared = free.Len() < 2; l.shared {
		return l
	}
	if p, err := solver.Solve(h, placed, []lane.Lane{theClient(cpuset.Set{})}); err == nil {
		l.client = p.Lanes[len(placed.Lanes)].CPUs
	}
	l.rest = free.Difference(l.client)
	return l
}

// assign fills in which CPUs the parts of a cell get.
func (l layout) assign(c results.Cell, given factor.Conditions) results.Cell {
	c.Client, c.Application, c.Neighbours = l.client, l.lane, cpuset.Set{}
	if given.Place == factor.Anywhere {
		c.Application = l.platform
	}
	if len(given.Neighbours) > 0 {
		c.Neighbours = l.rest
		if given.Place == factor.Anywhere {
			c.Neighbours = l.platform
		}
	}
	return c
}

// layOut plans each cell of this boot, and fills in which CPUs its parts get. The client is on the same CPU
// in all of them. A cell whose lane this machine cannot have is left out with the reason, unless it is the
// baseline or was asked for.
func (r *runner) layOut(h host.Host, placed plan.Placement, s *results.Session, asked bool) error {
	cells, impossible := everyCell(s), map[string]string{}
	r.layouts = map[string]layout{}
	outside := r.scenario.Networked()
	var order []int // the largest lane first: it leaves the client the fewest CPUs
	for i, c := range cells {
		if r.boots.here(*c) {
			order = append(order, i)
		}
	}
	count := func(i int) int { return r.scenario.Conditions(*cells[i]).Lane.CPUs.Count }
	slices.SortStableFunc(order, func(a, b int) int { return count(b) - count(a) })
	var client cpuset.Set
	for _, i := range order {
		given := r.scenario.Conditions(*cells[i])
		l, err := layout{}, error(nil)
		if r.inForce != nil {
			l = layoutBeside(h, placed, r.inForce.Lane.CPUs, outside)
		} else if l, err = newLayout(h, placed, given.Lane, client, outside); err != nil {
			if errors.Is(err, ErrTooSmall) {
				return err // of every cell
			}
			if i < len(s.Cells) && (asked || cells[i].Baseline) {
				return fmt.Errorf("cell %s: %w", cells[i].Name, err)
			}
			impossible[cells[i].Name] = "not on this machine: " + err.Error()
			continue
		}
		client = l.client
		r.layouts[cells[i].Name] = l
		*cells[i] = l.assign(*cells[i], given)
	}
	for _, name := range slices.Sorted(maps.Keys(impossible)) {
		s.Scenario.Excluded = append(s.Scenario.Excluded, results.Excluded{Cell: name, Because: impossible[name]})
	}
	s.Cells = slices.DeleteFunc(s.Cells, func(c results.Cell) bool { return impossible[c.Name] != "" })
	dropCells(s, impossible)
	return nil
}

// anyLayout is that of one of the cells that are measured in this boot.
func (r *runner) anyLayout(s results.Session) layout {
	for _, c := range s.Cells {
		if l, ok := r.layouts[c.Name]; ok {
			return l
		}
	}
	return layout{}
}
