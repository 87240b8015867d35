package merge

import (
	"errors"
	"slices"
	"strings"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/plan"
)

// Refuse returns a *plan.Refusal for the first lane with a declaration that no path can put in force, or a
// *lane.FieldError if no path could, as for an unknown one. All other fields are enforced, or are an
// objective.
func Refuse(paths []netpath.Path, lanes []lane.Lane) error {
	for _, l := range lanes {
		leave, err := netpath.Refuse(paths, l.Spec)
		if err == nil {
			continue
		}
		if wrong, is := errors.AsType[*lane.FieldError](err); is {
			return &lane.FieldError{File: l.At, Field: wrong.Field, Text: wrong.Text}
		}
		r := refused(l.Metadata.Name, err)
		if len(leave) > 0 {
			r.Cheapest = &plan.Change{Lane: r.Lane, Change: "leave out " + strings.Join(leave, ", ")}
		}
		return r
	}
	return nil
}

// refused returns the refusal of a lane for one reason, which begins with the name of a field.
func refused(name string, err error) *plan.Refusal {
	return &plan.Refusal{APIVersion: plan.APIVersion, Kind: plan.KindOfRefusal, Lane: name,
		Blocking: []string{err.Error()}}
}

// choosePaths returns the wanted lanes with the paths that they get beside the lanes that stay. reasons has,
// by lane, why the path is the best one, if that was asked for, and what it does not do. The error is a
// *plan.Refusal for the first lane whose path this host cannot make now, or whose address another lane on the
// same uplink has.
func (l InForce) choosePaths(
	stay plan.Placement, wanted []lane.Lane,
) (chosen []lane.Lane, reasons map[string][]string, err error) {
	on := netpath.Networks{Root: l.Root, Paths: l.Paths, Free: func(name, device string) int {
		return freeFunctions(l.Host, stay, name, device, chosen)
	}}
	has := map[string]string{} // paths of the wanted lanes that are in force
	for _, p := range stay.Lanes {
		if slices.ContainsFunc(wanted, func(w lane.Lane) bool { return w.Metadata.Name == p.Name }) {
			has[p.Name] = p.Spec.Network.Path
		} else {
			on.Add(p.Name, p.Spec.Network)
		}
	}
	reasons = map[string][]string{}
	for _, want := range wanted {
		name, n := want.Metadata.Name, &want.Spec.Network
		var why string
		if n.Path == netpath.Auto {
			n.Path, why, err = on.Best(name, want.Spec, has[name])
		} else {
			err = on.Possible(name, *n)
		}
		access := netpath.AccessReason(l.Paths, netpath.Of(l.Root, name, *n))
		reasons[name] = slices.DeleteFunc([]string{why, netpath.RateReason(l.Paths, *n), access},
			func(reason string) bool { return reason == "" })
		if s, serr := netpath.FindSwitch(l.Paths, want.Spec); err == nil && s != nil {
			err = errors.Join(serr, s.PossibleSwitch(othersOf(want, wanted, stay)))
		}
		if err != nil {
			return nil, nil, refused(name, err)
		}
		n.VFs = max(n.VFs, netpath.Functions(l.Paths, *n)) // functions for the planner to place
		on.Add(name, *n)
		chosen = append(chosen, want)
	}
	return chosen, reasons, nil
}

// othersOf returns the other lanes of a lane's switch: the wanted ones, and those in force that stay.
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

// ForOtherHost prepares lanes, with what their paths need, for planning on a host that cannot be read. Its
// errors are those of Refuse, and a *plan.Refusal for the first lane that leaves the path to its host.
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

// freeFunctions returns how many of a card's existing virtual functions a lane could have, besides those of
// lanes that stay and of lanes chosen before it.
func freeFunctions(h host.Host, stay plan.Placement, name, card string, chosen []lane.Lane) int {
	d := host.DeviceOf(h, card)
	if d.SRIOV == nil || d.SRIOV.NumVFs == 0 {
		return 0
	}
	free := len(h.FreeFunctions(d))
	has := func(placed plan.Lane) int {
		n := 0
		for _, of := range placed.Devices {
			if of.Address == d.Address {
				n += len(of.VFs)
			}
		}
		return n
	}
	for _, placed := range stay.Lanes {
		if placed.Name != name {
			free -= has(placed)
		}
	}
	for _, c := range chosen {
		placed, _ := stay.Lane(c.Metadata.Name)
		if n := c.Spec.Network; n.VFs > 0 && host.DeviceOf(h, n.Device).Address == d.Address {
			free -= max(0, n.VFs-has(placed))
		}
	}
	return free
}
