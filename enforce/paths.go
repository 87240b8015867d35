package enforce

import (
	"errors"
	"slices"

	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
)

// choosePaths returns the wanted lanes with the paths that they get, and by their names the reasons: "" for
// those that did not ask for the best one. The error is a *plan.Refusal for the first lane whose path this
// host cannot make now, or whose address is that of another lane on the same uplink.
func (l *Lanes) choosePaths(wanted []lane.Lane) (chosen []lane.Lane, reasons map[string]string, err error) {
	on := netpath.Networks{Root: l.root, Paths: l.paths}
	has := map[string]string{} // paths of the wanted lanes that are in force
	for _, p := range l.Placement.Lanes {
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
		if err != nil {
			return nil, nil, refused(name, err)
		}
		on.Add(name, *n)
		chosen = append(chosen, want)
	}
	return chosen, reasons, nil
}

// Unchosen returns a *plan.Refusal for the first lane that leaves the path to its host, for those who plan
// for a host that they cannot look at.
func Unchosen(lanes []lane.Lane) error {
	for _, l := range lanes {
		if l.Spec.Network.Path == netpath.Auto {
			return refused(l.Metadata.Name, errors.New("spec.network.path: auto is decided on the host itself, as "+
				"root: expected the name of a path"))
		}
	}
	return nil
}
