// Package partition has the kernel make partitions of lanes' cgroups. It chooses what a lane gets if the
// kernel refuses one, finds who is in the way, and ends partitions before their CPUs change.
//
// The kernel may refuse a partition of the kind that a lane's threads need: before Linux 6.0 there are no
// isolated ones, and of CPUs of isolcpus= some kernels make only isolated ones. Then the lane gets the next
// best:
//
//	         taken
//	wanted ----------> the wanted kind
//	 |  |
//	 |  | refused         taken
//	 |  +-------> other ---------> the other kind: nobody else has the CPUs
//	 |              |
//	 |              | refused
//	 |              v
//	 +----------> member: a plain cpuset
//	refused:
//	not exclusive
package partition

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
)

// NotExclusive reports whether the text of a partition's file says that it is invalid because another cgroup
// has some of its CPUs. These are the kernel's words (perr_strings in kernel/cgroup/cpuset.c).
func NotExclusive(text string) bool { return strings.Contains(text, "not exclusive") }

// BootIsolated reports whether that text says that it is invalid because it has CPUs of isolcpus=.
func BootIsolated(text string) bool { return strings.Contains(text, "housekeeping setup") }

// NextBest makes the next best of a partition that the kernel has refused. It returns the resulting kind, and
// what else the kernel has refused.
func NextBest(ctx context.Context, j *journal.Journal, first journal.Refused) (kind string,
	more []journal.Refused, err error) {
	var found *journal.ReadBackError
	if !errors.As(first.Err, &found) || !NotExclusive(found.Reads) { // else the other kind fails too
		other := first.Step
		other.After = map[string]string{knob.Isolated: knob.Balanced, knob.Balanced: knob.Isolated}[other.After]
		if more, err = j.Apply(ctx, []journal.Step{other}); len(more) == 0 {
			return other.After, nil, err
		}
	}
	member := first.Step // it may still be of its earlier kind
	member.After, member.Optional = knob.Member, false
	_, merr := j.Apply(ctx, []journal.Step{member})
	return knob.Member, more, errors.Join(err, merr)
}

// Demotions returns the steps that turn partitions whose CPUs will change into plain cpusets. Two partitions
// that swap places would be invalid in between, and the kernel does not undo all effects of that. Demotions
// also takes from cgroups above lanes the exclusive CPUs that they no longer hand down: while a cgroup has
// such CPUs, no cgroup beside it can get its cpuset.mems set (EINVAL: validate_change,
// kernel/cgroup/cpuset.c).
func Demotions(root fs.FS, done []journal.Step, parts []knob.Partition, want []journal.Step) []journal.Step {
	values := map[string]string{}
	for _, s := range done {
		values[s.Target] = s.After
	}
	var steps, narrow []journal.Step
	for _, s := range want {
		before, berr := cpuset.Parse(values[s.Target])
		after, aerr := cpuset.Parse(s.After)
		own := slices.ContainsFunc(parts, func(p knob.Partition) bool { return p.Dir == path.Dir(s.Target) })
		if own || path.Base(s.Target) != knob.ExclusiveFile || errors.Join(berr, aerr) != nil ||
			before.IsSubsetOf(after) {
			continue
		}
		s.After = before.Intersection(after).String()
		narrow = append(narrow, s)
		for _, p := range done { // a lane below it that goes elsewhere must cease to be a partition first
			_, err := fs.Stat(root, p.Target[1:])
			if err == nil && knob.IsPartition(p) && strings.HasPrefix(p.Target, path.Dir(s.Target)+"/") &&
				!slices.ContainsFunc(want, func(w journal.Step) bool { return w.Target == p.Target }) {
				steps = append(steps, journal.Step{Kind: p.Kind, Target: p.Target, After: knob.Member})
			}
		}
	}
	for _, part := range parts {
		_, is := values[part.File()]
		if is && slices.ContainsFunc(want, func(s journal.Step) bool {
			value, had := values[s.Target]
			return had && value != s.After && knob.GivesCPUs(s) && path.Dir(s.Target) == part.Dir
		}) {
			steps = append(steps, journal.Step{Kind: change.KindFile, Target: part.File(), After: knob.Member})
		}
	}
	return append(steps, narrow...)
}

// Overlap is a cgroup beside a lane's whose cpuset.cpus has CPUs of the lane, as LXC's may.
type Overlap struct {
	file         string
	cpus, others cpuset.Set // all its CPUs, and those that are not the lane's
}

// String says how to end the overlap.
func (o Overlap) String() string {
	if o.others.IsEmpty() {
		return o.file + " is " + o.cpus.String() + ": give it other CPUs"
	}
	return o.file + " is " + o.cpus.String() + ": write " + o.others.String() + " there"
}

// Overlapping returns the first cgroup beside a partition that has some of its CPUs. partition is the
// partition's file. The result is nil if there is none, or if that cannot be read.
func Overlapping(root fs.FS, partition string) *Overlap {
	dir := path.Dir(partition)
	lane, ok := readCPUs(root, dir)
	if !ok {
		return nil
	}
	files, _ := fs.Glob(root, path.Dir(dir)[1:]+"/*/cpuset.cpus") // an error only of a bad pattern
	for _, file := range files {
		cpus, ok := readCPUs(root, "/"+path.Dir(file))
		if ok && "/"+path.Dir(file) != dir && cpus.Intersects(lane) {
			return &Overlap{"/" + file, cpus, cpus.Difference(lane)}
		}
	}
	return nil
}

// readCPUs reads the cpuset.cpus of a cgroup. ok is false if it cannot be read.
func readCPUs(root fs.FS, dir string) (cpus cpuset.Set, ok bool) {
	text, err := fs.ReadFile(root, path.Join(dir, "cpuset.cpus")[1:])
	if err != nil {
		return cpus, false
	}
	cpus, err = cpuset.Parse(strings.TrimSpace(string(text)))
	return cpus, err == nil
}
