package prove

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/results"
)

// ErrDrifted says that the lane is not in force as it was applied: the figures would not be the lane's.
var ErrDrifted = errors.New("the host is not as the lanes want it")

// beside puts the scenario's application into a lane in force, in the cells whose levels change nothing of
// it.
func (r *runner) beside(ctx context.Context, o Options) error {
	placed, err := r.Lanes.Lane(o.Lane)
	if err != nil {
		return err
	}
	drift, err := r.Lanes.Drift(ctx)
	if err != nil {
		return err
	}
	if len(drift) > 0 {
		return fmt.Errorf("%w: %s", ErrDrifted, drift[0].Text())
	}
	groups, err := r.Lanes.Groups()
	if err != nil {
		return err
	}
	r.InForce = &groups[slices.IndexFunc(groups,
		func(g enforce.LaneGroup) bool { return g.Lane.Name == o.Lane })]
	if r.InForce.Own {
		if inner, terr := cgroup.Tree(r.Root, r.InForce.Dir); terr != nil || len(inner) > 1 {
			return errors.Join(terr, fmt.Errorf("%w: lane %s is in %s: expected no cgroups within it, where the "+
				"probes' servers are to run", ErrInput, o.Lane, r.InForce.Dir))
		}
	}
	r.Scenario = o.Scenario.Beside(placed.Spec, r.OwnPath())
	for _, q := range o.Scenario.Spec.Searches {
		if o.Scenario.Spec.Modes[o.Mode].Searches != nil && !slices.ContainsFunc(r.Scenario.Spec.Searches,
			func(made scenario.Search) bool { return made.Name == q.Name }) {
			r.unmade = append(r.unmade, fmt.Sprintf("Search %s is not made: it varies %s, which the lane in force "+
				"fixes.", q.Name, q.Factor))
		}
	}
	return nil
}

// proved describes the lane for the record. A resumed session must find it as it was.
func (r *runner) proved(before *results.Lane) (*results.Lane, error) {
	name := r.InForce.Lane.Name
	conditions, err := r.Lanes.Conditions(name)
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
	return &results.Lane{Name: name, Bounds: r.InForce.Lane.Spec.Objective.Bounds(), Conditions: conditions}, nil
}

// unchanged stores what is no longer as the lane wants it at the end of a session.
func (r *runner) unchanged(ctx context.Context, dir string, s *results.Session) error {
	if r.InForce == nil || s.Lane == nil {
		return nil
	}
	drift, err := r.Lanes.Drift(ctx)
	if err != nil || len(drift) == 0 {
		return err
	}
	for _, d := range drift {
		s.Lane.Drift = append(s.Lane.Drift, d.Text())
	}
	return results.Write(dir, *s)
}

// notes says what else is in a lane in force.
func (r *runner) notes() (notes []string) {
	if r.Pods != nil {
		if notes = r.Pods.Notes(); slices.ContainsFunc(r.Scenario.AllCells(), r.IsProcess) {
			notes = append(notes, "In cells whose runtime is host they are processes, and the application has the "+
				"network of a pod that sleeps.")
		}
		return notes
	}
	if r.InForce == nil {
		return nil
	}
	notes = slices.Clone(r.unmade)
	switch n := r.InForce.Lane.Spec.Network; {
	case n.Path == "" || !r.Scenario.Networked():
	case r.OwnPath() == "":
		notes = append(notes,
			fmt.Sprintf("The probes' packets took the path of the scenario, not the lane's own (%s).", n.Path))
	default:
		notes = append(notes, fmt.Sprintf("The probes' packets took a path made as the lane's own (%s, with its "+
			"rate), from a wire within this host: the uplink itself is not in the figures.", n.Path))
		if n.HasTap() {
			notes = append(notes, "Nor are its tap and the virtual machine: the probes' servers ran on the host.")
		}
	}
	if r.InForce.Processes == 0 {
		return notes
	}
	note := fmt.Sprintf("When the session began, %s of the workload ran in lane %s; they share its CPUs with "+
		"the probes' servers.", quantity.Count(r.InForce.Processes, "process"), r.InForce.Lane.Name)
	if r.InForce.Own {
		note += fmt.Sprintf(" These ran in the workload's own cgroup %s, under its limits.", r.InForce.Dir)
	}
	return append(notes, note)
}
