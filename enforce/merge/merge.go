// Package merge plans wanted lanes beside those in force: which lanes stay as they are, which path each gets,
// and where the planner places the others. It changes nothing.
package merge

import (
	"io/fs"
	"reflect"
	"slices"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/solver"
)

// InForce is what is in force, beside which wanted lanes are planned.
type InForce struct {
	plan.Placement
	Root  fs.FS     // of the host
	Host  host.Host // as it was before the lanes
	Paths []netpath.Path
}

// With plans lanes beside those in force. A lane keeps its place if the same place is asked for as before.
// With prune, lanes in force that are not asked for are left out. If the lanes are the reason for an error,
// it is a *plan.Refusal or a *plan.Mismatch.
func (l InForce) With(lanes []lane.Lane, prune bool) (plan.Placement, error) {
	placed := l.Placement
	if prune {
		placed = l.Without(func(p plan.Lane) bool {
			return !slices.ContainsFunc(lanes, func(want lane.Lane) bool { return want.Metadata.Name == p.Name })
		})
	}
	lanes, reasons, err := l.choosePaths(placed, lanes)
	if err != nil {
		return plan.Placement{}, err
	}
	placed.Lanes = slices.Clone(placed.Lanes)
	var fresh []lane.Lane
	for _, want := range lanes {
		at := slices.IndexFunc(placed.Lanes, func(p plan.Lane) bool { return p.Name == want.Metadata.Name })
		switch {
		case at < 0:
			fresh = append(fresh, want)
		case samePlace(placed.Lanes[at].Spec, want.Spec):
			placed.Lanes[at].Spec, placed.Lanes[at].BusyPoll = want.Spec, want.Spec.Scheduling.BusyPoll
		default:
			placed.Lanes = slices.Delete(placed.Lanes, at, at+1)
			fresh = append(fresh, want)
		}
	}
	p, err := solver.Solve(l.Host, placed, fresh)
	for i, planned := range p.Lanes {
		why, asked := reasons[planned.Name]
		if !asked {
			continue
		}
		p.Lanes[i].Reasons = slices.DeleteFunc(slices.Clone(planned.Reasons), netpath.IsReason)
		p.Lanes[i].Reasons = append(p.Lanes[i].Reasons, why...)
	}
	return p, err
}

// samePlace reports whether two declarations agree in all that decides where a lane goes.
func samePlace(a, b lane.Spec) bool {
	a.Scheduling, a.Objective = b.Scheduling, b.Objective
	a.Network.Path, a.Network.MTU = b.Network.Path, b.Network.MTU
	a.Network.TakeFromHost, a.Network.VF = b.Network.TakeFromHost, b.Network.VF
	a.Network.Addresses, a.Network.Gateways = b.Network.Addresses, b.Network.Gateways
	return reflect.DeepEqual(a, b)
}

// Without returns the placement without the lanes for which which is true. Housekeeping gets their CPUs.
func (l InForce) Without(which func(plan.Lane) bool) plan.Placement {
	p := l.Placement
	p.Lanes = nil
	for _, placed := range l.Lanes {
		if which(placed) {
			p.Housekeeping = p.Housekeeping.Union(placed.Owned().Difference(l.Host.BootIsolated()))
		} else {
			p.Lanes = append(p.Lanes, placed)
		}
	}
	p.Housekeeping = p.Housekeeping.Difference(p.CPUs()) // lanes that stay may share CPUs with those removed
	return p
}
