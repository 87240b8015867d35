package prove

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/knob"
	"isolane.dev/isolane/prove/layout"
	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/results"
)

// ErrDrifted says that the lane is not in force as it was applied: the figures would not be the lane's.
var ErrDrifted = errors.New("the host is not as the lanes want it")

// beside has the scenario's application in a lane in force, in the cells whose levels change nothing of it.
func (r *runner) beside(ctx context.Context, o Options) error {
	placed, err := r.lanes.Lane(o.Lane)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInput, err)
	}
	drift, err := r.lanes.Drift(ctx)
	if err != nil {
		return err
	}
	if len(drift) > 0 {
		return fmt.Errorf("%w: %s: expected %s, found %s", ErrDrifted, drift[0].Name, drift[0].Expected,
			drift[0].Found)
	}
	groups, err := r.lanes.Groups()
	if err != nil {
		return err
	}
	r.inForce = &groups[slices.IndexFunc(groups,
		func(g enforce.LaneGroup) bool { return g.Lane.Name == o.Lane })]
	if r.inForce.Own {
		if inner, terr := cgroup.Tree(r.root, r.inForce.Dir); terr != nil || len(inner) > 1 {
			return errors.Join(terr, fmt.Errorf("%w: lane %s is in %s: expected no cgroups within it, where the "+
				"probes' servers are to run", ErrInput, o.Lane, r.inForce.Dir))
		}
	}
	r.scenario = o.Scenario.Beside(placed.Spec, r.ownPath())
	for _, q := range o.Scenario.Spec.Searches {
		if o.Scenario.Spec.Modes[o.Mode].Searches != nil && !slices.ContainsFunc(r.scenario.Spec.Searches,
			func(made scenario.Search) bool { return made.Name == q.Name }) {
			r.unmade = append(r.unmade, fmt.Sprintf("Search %s is not made: it varies %s, which the lane in force "+
				"fixes.", q.Name, q.Factor))
		}
	}
	return nil
}

// proved describes the lane for the record. A session that goes on finds it as it was.
func (r *runner) proved(before *results.Lane) (*results.Lane, error) {
	name := r.inForce.Lane.Name
	conditions, err := r.lanes.Conditions(name)
	if err != nil {
		return nil, err
	}
	if before != nil {
		if changed := before.Conditions.Changed(conditions); changed != "" {
			return nil, fmt.Errorf("%w: lane %s cannot be measured on: since the session began, %s", ErrInput, name,
				changed)
		}
		return before, nil
	}
	return &results.Lane{Name: name, Bounds: r.inForce.Lane.Spec.Objective.Bounds(), Conditions: conditions}, nil
}

// unchanged stores what is no longer as the lane wants it at the end of a session.
func (r *runner) unchanged(ctx context.Context, dir string, s *results.Session) error {
	if r.inForce == nil || s.Lane == nil {
		return nil
	}
	drift, err := r.lanes.Drift(ctx)
	if err != nil || len(drift) == 0 {
		return err
	}
	for _, d := range drift {
		s.Lane.Drift = append(s.Lane.Drift, fmt.Sprintf("%s: expected %s, found %s", d.Name, d.Expected, d.Found))
	}
	return results.Write(dir, *s)
}

// ownPath is the path of a lane in force; "" where it has none, or one that needs more than a wire.
func (r *runner) ownPath() string {
	if r.inForce == nil {
		return ""
	}
	path := r.inForce.Lane.Spec.Network.Path
	if path != "" && slices.ContainsFunc(r.paths, func(p Path) bool { return p.Name() == path && !speaks(p) }) {
		return path
	}
	return ""
}

// notes say what else is in a lane in force.
func (r *runner) notes() (notes []string) {
	if r.pods != nil {
		return r.pods.notes()
	}
	if r.inForce == nil {
		return nil
	}
	notes = slices.Clone(r.unmade)
	switch n := r.inForce.Lane.Spec.Network; {
	case n.Path == "" || !r.scenario.Networked():
	case r.ownPath() == "":
		notes = append(notes,
			fmt.Sprintf("The probes' packets took the path of the scenario, not the lane's own (%s).", n.Path))
	default:
		notes = append(notes, fmt.Sprintf("The probes' packets took a path made as the lane's own (%s, with its "+
			"rate), from a wire within this host: the uplink itself is not in the figures.", n.Path))
		if n.HasTap() {
			notes = append(notes, "Nor are its tap and the virtual machine: the probes' servers ran on the host.")
		}
	}
	if r.inForce.Processes == 0 {
		return notes
	}
	note := fmt.Sprintf("When the session began, %s of the workload ran in lane %s; they share its CPUs with "+
		"the probes' servers.", quantity.Count(r.inForce.Processes, "process"), r.inForce.Lane.Name)
	if r.inForce.Own {
		note += fmt.Sprintf(" These ran in the workload's own cgroup %s, under its limits.", r.inForce.Dir)
	}
	return append(notes, note)
}

// laneName is the lane that an instance of the application is in.
func (r *runner) laneName(instance int) string {
	if r.inForce != nil {
		return r.inForce.Lane.Name
	}
	return layout.Instance(instance)
}

// applicationDirs are the cgroups of the application's instances: those of their lanes, or where they have
// none the one made for them all.
func (r *runner) applicationDirs(h host.Host, given factor.Conditions) ([]string, error) {
	names := layout.Instances(given)
	if r.inForce != nil {
		return []string{r.inForce.Dir}, nil
	}
	groups, err := r.lanes.Groups()
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

// cpusOf are the CPUs of an instance: those of its lane, or where it has none all of the application.
func (r *runner) cpusOf(c results.Cell, given factor.Conditions, instance int) cpuset.Set {
	if own := r.layouts[c.Name].Placement.Lanes; given.Place == factor.InLane && r.inForce == nil {
		return own[len(own)-len(layout.Instances(given))+instance].CPUs
	}
	return c.Application
}

// ownGroups are the cgroups that a session makes, and empties when it ends.
func (r *runner) ownGroups() []string {
	var groups []string
	if r.pods == nil {
		groups = append(groups, neighboursGroup)
	}
	if r.scenario.Networked() {
		groups = append(groups, layout.Client)
	}
	if r.inForce == nil && r.pods == nil {
		groups = append(groups, layout.Application)
	}
	return groups
}

// attached are the cgroups outside of a lane's own whose processes belong to it.
func (r *runner) attached() []string {
	var groups []string
	for _, at := range r.lanes.Attached {
		if r.inForce != nil && at.Lane == r.inForce.Lane.Name && at.Group != "" {
			groups = append(groups, at.Group)
		}
	}
	return groups
}
