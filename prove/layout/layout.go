// Package layout decides which CPUs each part of a run gets: the application, its neighbours, and the client
// that measures from outside, which has the same CPU in all cells.
package layout

import (
	"errors"
	"fmt"
	"slices"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/solver"
	"isolane.dev/isolane/results"
)

// The names of the planned lanes: the application's, and on a large enough machine one for the outside
// client, so that nothing of the platform runs on its CPU.
const (
	Application = "prove-application"
	Client      = "prove-client"
)

// Instances returns the names of the application's lanes, or of what it has instead. The first one is
// Application, even if there are several.
func Instances(given factor.Conditions) []string {
	names := []string{Application}
	for n := 2; n <= given.Instances; n++ {
		names = append(names, Instance(n-1))
	}
	return names
}

// Instance returns the name of an instance, counted from 0.
func Instance(i int) string {
	if i == 0 {
		return Application
	}
	return fmt.Sprintf("%s-%d", Application, i+1)
}

// ErrTooSmall says that the machine has too few CPUs for a proof.
var ErrTooSmall = errors.New("a proof needs two CPUs, one for the outside client and one for the application")

// Layout says which CPUs each part of a run gets.
type Layout struct {
	Placement plan.Placement // of the application's lanes alone, one per instance
	Lane      cpuset.Set     // the application's CPUs if it is pinned or in its lanes
	client    cpuset.Set     // the same in every cell; empty if nothing measures from outside
	platform  cpuset.Set     // all others: where floating things may run
	rest      cpuset.Set     // neighbours in pinned and lane cells
	crowded   bool           // the client has a CPU of housekeeping, for lack of another
}

// own plans the application and, if something measures from outside, the client. A client that has a CPU
// keeps it. If there is no room for a CPU of its own it gets none yet, and the layout is crowded.
func own(r Request, given factor.Conditions, client cpuset.Set) (Layout, error) {
	usable := r.Host.Usable().Difference(r.Placed.CPUs())
	if usable.Len() < 2 {
		return Layout{}, fmt.Errorf("%w: this one lets isolane use CPU %s", ErrTooSmall, usable)
	}
	if r.Outside && !r.Pods {
		all, err := solver.Solve(r.Host, r.Placed, append(theApplications(given), theClient(client)))
		if err == nil {
			last := len(all.Lanes) - 1
			theClients := all.Lanes[last].CPUs
			all.Lanes = all.Lanes[:last]
			return of(r, all).with(usable, theClients), nil
		}
	}
	l, err := alone(r, given)
	l.crowded = r.Outside
	return l.with(usable, cpuset.Set{}), err
}

// alone plans the application by itself.
func alone(r Request, given factor.Conditions) (Layout, error) {
	p, err := solver.Solve(r.Host, r.Placed, theApplications(given))
	if err != nil {
		return Layout{}, err
	}
	return of(r, p), nil
}

// of returns the layout of the lanes that a placement adds to those in force.
func of(r Request, p plan.Placement) Layout {
	l := Layout{Placement: p}
	for _, own := range p.Lanes[len(r.Placed.Lanes):] {
		l.Lane = l.Lane.Union(own.CPUs)
	}
	return l
}

// with gives the client its CPU. If that leaves confined neighbours none, they share it.
func (l Layout) with(usable, client cpuset.Set) Layout {
	l.client, l.platform = client, usable.Difference(client)
	if l.rest = l.platform.Difference(l.Placement.CPUs()); l.rest.IsEmpty() {
		l.rest = client
	}
	return l
}

func theApplications(given factor.Conditions) (all []lane.Lane) {
	for _, name := range Instances(given) {
		all = append(all, lane.Lane{Metadata: lane.Metadata{Name: name}, Spec: given.Lane})
	}
	return all
}

// theClient asks for a CPU on which nothing of the platform runs: the client's present one if it has one.
func theClient(has cpuset.Set) lane.Lane {
	return lane.Lane{Metadata: lane.Metadata{Name: Client}, Spec: lane.Spec{CPUs: lane.CPUs{Count: 1,
		List: has}}}
}

// besides plans what is outside of a lane in force. A client that measures gets a CPU alone if there are two.
func besides(r Request) Layout {
	free := r.Host.Usable().Difference(r.Placed.CPUs())
	l := Layout{Lane: r.InForce, platform: free, rest: free}
	if !r.Outside {
		return l
	}
	l.client = cpuset.Of(free.First())
	if l.crowded = free.Len() < 2; l.crowded {
		return l
	}
	if p, err := solver.Solve(r.Host, r.Placed, []lane.Lane{theClient(cpuset.Set{})}); err == nil {
		l.client = p.Lanes[len(r.Placed.Lanes)].CPUs
	}
	l.rest = free.Difference(l.client)
	return l
}

// assign fills in which CPUs the parts of a cell get.
func (l Layout) assign(c results.Cell, given factor.Conditions) results.Cell {
	c.Client, c.Application, c.Neighbours = l.client, l.Lane, cpuset.Set{}
	if given.Place.IsAnywhere() {
		c.Application = l.platform
	}
	if len(given.Neighbours) > 0 {
		c.Neighbours = l.rest
		if given.Place.IsAnywhere() {
			c.Neighbours = l.platform
		}
	}
	return c
}

// Awake returns the CPUs that are kept awake beside those of lanes: the client's, and the application's if
// its level says so.
func Awake(c results.Cell, given factor.Conditions) cpuset.Set {
	if given.Place == factor.Awake {
		return c.Client.Union(c.Application)
	}
	return c.Client
}

// Request is what is to be laid out.
type Request struct {
	Host       host.Host
	Placed     plan.Placement // lanes in force
	Cells      []*results.Cell
	Conditions func(results.Cell) factor.Conditions
	Outside    bool // something measures from outside
	// Pods means that the application and its neighbours are in pods: on all CPUs that no lane has, the client's
	// included.
	Pods bool
	// InForce has the CPUs of the lane that is proved, one of Placed; empty if each cell has a lane of its own.
	InForce cpuset.Set
}

// Plan lays out each cell and fills in which CPUs its parts get, by the cell's name. impossible has the cells
// whose lane this machine cannot have, with the reason. The error concerns all cells, such as ErrTooSmall.
func Plan(r Request) (layouts map[string]Layout, impossible map[string]error, err error) {
	layouts, impossible = map[string]Layout{}, map[string]error{}
	cells := slices.Clone(r.Cells) // the largest lane first: it leaves the client the fewest CPUs
	count := func(c *results.Cell) int {
		given := r.Conditions(*c)
		return given.Lane.CPUs.Count * len(Instances(given)) / max(1, given.Lane.CPUs.Share)
	}
	slices.SortStableFunc(cells, func(a, b *results.Cell) int { return count(b) - count(a) })
	var client cpuset.Set
	crowded := false
	for _, c := range cells {
		l, none := Layout{}, error(nil)
		if !r.InForce.IsEmpty() {
			l = besides(r)
		} else if l, none = own(r, r.Conditions(*c), client); errors.Is(none, ErrTooSmall) {
			return nil, nil, none
		}
		if none != nil {
			impossible[c.Name] = none
			continue
		}
		layouts[c.Name] = l
		if crowded = crowded || l.crowded; !l.crowded {
			client = l.client
		}
	}
	if crowded && r.InForce.IsEmpty() {
		if err = crowd(r, cells, layouts); err != nil {
			return nil, nil, err
		}
	}
	for _, c := range cells {
		l, ok := layouts[c.Name]
		if !ok {
			continue
		}
		if r.Pods {
			l.platform = r.Host.Usable().Difference(r.Placed.CPUs())
			l.rest, l.crowded = l.platform.Difference(l.Placement.CPUs()), false
			layouts[c.Name] = l
		}
		given := r.Conditions(*c)
		if given.Distance != factor.AnyDistance {
			there, err := l.at(r, given)
			if err != nil {
				impossible[c.Name] = err
				delete(layouts, c.Name)
				continue
			}
			layouts[c.Name], l = there, there
		}
		*c = l.assign(*c, given)
		c.Apart = apart(r.Host, c.Application, c.Client)
	}
	return layouts, impossible, nil
}

// crowd gives the client one CPU of housekeeping in all cells, because in one of them there is no other.
func crowd(r Request, cells []*results.Cell, layouts map[string]Layout) error {
	usable := r.Host.Usable().Difference(r.Placed.CPUs())
	left := usable
	for _, c := range cells {
		if _, ok := layouts[c.Name]; !ok {
			continue
		}
		l, err := alone(r, r.Conditions(*c))
		if err != nil {
			return fmt.Errorf("cell %s: %w", c.Name, err)
		}
		l.crowded = true
		layouts[c.Name], left = l, left.Intersection(l.Placement.Housekeeping)
	}
	if left.IsEmpty() {
		return errors.New("the lanes of the cells leave no CPU that the outside client could have in all of them")
	}
	for name, l := range layouts {
		layouts[name] = l.with(usable, cpuset.Of(left.First()))
	}
	return nil
}

// Notes says what has no CPU of its own on this machine.
func Notes(layouts map[string]Layout, cells []results.Cell) []string {
	var notes []string
	add := func(note string) {
		if !slices.Contains(notes, note) {
			notes = append(notes, note)
		}
	}
	for _, c := range cells {
		l := layouts[c.Name]
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
