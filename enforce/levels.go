package enforce

import (
	"context"
	"slices"

	"isolane.dev/isolane/enforce/partition"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/knob"
	"isolane.dev/isolane/plan"
)

// If a partition did not get the wanted kind, Applied.Levels has by its name what it got, and Applied.Refused
// why. Later calls of Apply keep both and do not ask again while the partition's cgroup, CPUs and kind are
// the same. After "not exclusive" they keep them only while another cgroup has some of its CPUs. Kernels
// before 5.11 are not asked at all (knob.HasPartitions).

// recordLevel notes that a partition got another kind than was wanted.
func (a *Applied) recordLevel(part knob.Partition, level string) {
	if a.Levels == nil {
		a.Levels = map[string]string{}
	}
	a.Levels[part.Name] = level
}

// keepLevels copies to next what the kernel would refuse again, for the partitions that stay the same.
func (l *Lanes) keepLevels(next *Applied) error {
	v, err := l.View()
	if err != nil {
		return err
	}
	before := v.Partitions(l.Placement)
	next.fillView(&v)
	for _, part := range v.Partitions(next.Placement) {
		level, ok := l.Levels[part.Name]
		if !ok || !slices.Contains(before, part) {
			continue
		}
		refused := l.refusedOf(part)
		if slices.ContainsFunc(refused, func(r RefusedStep) bool { return r.Cause == NotExclusive }) &&
			partition.Overlapping(l.root, part.File()) == nil {
			continue
		}
		next.recordLevel(part, level)
		next.Refused = append(next.Refused, refused...)
	}
	return nil
}

// refusedOf returns what was refused of a partition.
func (a Applied) refusedOf(part knob.Partition) []RefusedStep {
	other := func(r RefusedStep) bool { return r.Target != part.File() }
	return slices.DeleteFunc(slices.Clone(a.Refused), other)
}

// RefusedOf returns what the kernel has refused of the partitions of a lane in force: its own or the one that
// it shares, and that of its idle siblings.
func (l *Lanes) RefusedOf(name string) (all []RefusedStep, err error) {
	of, err := l.Lane(name)
	if err != nil {
		return nil, err
	}
	v, err := l.View()
	if err != nil {
		return nil, err
	}
	for _, part := range v.Partitions(plan.Placement{Lanes: []plan.Lane{of}}) {
		all = append(all, l.refusedOf(part)...)
	}
	return all, nil
}

// keepRefused keeps of a.Refused only the partitions that are not asked for again.
func (a *Applied) keepRefused(v knob.View) {
	var all []RefusedStep
	for _, part := range v.Partitions(a.Placement) {
		switch {
		case !knob.HasPartitions(v.Host):
			all = append(all, RefusedStep{Subject: Partition, Name: part.File(), Target: part.File(), Value: part.Kind,
				Cause: OldKernel, Reason: "before Linux 5.11 a partition moves kernel threads off the CPUs that they " +
					"are bound to, and the host may hang"})
		case a.Levels[part.Name] != "":
			all = append(all, a.refusedOf(part)...)
		}
	}
	a.Refused = all
}

// fallBack notes a step that the kernel has refused. If it is of a partition, fallBack makes the next best.
func (l *Lanes) fallBack(ctx context.Context, a *Applied, parts []knob.Partition, r journal.Refused) error {
	a.Refused = append(a.Refused, l.describeRefused(r))
	at := slices.IndexFunc(parts, func(p knob.Partition) bool { return p.File() == r.Step.Target })
	if at < 0 || r.Step.After == knob.Member {
		return nil
	}
	kind, more, err := partition.NextBest(ctx, l.journal, r)
	for _, other := range more {
		a.Refused = append(a.Refused, l.describeRefused(other))
	}
	a.recordLevel(parts[at], kind)
	return err
}

// describeRefused describes a refused step. If another cgroup has CPUs of a partition, it names that cgroup.
func (l *Lanes) describeRefused(r journal.Refused) RefusedStep {
	refused := l.ops.describeRefused(r.Step, r.Err)
	if refused.Cause == NotExclusive {
		if o := partition.Overlapping(l.root, r.Step.Target); o != nil {
			refused.Reason += ": " + o.String() + ", and apply again"
		}
	}
	return refused
}
