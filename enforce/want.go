package enforce

import (
	"fmt"
	"slices"

	"isolane.dev/isolane/enforce/merge"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
)

// Want plans lanes beside those in force, on the host as it was before them, which is returned too: see
// merge.InForce.With, and merge.Refuse.
func (l *Lanes) Want(lanes []lane.Lane, prune bool) (plan.Placement, host.Host, error) {
	if err := merge.Refuse(l.paths, lanes); err != nil {
		return plan.Placement{}, host.Host{}, err
	}
	in, err := l.inForce()
	if err != nil {
		return plan.Placement{}, in.Host, err
	}
	p, err := in.With(lanes, prune)
	return p, in.Host, err
}

func (l *Lanes) inForce() (merge.InForce, error) {
	v, err := l.View() // which has the lanes' functions and interrupts looked up
	return merge.InForce{Placement: l.Placement, Root: l.root, Host: v.Host, Paths: l.paths}, err
}

// Without is what is in force without the lanes of these names. It is an error where one of them is not in
// force.
func (l *Lanes) Without(names ...string) (plan.Placement, error) {
	for _, name := range names {
		if _, err := l.Lane(name); err != nil {
			return plan.Placement{}, err
		}
	}
	in, err := l.inForce()
	if err != nil {
		return plan.Placement{}, fmt.Errorf("the host before the lanes: %w", err)
	}
	return in.Without(func(p plan.Lane) bool { return slices.Contains(names, p.Name) }), nil
}
