package enforce

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/knob"
	"isolane.dev/isolane/plan"
)

// The kernel may refuse a partition of the kind that a lane's threads need: before Linux 6.0 there is none
// that is isolated, and some kernels make only an isolated one of the CPUs of isolcpus=. Then the lane gets
// the next best:
//
//	          taken
//	 wanted ----------> the wanted kind
//	  |  |
//	  |  | refused         taken
//	  |  +-------> other ---------> the other kind: nobody else has the CPUs
//	  |              |
//	  |              | refused
//	  |              v
//	  +----------> member: a plain cpuset
//	 refused:
//	 not exclusive
//
// Applied.Levels has by name what a partition got where that is not the wanted kind, and Applied.Refused why.
// Later calls of Apply keep both, and do not ask again, while the partition's cgroup, CPUs and kind are the
// same; member for "not exclusive" only while another cgroup has CPUs of it. Kernels before 5.11 are not
// asked at all (knob.HasPartitions).

// grant notes that a partition is not of the kind that was wanted.
func (a *Applied) grant(part knob.Partition, level string) {
	if a.Levels == nil {
		a.Levels = map[string]string{}
	}
	a.Levels[part.Name] = level
}

// keepLevels takes over into next what the kernel would refuse again: of the partitions that stay the same.
func (l *Lanes) keepLevels(next *Applied) error {
	v, err := l.View()
	if err != nil {
		return err
	}
	before := v.Partitions(l.Placement)
	next.fill(&v)
	for _, part := range v.Partitions(next.Placement) {
		level, ok := l.Levels[part.Name]
		if !ok || !slices.Contains(before, part) {
			continue
		}
		refused := l.refusedOf(part)
		if slices.ContainsFunc(refused, func(r RefusedStep) bool { return r.Cause == NotExclusive }) &&
			l.overlap(part.File()) == nil {
			continue
		}
		next.grant(part, level)
		next.Refused = append(next.Refused, refused...)
	}
	return nil
}

// refusedOf is what was refused of a partition.
func (a Applied) refusedOf(part knob.Partition) []RefusedStep {
	other := func(r RefusedStep) bool { return r.Target != part.File() }
	return slices.DeleteFunc(slices.Clone(a.Refused), other)
}

// RefusedOf is what the kernel has refused of the partitions of a lane in force: also of the one that it
// shares, and of that of its idle siblings.
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

// keepRefused leaves of what was refused only the partitions that are not asked for again.
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

// bargain notes a step that the kernel has refused. For a partition it asks for the other kind.
func (l *Lanes) bargain(ctx context.Context, a *Applied, parts []knob.Partition, r journal.Refused) error {
	first := l.refused(r)
	a.Refused = append(a.Refused, first)
	at := slices.IndexFunc(parts, func(p knob.Partition) bool { return p.File() == r.Step.Target })
	if at < 0 || r.Step.After == knob.Member {
		return nil
	}
	if first.Cause == NotExclusive { // nor will the other kind be
		return l.demote(ctx, a, parts[at], r.Step)
	}
	other := r.Step
	other.After = map[string]string{knob.Isolated: knob.Balanced, knob.Balanced: knob.Isolated}[r.Step.After]
	refused, err := l.journal.Apply(ctx, []journal.Step{other})
	if len(refused) == 0 {
		a.grant(parts[at], other.After)
		return err
	}
	a.Refused = append(a.Refused, l.refused(refused[0]))
	return errors.Join(err, l.demote(ctx, a, parts[at], r.Step))
}

// demote makes a plain cpuset of a partition, which may still be of the kind that it was to be no longer.
func (l *Lanes) demote(ctx context.Context, a *Applied, part knob.Partition, s journal.Step) error {
	a.grant(part, knob.Member)
	s.After, s.Optional = knob.Member, false
	_, err := l.journal.Apply(ctx, []journal.Step{s})
	return err
}

// refused describes what the kernel has refused, of a partition with who has its CPUs.
func (l *Lanes) refused(r journal.Refused) RefusedStep {
	refused := l.ops.refused(r.Step, r.Err)
	if refused.Cause == NotExclusive {
		if o := l.overlap(r.Step.Target); o != nil {
			refused.Reason += ": " + o.String() + ", and apply again"
		}
	}
	return refused
}

// demotions returns the steps that make plain cpusets of partitions whose CPUs will change. Two partitions
// that change places would be invalid in between, and the kernel does not take back all that goes with that.
// They also take from cgroups above lanes the exclusive CPUs that these hand down no longer: no cgroup beside
// them can have its cpuset.mems set while it has such CPUs (EINVAL: validate_change, kernel/cgroup/cpuset.c).
func (l *Lanes) demotions(parts []knob.Partition, want []journal.Step) []journal.Step {
	done := map[string]string{}
	for _, s := range l.journal.Pending() {
		done[s.Target] = s.After
	}
	var steps, narrow []journal.Step
	for _, s := range want {
		before, berr := cpuset.Parse(done[s.Target])
		after, aerr := cpuset.Parse(s.After)
		own := slices.ContainsFunc(parts, func(p knob.Partition) bool { return p.Dir == path.Dir(s.Target) })
		if own || path.Base(s.Target) != knob.ExclusiveFile || errors.Join(berr, aerr) != nil ||
			before.IsSubsetOf(after) {
			continue
		}
		s.After = before.Intersection(after).String()
		narrow = append(narrow, s)
		for _, p := range l.journal.Pending() { // a lane below that goes elsewhere is no partition before that
			_, err := fs.Stat(l.root, p.Target[1:])
			if err == nil && knob.IsPartition(p) && strings.HasPrefix(p.Target, path.Dir(s.Target)+"/") &&
				!slices.ContainsFunc(want, func(w journal.Step) bool { return w.Target == p.Target }) {
				steps = append(steps, journal.Step{Kind: p.Kind, Target: p.Target, After: knob.Member})
			}
		}
	}
	for _, part := range parts {
		_, is := done[part.File()]
		if is && slices.ContainsFunc(want, func(s journal.Step) bool {
			value, had := done[s.Target]
			return had && value != s.After && knob.GivesCPUs(s) && path.Dir(s.Target) == part.Dir
		}) {
			steps = append(steps, journal.Step{Kind: change.KindFile, Target: part.File(), After: knob.Member})
		}
	}
	return append(steps, narrow...)
}

// overlap is a cpuset.cpus beside a lane's, as LXC's are, that has CPUs of the lane: what is in it.
type overlap struct {
	file         string
	cpus, others cpuset.Set // all that it has, and those that are not the lane's
}

// String says what ends it.
func (o overlap) String() string {
	if o.others.IsEmpty() {
		return o.file + " is " + o.cpus.String() + ": give it other CPUs"
	}
	return o.file + " is " + o.cpus.String() + ": write " + o.others.String() + " there"
}

// overlap finds who has CPUs of the partition with this file; nil where nobody has, or it is not to be seen.
func (l *Lanes) overlap(partition string) *overlap {
	dir := path.Dir(partition)
	lane, ok := readCPUs(l.root, dir)
	if !ok {
		return nil
	}
	files, _ := fs.Glob(l.root, path.Dir(dir)[1:]+"/*/cpuset.cpus") // an error only of a bad pattern
	for _, file := range files {
		cpus, ok := readCPUs(l.root, "/"+path.Dir(file))
		if ok && "/"+path.Dir(file) != dir && cpus.Intersects(lane) {
			return &overlap{"/" + file, cpus, cpus.Difference(lane)}
		}
	}
	return nil
}

// readCPUs reads the cpuset.cpus of a cgroup; ok is false where it is gone.
func readCPUs(root fs.FS, dir string) (cpus cpuset.Set, ok bool) {
	text, err := fs.ReadFile(root, path.Join(dir, "cpuset.cpus")[1:])
	if err != nil {
		return cpus, false
	}
	cpus, err = cpuset.Parse(strings.TrimSpace(string(text)))
	return cpus, err == nil
}
