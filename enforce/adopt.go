package enforce

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/knob"
)

// Adopted is what Adopt did about one thing.
type Adopted struct {
	Name    string  `json:"name"`
	Subject Subject `json:"subject,omitempty"` // of what is set or kept
	IRQ     *int    `json:"irq,omitempty"`     // the number, of an interrupt
	Kind    string  `json:"kind"`              // Set, Removed, Kept or Unknown
	From    string  `json:"from,omitempty"`
	To      string  `json:"to,omitempty"`
	Note    string  `json:"note,omitempty"` // why it is kept, or what is not known
}

// What Adopt does.
const (
	Set     = "set"     // to the kernel's default
	Removed = "removed" // a cgroup
	Kept    = "kept"    // the kernel did not take the default
	Unknown = "unknown" // only the administrator knows what it was before
)

// Adopt takes over lanes that nobody has a record of: it gives what lanes change the kernel's defaults
// (knob.Defaults), and removes their cgroups, moving their processes to the cgroup above. A setting whose
// value only the machine's administrator can know stays, with a note. The cgroups go last: an Adopt that was
// cut off can be called again. It refuses while lanes are in force.
func (l *Lanes) Adopt(ctx context.Context) ([]Adopted, error) {
	groups, err := l.Unrecorded()
	if err != nil || len(groups) == 0 {
		return nil, err
	}
	if len(l.Placement.Lanes) > 0 || l.Settings() > 0 {
		return nil, errors.New("there are lanes in force beside those without a record: isolane release --all, " +
			"then isolane recover --adopt")
	}
	u := &knob.Unrecorded{Root: l.root}
	if u.Host, err = host.Read(l.root); err != nil {
		return nil, err
	}
	if u.Lanes, err = knob.LanesOf(l.root, groups); err != nil {
		return nil, err
	}
	a := adoption{Lanes: l}
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
		a.did = append(a.did, Adopted{Name: n.Name, Kind: Unknown, Note: n.Note})
	}
	return a.did, nil
}

// adoption is Adopt at work.
type adoption struct {
	*Lanes
	did []Adopted
}

// set does a step for good and notes it. What the kernel refuses is noted too.
func (a *adoption) set(ctx context.Context, s journal.Step) error {
	before, err := a.journal.Set(ctx, s)
	did := Adopted{Name: a.ops.name(s), Kind: Set, From: firstLine(before), To: s.After}
	did.Subject, did.IRQ = subject(s)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && did.From == did.To: // it has ended, or is so already
		return ctx.Err()
	case err != nil && ctx.Err() == nil:
		did.Kind, did.To, did.Note = Kept, "", err.Error()
	case err == nil && s.Kind == change.KindCgroup:
		did = Adopted{Name: did.Name, Kind: Removed}
	}
	if err == nil || ctx.Err() == nil {
		a.did = append(a.did, did)
	}
	return ctx.Err()
}

// remove takes the cgroups away, also those that keep the scopes of attached workloads.
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

// removeGroup removes a cgroup and those of Isolane's in it, the deepest first.
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
