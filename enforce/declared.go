package enforce

import (
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
// or whose address is that of another lane.
func (l *Lanes) refusePaths(wanted []lane.Lane) error {
	owners, uplinks := map[netip.Addr]string{}, map[string]lane.Lane{}
	for _, p := range l.Placement.Lanes {
		if !slices.ContainsFunc(wanted, func(w lane.Lane) bool { return w.Metadata.Name == p.Name }) {
			for _, a := range p.Spec.Network.Addresses {
				owners[a.Addr()] = p.Name
			}
			if p.Spec.Network.Path != "" {
				uplinks[p.Spec.Network.Device] = lane.Lane{Metadata: lane.Metadata{Name: p.Name}, Spec: p.Spec}
			}
		}
	}
	for _, want := range wanted {
		n, name := want.Spec.Network, want.Metadata.Name
		path := netpath.Find(l.paths, n)
		if path == nil {
			continue
		}
		if err := path.Possible(netpath.Of(l.root, name, n)); err != nil {
			return refused(name, err)
		}
		// The kernel hands the frames of a device to one of them (netdev_rx_handler_register).
		if other := uplinks[n.Device]; n.Device != "" && other.Spec.Network.Path != "" &&
			other.Spec.Network.Path != n.Path {
			return refused(name, fmt.Errorf("spec.network.path: lane %s has path %s on %s: expected that too",
				other.Metadata.Name, other.Spec.Network.Path, n.Device))
		}
		uplinks[n.Device] = want
		for _, a := range n.Addresses {
			if other, taken := owners[a.Addr()]; taken {
				return refused(name, fmt.Errorf("spec.network.addresses: lane %s has %s", other, a.Addr()))
			}
			owners[a.Addr()] = name
		}
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
	for _, path := range l.paths {
		var on []netpath.Lane
		for _, placed := range p.Lanes {
			if placed.Spec.Network.Path == path.Name() {
				on = append(on, netpath.Of(v.Root, placed.Name, placed.Spec.Network))
			}
		}
		if err != nil || len(on) == 0 {
			continue
		}
		var more []journal.Step
		more, err = path.Steps(on)
		steps = append(steps, more...)
	}
	return steps, err
}
