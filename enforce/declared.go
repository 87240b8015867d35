package enforce

import (
	"cmp"
	"fmt"
	"slices"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/knob"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/plan"
)

// wantedSteps returns the steps of a placement with the attached workloads of a; none if it has no lanes.
func (l *Lanes) wantedSteps(v knob.View, p plan.Placement, a Applied) ([]journal.Step, error) {
	if len(p.Lanes) == 0 {
		return nil, nil
	}
	for _, placed := range p.Lanes {
		if n := placed.Spec.Network; n.Path != "" && netpath.Find(l.paths, n) == nil {
			return nil, fmt.Errorf("lane %s has spec.network.path %s, which this program does not know: "+
				"release it with the one that made it", placed.Name, n.Path)
		}
	}
	p = plan.WithDevices(v.Host, p)
	steps, err := knob.Steps(v, p)
	if err != nil {
		return nil, err
	}
	var all []netpath.Lane
	for _, placed := range p.Lanes {
		on := netpath.Of(v.Root, placed.Name, placed.Spec.Network)
		on.Functions, on.Workload, on.CPUs = netpath.FunctionsOf(v.Host, placed), a.Netns(placed.Name), placed.CPUs
		all = append(all, on)
	}
	tags, terr := netpath.Tags(l.paths, all)
	told, err := l.switchSteps(v.Host, p)
	steps, err = append(append(steps, tags...), told...), cmp.Or(terr, err)
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

// switchSteps returns the steps that tell each poll-mode switch what its lanes have.
func (l *Lanes) switchSteps(h host.Host, p plan.Placement) (steps []journal.Step, err error) {
	for _, path := range l.paths {
		s, is := path.(netpath.Switch)
		of := slices.DeleteFunc(slices.Clone(p.Lanes),
			func(o plan.Lane) bool { return o.Spec.Switch != path.Name() })
		if !is || len(of) == 0 {
			continue
		}
		more, err := s.SwitchSteps(h, of)
		if err != nil {
			return nil, fmt.Errorf("lane %s: %w", of[0].Name, err)
		}
		steps = append(steps, more...)
	}
	return steps, nil
}
