package enforce

import (
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/knob"
)

// NoRecordError says that cgroups of Isolane are in no journal, because somebody removed the directory of the
// journals. The values from before these lanes are lost.
type NoRecordError struct{ Groups []string }

func (n *NoRecordError) Error() string {
	return fmt.Sprintf("cgroups of isolane without a record in %s: %s: somebody has removed it, or made them "+
		"elsewhere: what is changed on this host would be taken for what was there before", journal.Dir,
		strings.Join(n.Groups, ", "))
}

// Hint says what to do about them.
func (n *NoRecordError) Hint() string {
	return "isolane recover --adopt gives what lanes change the kernel's defaults, and removes the cgroups"
}

// Recorded returns a *NoRecordError if there are such cgroups.
func (l *Lanes) Recorded() error {
	groups, err := l.Unrecorded()
	if err == nil && len(groups) > 0 {
		err = &NoRecordError{groups}
	}
	return err
}

// Unrecorded returns the cgroups of Isolane that are in no journal. adopt.Lanes removes them.
func (l *Lanes) Unrecorded() ([]string, error) {
	if l.dir == "" { // without the journals it is unknown which are recorded
		return nil, nil
	}
	tops, err := knob.Hierarchies(l.root)
	if err != nil {
		return nil, err
	}
	var groups []string
	for _, top := range tops {
		found, gerr := fs.Glob(l.root, path.Join(top, change.GroupPrefix+"*")[1:])
		if gerr != nil {
			return nil, gerr
		}
		groups = append(groups, found...)
	}
	if len(groups) == 0 {
		return nil, nil
	}
	// A cgroup is recorded before it is made, so the journals read now have all cgroups found above.
	done, err := l.pendingSteps()
	if err != nil {
		return nil, err
	}
	var alone []string
	for _, name := range groups {
		dir := "/" + name
		if slices.ContainsFunc(done, func(s journal.Step) bool {
			return s.Target == dir || strings.HasPrefix(s.Target, dir+"/") || s.After == dir
		}) {
			continue
		}
		if info, serr := fs.Stat(l.root, name); serr == nil && info.IsDir() { // not removed meanwhile
			alone = append(alone, dir)
		}
	}
	return alone, nil
}

// None returns Lanes of a host as if none were in force, for users who may not see them.
func None(root fs.FS, d Drivers) *Lanes {
	return &Lanes{root: root, ops: d.Ops, paths: d.Paths, journal: journal.None(d.Ops)}
}

// pendingSteps returns the steps of all journals.
func (l *Lanes) pendingSteps() ([]journal.Step, error) {
	files, err := filepath.Glob(filepath.Join(l.dir, "*.journal"))
	if err != nil {
		return nil, err
	}
	var steps []journal.Step
	for _, file := range files {
		j, jerr := journal.Look(l.dir, strings.TrimSuffix(filepath.Base(file), ".journal"), l.ops)
		if jerr != nil {
			return nil, jerr
		}
		steps = append(steps, j.Pending()...)
	}
	return steps, nil
}
