package enforce

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/plan"
)

// choosePaths returns the wanted lanes with the paths that they get beside those that stay, and by their
// names the reasons: "" for those that did not ask for the best one. The error is a *plan.Refusal for the
// first lane whose path this host cannot make now, or whose address another lane on the same uplink has.
func (l *Lanes) choosePaths(
	h host.Host, stay plan.Placement, wanted []lane.Lane,
) (chosen []lane.Lane, reasons map[string]string, err error) {
	on := netpath.Networks{Root: l.root, Paths: l.paths, Free: func(name, device string) int {
		return freeFunctions(h, stay, name, device, chosen)
	}}
	has := map[string]string{} // paths of the wanted lanes that are in force
	for _, p := range stay.Lanes {
		if slices.ContainsFunc(wanted, func(w lane.Lane) bool { return w.Metadata.Name == p.Name }) {
			has[p.Name] = p.Spec.Network.Path
		} else {
			on.Add(p.Name, p.Spec.Network)
		}
	}
	reasons = map[string]string{}
	for _, want := range wanted {
		name, n := want.Metadata.Name, &want.Spec.Network
		if n.Path == netpath.Auto {
			n.Path, reasons[name], err = on.Best(name, want.Spec, has[name])
		} else {
			reasons[name], err = "", on.Possible(name, *n)
		}
		if s, serr := netpath.FindSwitch(l.paths, want.Spec); err == nil && s != nil {
			err = errors.Join(serr, s.PossibleSwitch(othersOf(want, wanted, stay)))
		}
		if err != nil {
			return nil, nil, refused(name, err)
		}
		n.VFs = max(n.VFs, netpath.Functions(l.paths, *n)) // which the planner places
		on.Add(name, *n)
		chosen = append(chosen, want)
	}
	return chosen, reasons, nil
}

// othersOf are the lanes of a lane's switch besides it: those wanted, and those in force that stay.
func othersOf(of lane.Lane, wanted []lane.Lane, stay plan.Placement) (names []string) {
	all := slices.Clone(wanted)
	for _, p := range stay.Lanes {
		all = append(all, p.Declaration())
	}
	for _, o := range all {
		if name := o.Metadata.Name; o.Spec.Switch == of.Spec.Switch && name != of.Metadata.Name {
			names = append(names, name)
		}
	}
	return names
}

// checkSegments refuses a lane whose address somebody else on its segment has. Addresses that lanes have
// there by now are not asked for: they would answer themselves. Nor do answers count of lanes that are on
// another card of the segment now, and leave it.
func (l *Lanes) checkSegments(ctx context.Context, p plan.Placement) error {
	var leaving []string
	for _, now := range l.Placement.Lanes {
		next, stays := p.Lane(now.Name)
		on := netpath.Of(l.root, now.Name, now.Spec.Network)
		if !stays || netpath.Of(l.root, next.Name, next.Spec.Network).Uplink != on.Uplink {
			leaving = append(leaving, on.MAC)
		}
	}
	errs := make([]error, len(p.Lanes))
	var wait sync.WaitGroup
	for i, placed := range p.Lanes {
		next := netpath.Of(l.root, placed.Name, placed.Spec.Network)
		ask := slices.DeleteFunc(slices.Clone(next.Addresses), func(a lane.Address) bool {
			return slices.ContainsFunc(l.Placement.Lanes, func(now plan.Lane) bool {
				on := netpath.Of(l.root, now.Name, now.Spec.Network)
				return on.Uplink == next.Uplink && slices.ContainsFunc(on.Addresses,
					func(b lane.Address) bool { return a.Addr() == b.Addr() })
			})
		})
		if next.Path == "" {
			continue
		}
		wait.Go(func() {
			if err := next.CheckSegment(ctx, ask, leaving); err != nil {
				errs[i] = refused(placed.Name, err)
			}
		})
	}
	wait.Wait()
	return cmp.Or(errs...)
}

// ForOtherHost returns lanes with what their paths need, to plan for a host that cannot be looked at. Errors
// are those of Refuse, and a *plan.Refusal for the first lane that leaves the path to its host.
func ForOtherHost(paths []netpath.Path, lanes []lane.Lane) ([]lane.Lane, error) {
	if err := Refuse(paths, lanes); err != nil {
		return nil, err
	}
	lanes = slices.Clone(lanes)
	for i, l := range lanes {
		n := &lanes[i].Spec.Network
		n.VFs = max(n.VFs, netpath.Functions(paths, *n))
		if n.Path == netpath.Auto {
			return nil, refused(l.Metadata.Name, errors.New("spec.network.path: auto is decided on the host itself, "+
				"as root: expected the name of a path"))
		}
	}
	return lanes, nil
}
