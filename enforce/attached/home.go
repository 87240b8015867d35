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

// Home takes back the steps that have brought a workload into its lane, and returns what it left alone.
//
// A cpuset of cgroup v1 must hold what those below it have at every moment, also on the way home: those that
// had what the lane has get it all back, which is from the top. The others first get what they had besides
// the lane's, from the top, and then, from the bottom, only that.
func Home(ctx context.Context, root fs.FS, j *journal.Journal) ([]*journal.LeftAlone, error) {
	if err := homeward(root, j); err != nil {
		return nil, err
	}
	left, err := j.UndoWhere(ctx, func(s journal.Step) bool { return !lacked(s) })
	err = errors.Join(err, widen(ctx, root, j))
	more, uerr := j.UndoWhere(ctx, lacked)
	// A thread's affinity comes back with the cpuset, whatever it was in the lane.
	left = slices.DeleteFunc(left, func(a *journal.LeftAlone) bool { return a.Step.Kind == change.KindTask })
	return append(left, more...), errors.Join(err, uerr)
}

// lacked says whether a step is of a cpuset that did not have all that it has for the lane.
func lacked(s journal.Step) bool {
	has, err := cpuset.Parse(s.After)
	return err == nil && (s.Kind == change.KindCpuset || path.Base(s.Target) == "cpuset.mems") &&
		!has.IsSubsetOf(had(s))
}

// had is what a cpuset had before a step.
func had(s journal.Step) cpuset.Set {
	list, _, _ := strings.Cut(s.Before, "\n") // without what single threads have
	before, _ := cpuset.Parse(list)           // empty where it is none
	return before
}

// widen gives cpusets what they had besides what they have for the lane. What somebody else has changed since
// stays.
func widen(ctx context.Context, root fs.FS, j *journal.Journal) error {
	var both []journal.Step
	for _, s := range j.Pending() {
		if !lacked(s) {
			continue
		}
		now, err := cpuset.Read(root, s.Target[1:])
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err == nil && (now.String() == s.After || now.String() == s.Replaced) {
			s.After = now.Union(had(s)).String()
			both = append(both, s)
		}
	}
	slices.SortStableFunc(both, func(a, b journal.Step) int { return cmp.Compare(len(a.Target), len(b.Target)) })
	_, err := j.Apply(ctx, both)
	return err
}

// homeward has processes that were born in the lane go where those that they come from go.
func homeward(root fs.FS, j *journal.Journal) error {
	moved, home, steps := map[string]bool{}, "", j.Pending()
	for _, s := range steps {
		if s.Kind == change.KindMember {
			moved[s.Target] = true
			home, _, _ = strings.Cut(s.Before, "\n") // without what single threads have
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
