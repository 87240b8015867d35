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

// Path brings packets to lanes: a driver of package netpath.
type Path interface {
	Name() string
	// Declared says what of a declaration the path cannot do on any host, by its field.
	Declared(n lane.Network) error
	// Possible says why a lane cannot have the path on this host as it is now.
	Possible(l netpath.Lane) error
	// Steps make the path of these lanes, whatever of it there is.
	Steps(lanes []netpath.Lane) ([]journal.Step, error)
}

// Refuse returns a *plan.Refusal for the first lane that declares what none of the paths can put in force.
// All other fields of a lane are enforced, or are an objective (see Objectives).
func Refuse(paths []Path, lanes []lane.Lane) error {
	for _, l := range lanes {
		n := l.Spec.Network
		var err error
		switch p := pathOf(paths, n); {
		case p != nil && l.Spec.Cgroup.Path != "":
			err = fmt.Errorf("spec.cgroup.path: what runs there already keeps its network: expected none, or no " +
				"spec.network.path")
		case p != nil:
			err = p.Declared(n)
		case n.Path != "":
			err = fmt.Errorf("spec.network.path: %s: expected %s, this version makes no others", n.Path, names(paths))
		default:
			err = netpath.Lacks("", n)
		}
		if err != nil {
			r := refused(l.Metadata.Name, err)
			if field, _, _ := strings.Cut(err.Error(), ": "); field != "spec.network.device" { // which is missing
				r.Cheapest = &plan.Change{Lane: l.Metadata.Name, Change: "leave out " + field}
			}
			return r
		}
	}
	return nil
}

// refused is the refusal of a lane for one reason, which begins with the name of a field.
func refused(name string, err error) *plan.Refusal {
	return &plan.Refusal{APIVersion: plan.APIVersion, Kind: plan.KindOfRefusal, Lane: name,
		Blocking: []string{err.Error()}}
}

func pathOf(paths []Path, n lane.Network) Path {
	if i := slices.IndexFunc(paths, func(p Path) bool { return p.Name() == n.Path }); i >= 0 {
		return paths[i]
	}
	return nil
}

func names(paths []Path) string {
	var all []string
	for _, p := range paths {
		all = append(all, p.Name())
	}
	return cmp.Or(strings.Join(all, ", "), "none")
}

// refusePaths returns a *plan.Refusal for the first of the wanted lanes whose path this host cannot make now,
// or whose address is that of another lane.
func (l *Lanes) refusePaths(wanted []lane.Lane) error {
	owners := map[netip.Addr]string{}
	for _, p := range l.Placement.Lanes {
		if !slices.ContainsFunc(wanted, func(w lane.Lane) bool { return w.Metadata.Name == p.Name }) {
			for _, a := range p.Spec.Network.Addresses {
				owners[a.Addr()] = p.Name
			}
		}
	}
	for _, want := range wanted {
		n, name := want.Spec.Network, want.Metadata.Name
		path := pathOf(l.Paths, n)
		if path == nil {
			continue
		}
		if err := path.Possible(netpath.Of(l.root, name, n)); err != nil {
			return refused(name, err)
		}
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
	steps, err := knob.Steps(v, p)
	for _, path := range l.Paths {
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
