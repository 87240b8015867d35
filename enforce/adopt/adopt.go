// Package adopt takes over lanes whose record somebody has removed.
package adopt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/knob"
)

// Lanes takes over lanes without a record. It gives the kernel's defaults to what lanes change
// (knob.Defaults), moves their processes to the cgroup above, and removes their cgroups. If only the
// administrator can know the value of a setting, Lanes leaves it and notes that. The cgroups go last, so that
// an interrupted call can be repeated. Lanes returns an error while lanes are in force.
func Lanes(ctx context.Context, l *enforce.Lanes, root fs.FS) ([]enforce.Adopted, error) {
	groups, err := l.Unrecorded()
	if err != nil || len(groups) == 0 {
		return nil, err
	}
	if len(l.Placement.Lanes) > 0 || l.Settings() > 0 {
		return nil, errors.New("there are lanes in force beside those without a record: isolane release --all, " +
			"then isolane recover --adopt")
	}
	u := &knob.Unrecorded{Root: root}
	if u.Host, err = host.Read(root); err != nil {
		return nil, err
	}
	if u.Lanes, err = knob.LanesOf(root, groups); err != nil {
		return nil, err
	}
	a := adoption{Lanes: l, root: root}
	for _, defaults := range knob.Defaults() {
		u.Steps = nil
		err = defaults(u)
		for _, s := range u.Steps {
			err = errors.Join(err, a.set(ctx, s))
		}
		if err != nil {
			return a.did, err
		}
	}
	if err = a.remove(ctx, groups); err != nil {
		return a.did, err
	}
	for _, n := range u.Unknown {
		a.did = append(a.did, enforce.Adopted{Name: n.Name, Kind: enforce.Unknown, Note: n.Note})
	}
	return a.did, nil
}

// adoption is the state of a call of Lanes.
type adoption struct {
	*enforce.Lanes
	root fs.FS // of the host
	did  []enforce.Adopted
}

// set makes a step permanent and adds the result to did.
func (a *adoption) set(ctx context.Context, s journal.Step) error {
	did, err := a.SetForGood(ctx, s)
	if did != nil {
		a.did = append(a.did, *did)
	}
	return err
}

// remove removes the cgroups, also those that keep the scopes of attached workloads.
func (a *adoption) remove(ctx context.Context, groups []string) error {
	tops, err := knob.Hierarchies(a.root)
	if err != nil {
		return err
	}
	for _, top := range tops {
		err = fs.WalkDir(a.root, top[1:], func(name string, e fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil
			case err != nil || !e.IsDir() || !change.IsKeeperGroup("/"+name):
				return err
			}
			if err = a.set(ctx, journal.Step{Kind: change.KindProcesses, Target: "/" + name}); err != nil {
				return err
			}
			if err = a.set(ctx, journal.Step{Kind: change.KindCgroup, Target: "/" + name}); err != nil {
				return err
			}
			return fs.SkipDir
		})
		if err != nil {
			return err
		}
	}
	for _, dir := range slices.Backward(groups) {
		if err = a.removeGroup(ctx, dir); err != nil {
			return err
		}
	}
	return nil
}

// removeGroup removes a cgroup and Isolane's cgroups in it, the deepest first.
func (a *adoption) removeGroup(ctx context.Context, dir string) error {
	pids, err := cgroup.Processes(a.root, dir)
	if err != nil {
		return err
	}
	inside, err := fs.Glob(a.root, path.Join(dir, change.GroupPrefix+"*")[1:])
	for _, name := range inside {
		if err = a.removeGroup(ctx, "/"+name); err != nil {
			return err
		}
	}
	done := len(a.did)
	if err = errors.Join(err, a.set(ctx, journal.Step{Kind: change.KindCgroup, Target: dir})); err == nil &&
		len(pids) > 0 && len(a.did) > done {
		a.did[done].Note = fmt.Sprintf("its processes (%d) are in the cgroup above", len(pids))
	}
	return err
}
