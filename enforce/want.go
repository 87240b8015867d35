package enforce

import (
	"fmt"
	"slices"

	"isolane.dev/isolane/enforce/merge"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
)

// Want plans lanes beside those in force, on the host as it was before them, and returns that host too.
// Errors: those of merge.Refuse and merge.InForce.With.
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
	v, err := l.View() // also looks up the lanes' functions and interrupts
	return merge.InForce{Placement: l.Placement, Root: l.root, Host: v.Host, Paths: l.paths}, err
}

// Without returns what is in force without the lanes with these names, or an error if one is not in force.
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
