package attached

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/journal"
)

// Home undoes the steps that brought a workload into its lane, and returns those that it left alone.
//
// At every moment a cpuset of cgroup v1 must contain the cpusets below it. So Home first undoes the steps of
// cpusets that had all of the lane's CPUs before, from the top. It then gives the others, from the top, what
// they had before in addition to the lane's CPUs, and at last, from the bottom, only what they had before.
func Home(ctx context.Context, root fs.FS, j *journal.Journal) ([]*journal.LeftAlone, error) {
	if err := recordStarted(root, j); err != nil {
		return nil, err
	}
	left, err := j.UndoWhere(ctx, func(s journal.Step) bool { return !addsToCpuset(s) })
	err = errors.Join(err, widen(ctx, root, j))
	more, uerr := j.UndoWhere(ctx, addsToCpuset)
	// A thread gets its affinity back with its cpuset, whatever the affinity was in the lane.
	left = slices.DeleteFunc(left, func(a *journal.LeftAlone) bool { return a.Step.Kind == change.KindTask })
	return append(left, more...), errors.Join(err, uerr)
}

// addsToCpuset reports whether a step gave a cpuset CPUs or memory nodes that it did not have before.
func addsToCpuset(s journal.Step) bool {
	has, err := cpuset.Parse(s.After)
	return err == nil && (s.Kind == change.KindCpuset || path.Base(s.Target) == "cpuset.mems") &&
		!has.IsSubsetOf(cpusetBefore(s))
}

// cpusetBefore returns what a cpuset had before a step.
func cpusetBefore(s journal.Step) cpuset.Set {
	list, _, _ := strings.Cut(s.Before, "\n") // drops the values of single threads
	before, _ := cpuset.Parse(list)           // empty if it is no cpulist
	return before
}

// widen gives cpusets what they had before, in addition to what they have for the lane. It leaves alone those
// that somebody else has changed since.
func widen(ctx context.Context, root fs.FS, j *journal.Journal) error {
	var both []journal.Step
	for _, s := range j.Pending() {
		if !addsToCpuset(s) {
			continue
		}
		now, err := cpuset.Read(root, s.Target[1:])
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err == nil && (now.String() == s.After || now.String() == s.Replaced) {
			s.After = now.Union(cpusetBefore(s)).String()
			both = append(both, s)
		}
	}
	slices.SortStableFunc(both, func(a, b journal.Step) int { return cmp.Compare(len(a.Target), len(b.Target)) })
	_, err := j.Apply(ctx, both)
	return err
}

// recordStarted records processes that started in the lane: they leave to where their parents came from.
func recordStarted(root fs.FS, j *journal.Journal) error {
	moved, home, steps := map[string]bool{}, "", j.Pending()
	for _, s := range steps {
		if s.Kind == change.KindMember {
			moved[s.Target] = true
			home, _, _ = strings.Cut(s.Before, "\n") // drops the values of single threads
		}
	}
	if home == "" {
		return nil
	}
	for _, s := range steps {
		if s.Kind != change.KindCgroup || change.IsKeeperGroup(s.Target) {
			continue
		}
		pids, err := cgroup.Processes(root, s.Target)
		if err != nil {
			return err
		}
		for _, pid := range pids {
			start, err := task.StartTime(root, pid)
			if target := change.TaskTarget(pid, start); err == nil && !moved[target] {
				if err = j.Adopt(journal.Step{Kind: change.KindMember, Target: target, Before: home,
					After: s.Target}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
