package enforce

import (
	"fmt"
	"reflect"
	"slices"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/knob"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/solver"
)

// Want plans lanes beside those in force, on the host as it was before them, which is returned too. A lane
// whose place is asked for as before keeps it. With prune, lanes in force that are not asked for go. The
// error is a *plan.Refusal or a *plan.Mismatch where the lanes are the reason.
func (l *Lanes) Want(lanes []lane.Lane, prune bool) (plan.Placement, host.Host, error) {
	if err := Refuse(l.paths, lanes); err != nil {
		return plan.Placement{}, host.Host{}, err
	}
	v, err := l.View()
	if err != nil {
		return plan.Placement{}, v.Host, err
	}
	placed := l.Placement
	if prune {
		placed = l.without(v, func(p plan.Lane) bool {
			return !slices.ContainsFunc(lanes, func(want lane.Lane) bool { return want.Metadata.Name == p.Name })
		})
	}
	lanes, reasons, err := l.choosePaths(v.Host, placed, lanes)
	if err != nil {
		return plan.Placement{}, host.Host{}, err
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
	p, err := solver.Solve(v.Host, placed, fresh)
	for i, planned := range p.Lanes {
		reason, asked := reasons[planned.Name]
		if !asked {
			continue
		}
		p.Lanes[i].Reasons = slices.DeleteFunc(slices.Clone(planned.Reasons), netpath.IsReason)
		if reason != "" {
			p.Lanes[i].Reasons = append(p.Lanes[i].Reasons, reason)
		}
	}
	return p, v.Host, err
}

// samePlace says whether two declarations differ in nothing that decides where a lane goes.
func samePlace(a, b lane.Spec) bool {
	a.Scheduling, a.Objective = b.Scheduling, b.Objective
	a.Network.Path, a.Network.MTU = b.Network.Path, b.Network.MTU
	a.Network.Addresses, a.Network.Gateways = b.Network.Addresses, b.Network.Gateways
	return reflect.DeepEqual(a, b)
}

// Without is what is in force without the lanes of these names. It is an error where one of them is not in
// force.
func (l *Lanes) Without(names ...string) (plan.Placement, error) {
	for _, name := range names {
		if _, err := l.Lane(name); err != nil {
			return plan.Placement{}, err
		}
	}
	v, err := l.View()
	if err != nil {
		return plan.Placement{}, fmt.Errorf("the host before the lanes: %w", err)
	}
	return l.without(v, func(p plan.Lane) bool { return slices.Contains(names, p.Name) }), nil
}

// without leaves lanes out, and gives their CPUs to housekeeping.
func (l *Lanes) without(v knob.View, which func(plan.Lane) bool) plan.Placement {
	p := l.Placement
	p.Lanes = nil
	for _, placed := range l.Placement.Lanes {
		if which(placed) {
			p.Housekeeping = p.Housekeeping.Union(placed.Owned().Difference(v.Host.BootIsolated()))
		} else {
			p.Lanes = append(p.Lanes, placed)
		}
	}
	p.Housekeeping = p.Housekeeping.Difference(p.CPUs()) // which may be shared with lanes that stay
	return p
}
