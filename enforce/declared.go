package enforce

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/knob"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/plan"
)

// Refuse returns a *plan.Refusal for the first lane that declares what none of the paths can put in force.
// All other fields of a lane are enforced, or are an objective (see Objectives).
func Refuse(paths []netpath.Path, lanes []lane.Lane) error {
	for _, l := range lanes {
		leave, err := netpath.Refuse(paths, l.Spec)
		if err == nil {
			continue
		}
		r := refused(l.Metadata.Name, err)
		if len(leave) > 0 {
			r.Cheapest = &plan.Change{Lane: r.Lane, Change: "leave out " + strings.Join(leave, ", ")}
		}
		return r
	}
	return nil
}

// refused is the refusal of a lane for one reason, which begins with the name of a field.
func refused(name string, err error) *plan.Refusal {
	return &plan.Refusal{APIVersion: plan.APIVersion, Kind: plan.KindOfRefusal, Lane: name,
		Blocking: []string{err.Error()}}
}

// refusePaths returns a *plan.Refusal for the first of the wanted lanes whose path this host cannot make now,
// or whose address is that of another lane on the same uplink.
func (l *Lanes) refusePaths(wanted []lane.Lane) error {
	type address struct {
		uplink string
		netip.Addr
	}
	owners := map[address]string{}
	var others []netpath.Lane
	claim := func(on netpath.Lane) {
		for _, a := range on.Addresses {
			owners[address{on.Uplink, a.Addr()}] = on.Name
		}
		others = append(others, on)
	}
	for _, p := range l.Placement.Lanes {
		if p.Spec.Network.Path != "" &&
			!slices.ContainsFunc(wanted, func(w lane.Lane) bool { return w.Metadata.Name == p.Name }) {
			claim(netpath.Of(l.root, p.Name, p.Spec.Network))
		}
	}
	for _, want := range wanted {
		path := netpath.Find(l.paths, want.Spec.Network)
		if path == nil {
			continue
		}
		on := netpath.Of(l.root, want.Metadata.Name, want.Spec.Network)
		err := cmp.Or(netpath.PossibleTags(l.root, path, on), netpath.PossibleRate(on))
		if err == nil {
			err = path.Possible(on)
		}
		if err == nil {
			err = netpath.Beside(l.paths, on, others)
		}
		if err != nil {
			return refused(on.Name, err)
		}
		for _, a := range on.Addresses {
			if other, taken := owners[address{on.Uplink, a.Addr()}]; taken {
				return refused(on.Name, fmt.Errorf("spec.network.addresses: lane %s has %s", other, a.Addr()))
			}
		}
		claim(on)
	}
	return nil
}

// steps are those of a placement; none without lanes.
func (l *Lanes) steps(v knob.View, p plan.Placement) ([]journal.Step, error) {
	if len(p.Lanes) == 0 {
		return nil, nil
	}
	for _, placed := range p.Lanes {
		if n := placed.Spec.Network; n.Path != "" && netpath.Find(l.paths, n) == nil {
			return nil, fmt.Errorf("lane %s has spec.network.path %s, which this program does not know: "+
				"release it with the one that made it", placed.Name, n.Path)
		}
	}
	steps, err := knob.Steps(v, p)
	if err != nil {
		return nil, err
	}
	var all []netpath.Lane
	for _, placed := range p.Lanes {
		all = append(all, netpath.Of(v.Root, placed.Name, placed.Spec.Network))
	}
	tags, err := netpath.Tags(l.paths, all)
	steps = append(steps, tags...)
	for _, path := range l.paths {
		on := slices.DeleteFunc(slices.Clone(all), func(o netpath.Lane) bool { return o.Path != path.Name() })
		if err != nil || len(on) == 0 {
			continue
		}
		var more []journal.Step
		more, err = path.Steps(on)
		steps = append(steps, more...)
	}
	return steps, err
}
