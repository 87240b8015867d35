// Package solver decides which lane holds what on one host. It is pure: the same host and the same lanes
// always give the same Placement, or a Refusal that says why there is none.
//
// It places a single lane exactly (package plan/search), and several lanes at once by branch and bound over
// their places. Repack may also move placed lanes. See docs/placement.md.
package solver

import (
	"slices"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/search"
	"isolane.dev/isolane/plan/stock"
)

// Limit is the number of steps after which Solve answers with the best placement found so far, for lanes that
// are placed together. It limits steps and not time, so that the answer is the same on every machine.
const Limit = 150000

// Solve adds lanes to what is placed on h already: all of them or none. Placed lanes stay where they are. It
// fails with a *plan.Refusal if a lane does not fit, and with a *plan.Mismatch if the placed lanes are not
// for this machine, or no longer.
func Solve(h host.Host, placed plan.Placement, lanes []lane.Lane) (plan.Placement, error) {
	p, err := solve(h, placed, lanes)
	return p, explained(err, h, placed, lanes)
}

// Try is Solve for callers that ask about many hosts. Its error does not say why a lane does not fit, because
// explaining takes longer than finding out.
func Try(h host.Host, placed plan.Placement, lanes []lane.Lane) (plan.Placement, error) {
	return solve(h, placed, lanes)
}

// solve is Solve without explanations of refusals.
func solve(h host.Host, placed plan.Placement, lanes []lane.Lane) (plan.Placement, error) {
	if err := placed.Check(h); err != nil {
		return plan.Placement{}, err
	}
	if err := checkNames(placed, lanes); err != nil {
		return plan.Placement{}, err
	}
	t := newJointSearch(stock.New(h, placed.Lanes), lanes, Limit)
	if r := t.run(); r != nil {
		return plan.Placement{}, r
	}
	return t.placement(placed), nil
}

// checkNames rejects a name that is taken, and a wish about a lane that is neither placed nor requested.
func checkNames(placed plan.Placement, lanes []lane.Lane) error {
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
		for _, name := range l.Spec.Apart.Lanes {
			if why == "" && !slices.Contains(all, name) {
				why = "spec.apart.lanes: there is no lane " + search.Shorten(name)
			}
		}
		if near := l.Spec.Near.Lane; why == "" && near != "" && !slices.Contains(all, near) {
			why = "spec.near.lane: there is no lane " + search.Shorten(near)
		}
		if why != "" {
			return newRefusal(l.Metadata.Name, why)
		}
	}
	return nil
}

// placement returns the answer.
func (t *jointSearch) placement(placed plan.Placement) plan.Placement {
	p := plan.Placement{APIVersion: plan.APIVersion, Kind: plan.Kind, Host: plan.MachineOf(t.m.Host),
		Cost: t.cost, Optimal: true, Lanes: slices.Clone(placed.Lanes)}
	if t.steps < 0 || t.incomplete {
		bound := t.least[0]
		bound.BlockLost = t.leastLoss(0)
		if bound.Compare(t.cost) < 0 {
			p.Optimal, p.Bound = false, &bound
		}
	}
	for i := range t.best {
		t.m.Put(search.Describe(t.m, t.best[i]))
	}
	made := t.m.Lanes[t.placed:]
	for i := range made {
		made[i].Reasons = append(made[i].Reasons, search.FinalReasons(t.m, &t.best[i], t.placed+i)...)
	}
	slices.SortStableFunc(made, func(a, b plan.Lane) int { return t.orderOf(a.Name) - t.orderOf(b.Name) })
	p.Lanes = append(p.Lanes, made...)
	p.Housekeeping = t.m.Housekeeping()
	return p
}

// orderOf returns the position of a lane in the request.
func (t *jointSearch) orderOf(name string) int {
	return slices.IndexFunc(t.requested, func(l lane.Lane) bool { return l.Metadata.Name == name })
}

func declarations(lanes []plan.Lane) []lane.Lane {
	all := make([]lane.Lane, len(lanes))
	for i, l := range lanes {
		all[i] = l.Declaration()
	}
	return all
}

func names(lanes []lane.Lane) (all []string) {
	for _, l := range lanes {
		all = append(all, l.Metadata.Name)
	}
	return all
}
