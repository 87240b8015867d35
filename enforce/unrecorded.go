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

// NoRecordError says that there are cgroups of Isolane's that are in no journal, because somebody removed
// the directory of the journals. What is changed for them has no value before.
type NoRecordError struct{ Groups []string }

func (n *NoRecordError) Error() string {
	return fmt.Sprintf("cgroups of isolane without a record in %s: %s: somebody has removed it, or made them "+
		"elsewhere: what is changed on this host would be taken for what was there before", journal.Dir,
		strings.Join(n.Groups, ", "))
}

// Recorded is a *NoRecordError where there are such cgroups.
func (l *Lanes) Recorded() error {
	groups, err := l.Unrecorded()
	if err == nil && len(groups) > 0 {
		err = &NoRecordError{groups}
	}
	return err
}

// Unrecorded returns the cgroups of Isolane's that are in no journal: Adopt removes them.
func (l *Lanes) Unrecorded() ([]string, error) {
	if l.dir == "" { // which are recorded is not to be seen
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
	// A group is recorded before it is made: what is read now has all that were found.
	done, err := l.pending()
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

// None stands for a host without lanes in force, where the user may not see them.
func None(root fs.FS, d Drivers) *Lanes {
	return &Lanes{root: root, ops: d.Ops, paths: d.Paths, journal: journal.None(d.Ops)}
}

// pending are the steps of all journals.
func (l *Lanes) pending() ([]journal.Step, error) {
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
