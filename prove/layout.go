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
	applicationLane = "prove-application"
	clientLane      = "prove-client"
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
	crowded   bool           // the client has a CPU of housekeeping, since there is no other
}

// newLayout plans the application and, where something measures from outside, the client on h, beside lanes
// in force. A client that has its CPU already keeps it. Where there is no room for a CPU of its own it has
// none yet, and the layout is crowded.
func newLayout(h host.Host, placed plan.Placement, spec lane.Spec, client cpuset.Set, outside bool) (layout,
	error) {
	usable := h.Usable().Difference(placed.CPUs())
	if usable.Len() < 2 {
		return layout{}, fmt.Errorf("%w: this one lets isolane use CPU %s", ErrTooSmall, usable)
	}
	if n := len(placed.Lanes); outside {
		both, err := solver.Solve(h, placed, []lane.Lane{theApplication(spec), theClient(client)})
		if err == nil {
			l := layout{placement: both, lane: both.Lanes[n].CPUs}
			l.placement.Lanes = both.Lanes[:n+1]
			return l.with(usable, both.Lanes[n+1].CPUs), nil
		}
	}
	l, err := alone(h, placed, spec)
	l.crowded = outside
	return l.with(usable, cpuset.Set{}), err
}

// alone plans the application by itself.
func alone(h host.Host, placed plan.Placement, spec lane.Spec) (layout, error) {
	p, err := solver.Solve(h, placed, []lane.Lane{theApplication(spec)})
	if err != nil {
		return layout{}, err
	}
	return layout{placement: p, lane: p.Lanes[len(placed.Lanes)].CPUs}, nil
}

// with gives the client its CPU. Where that leaves confined neighbours none, they have to go there too.
func (l layout) with(usable, client cpuset.Set) layout {
	l.client, l.platform = client, usable.Difference(client)
	if l.rest = l.platform.Difference(l.placement.CPUs()); l.rest.IsEmpty() {
		l.rest = client
	}
	return l
}

func theApplication(spec lane.Spec) lane.Lane {
	return lane.Lane{Metadata: lane.Metadata{Name: applicationLane}, Spec: spec}
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
	if l.crowded = free.Len() < 2; l.crowded {
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
	crowded := false
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
		r.layouts[cells[i].Name] = l
		if crowded = crowded || l.crowded; !l.crowded {
			client = l.client
		}
	}
	if crowded && r.inForce == nil {
		if err := r.crowd(h, placed, cells); err != nil {
			return err
		}
	}
	for _, i := range order {
		if l, ok := r.layouts[cells[i].Name]; ok {
			*cells[i] = l.assign(*cells[i], r.scenario.Conditions(*cells[i]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(impossible)) {
		s.Scenario.Excluded = append(s.Scenario.Excluded, results.Excluded{Cell: name, Because: impossible[name]})
	}
	s.Cells = slices.DeleteFunc(s.Cells, func(c results.Cell) bool { return impossible[c.Name] != "" })
	dropCells(s, impossible)
	return nil
}

// crowd gives the client one CPU of housekeeping in all cells, since in one of them there is no other.
func (r *runner) crowd(h host.Host, placed plan.Placement, cells []*results.Cell) error {
	usable := h.Usable().Difference(placed.CPUs())
	left := usable
	for _, c := range cells {
		if _, ok := r.layouts[c.Name]; !ok {
			continue
		}
		l, err := alone(h, placed, r.scenario.Conditions(*c).Lane)
		if err != nil {
			return fmt.Errorf("cell %s: %w", c.Name, err)
		}
		l.crowded = true
		r.layouts[c.Name], left = l, left.Intersection(l.placement.Housekeeping)
	}
	if left.IsEmpty() {
		return errors.New("the lanes of the cells leave no CPU that the outside client could have in all of them")
	}
	for name, l := range r.layouts {
		r.layouts[name] = l.with(usable, cpuset.Of(left.First()))
	}
	return nil
}

// crowding says what has no CPU of its own on this machine.
func (r *runner) crowding(cells []results.Cell) []string {
	var notes []string
	add := func(note string) {
		if !slices.Contains(notes, note) {
			notes = append(notes, note)
		}
	}
	for _, c := range cells {
		l := r.layouts[c.Name]
		if l.crowded {
			add(fmt.Sprintf("There is no CPU for the outside client alone: in all cells it has CPU %s, which "+
				"housekeeping has too. Floating things have CPU %s.", l.client, l.platform))
		}
		if !c.Neighbours.IsEmpty() && c.Neighbours == c.Client {
			add("Pinned or in a lane, the application leaves its neighbours no CPU but the client's: they share it, " +
				"below the client's real-time priority.")
		}
	}
	return notes
}
