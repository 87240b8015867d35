package plan

import (
	"slices"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
)

// Limit is how many steps Solve takes for lanes that are placed together, before it answers with the best it
// has found. It is a number and not a time, so that the answer is the same on every machine.
const Limit = 150000

// Solve adds lanes to what is placed on h already: all of them or none. What is placed stays where
// it is. The error is a *Refusal where a lane does not fit, and a *Mismatch where what is placed is
// not for this machine, or not any more.
func Solve(h host.Host, placed Placement, lanes []lane.Lane) (Placement, error) {
	p, err := solve(h, placed, lanes, Limit)
	return p, explained(err, h, placed, lanes)
}

// solve is Solve that does not explain what it refuses.
func solve(h host.Host, placed Placement, lanes []lane.Lane, limit int) (Placement, error) {
	if err := placed.check(h); err != nil {
		return Placement{}, err
	}
	if err := known(placed, lanes); err != nil {
		return Placement{}, err
	}
	t := newJointSearch(newMachine(h, placed.Lanes), lanes, limit)
	l, err := t.run()
	if l != nil {
		return Placement{}, &refused{lane: *l, reason: err, on: t.m, proven: true}
	}
	if !t.found {
		return Placement{}, t.refused()
	}
	return t.placement(placed), nil
}

// known says whether the lanes have names of their own, and those that they name are there or are placed with
// them.
func known(placed Placement, lanes []lane.Lane) error {
	var all []string
	for i := range placed.Lanes {
		all = append(all, placed.Lanes[i].Name)
	}
	all = append(all, names(lanes)...)
	for i, l := range lanes {
		why := ""
		if slices.Index(all, l.Metadata.Name) < len(placed.Lanes)+i {
			why = "a lane of that name is placed already"
		}
		for _, name := range append(slices.Clone(l.Spec.Apart.Lanes), l.Spec.Near.Lane) {
			if why == "" && name != "" && !slices.Contains(all, name) {
				why = "spec.near, spec.apart: there is no lane " + cut(name)
			}
		}
		if why != "" {
			return newRefusal(l.Metadata.Name, why)
		}
	}
	return nil
}

// placement writes the answer down.
func (t *jointSearch) placement(placed Placement) Placement {
	p := Placement{APIVersion: APIVersion, Kind: Kind, Host: identity(t.m.h), Cost: t.cost, Optimal: true,
		Lanes: slices.Clone(placed.Lanes)}
	if t.steps < 0 || t.unsure {
		bound := t.alone[0]
		bound.BlockLost = t.leastLoss(0)
		if bound.Compare(t.cost) < 0 {
			p.Optimal, p.Bound = false, &bound
		}
	}
	for i := range t.best {
		t.m.put(t.m.describe(t.best[i]))
	}
	made := t.m.lanes[t.first:]
	for i := range made {
		made[i].Reasons = append(made[i].Reasons, t.m.finalReasons(&t.best[i], t.first+i)...)
	}
	slices.SortStableFunc(made, func(a, b Lane) int { return t.asked(a.Name) - t.asked(b.Name) })
	p.Lanes = append(p.Lanes, made...)
	p.Housekeeping = t.m.housekeeping()
	return p
}

// asked is the place of a lane in the order in which they were asked for.
func (t *jointSearch) asked(name string) int {
	return slices.IndexFunc(t.given, func(l lane.Lane) bool { return l.Metadata.Name == name })
}

// Mismatch is why a placement does not fit a machine.
type Mismatch struct {
	Reason string
	Lost   []string // lanes of which CPUs are gone; none: it is another machine
}

// Error is the reason.
func (m *Mismatch) Error() string { return m.Reason }

func identity(h host.Host) Machine {
	m := Machine{Hostname: h.Hostname, BootID: h.Kernel.BootID}
	var ids []int
	for _, c := range h.CPUs {
		ids = append(ids, c.ID)
	}
	m.CPUs = cpuset.Of(ids...)
	return m
}
