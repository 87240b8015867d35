package testbed

import (
	"slices"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/knob"
	"isolane.dev/isolane/prove/layout"
	"isolane.dev/isolane/results"
)

// OwnPath returns the path of a lane in force; "" if it has none, or one that needs more than a wire.
func (r *Bed) OwnPath() string {
	if r.InForce == nil {
		return ""
	}
	path := r.InForce.Lane.Spec.Network.Path
	if path != "" && slices.ContainsFunc(r.Paths, func(p Path) bool { return p.Name() == path && !speaks(p) }) {
		return path
	}
	return ""
}

// laneName returns the lane that an instance of the application is in.
func (r *Bed) laneName(instance int) string {
	if r.InForce != nil {
		return r.InForce.Lane.Name
	}
	return layout.Instance(instance)
}

// applicationDirs returns the cgroups of the application's instances: those of their lanes, or without lanes
// the one made for them all.
func (r *Bed) applicationDirs(h host.Host, given factor.Conditions) ([]string, error) {
	names := layout.Instances(given)
	if r.InForce != nil {
		return []string{r.InForce.Dir}, nil
	}
	groups, err := r.Lanes.Groups()
	if err != nil {
		return nil, err
	}
	dirs := make([]string, len(names))
	for i, name := range names {
		k := slices.IndexFunc(groups, func(g enforce.LaneGroup) bool { return g.Lane.Name == name })
		if k >= 0 {
			dirs[i] = groups[k].Dir // lanes that share CPUs are in a cgroup of their pool
		} else if dirs[i], err = knob.GroupDir(h, layout.Application); err != nil {
			return nil, err
		}
	}
	return dirs, nil
}

// cpusOf returns the CPUs of an instance: those of its lane, or without one all of the application.
func (r *Bed) cpusOf(c results.Cell, given factor.Conditions, instance int) cpuset.Set {
	if own := r.Layouts[c.Name].Placement.Lanes; given.Place == factor.InLane && r.InForce == nil {
		return own[len(own)-len(layout.Instances(given))+instance].CPUs
	}
	return c.Application
}

// ownGroups returns the cgroups that a run makes, of processes or of pods, and empties when it ends.
func (r *Bed) ownGroups(processes bool) []string {
	var groups []string
	if processes {
		groups = append(groups, neighboursGroup)
	}
	if r.Scenario.Networked() {
		groups = append(groups, layout.Client)
	}
	if r.InForce == nil && processes {
		groups = append(groups, layout.Application)
	}
	return groups
}

// attached returns the cgroups outside of a lane's own whose processes belong to it.
func (r *Bed) attached() []string {
	var groups []string
	for _, at := range r.Lanes.Attached {
		if r.InForce != nil && at.Lane == r.InForce.Lane.Name && at.Group != "" {
			groups = append(groups, at.Group)
		}
	}
	return groups
}
