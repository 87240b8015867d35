package enforce

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/journal"
)

// Drift returns what is not as the lanes in force want it; not what the kernel has refused when they came.
func (l *Lanes) Drift(ctx context.Context) ([]Drift, error) {
	missing, err := l.Missing(ctx, l.Placement)
	if err != nil {
		return nil, err
	}
	found, gone := l.orphaned()
	for _, s := range missing {
		if !l.isRefused(s) && !gone(s) {
			found = append(found, l.drift(s))
		}
	}
	return found, nil
}

// orphaned are the lanes that were in the cgroup of a workload which has ended: these CPUs are everybody's.
// gone says whether a step is part of that.
func (l *Lanes) orphaned() (found []Drift, gone func(journal.Step) bool) {
	var parts []string
	for _, at := range l.Attached {
		lane, err := l.Lane(at.Lane)
		if !at.Own || err != nil || populated(l.root, at.Group) {
			continue
		}
		found = append(found, Drift{Target: "lane " + at.Lane,
			Expected: "CPUs " + lane.CPUs.String() + " for itself", Found: "everybody's",
			Note: "its workload " + at.Group + " has ended: isolane apply, or watch --repair, closes them again"})
		parts = append(parts, at.Group, change.GroupPrefix+at.Lane, filepath.Base(at.Group)+":", exclusiveFile)
	}
	return found, func(s journal.Step) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(s.Target, part) })
	}
}

func (l *Lanes) isRefused(s journal.Step) bool {
	return slices.ContainsFunc(l.Refused, func(r Refusal) bool {
		return r.Target == s.Target &&
			r.Value == s.After
	})
}

// drift describes a step that is not in force: Before is what is there now.
func (l *Lanes) drift(s journal.Step) Drift {
	d := l.ops.drift(s)
	if isPartition(s.Target) && strings.Contains(d.Found, notExclusive) {
		d.Note = l.culprit(filepath.Dir(s.Target))
	}
	return d
}

// culprit names who has CPUs of a lane's partition, and what ends that.
func (l *Lanes) culprit(dir string) string {
	file, theirs, others, err := l.overlapping(dir)
	switch {
	case err != nil || file == "":
		return ""
	case others.IsEmpty():
		return file + " is " + theirs.String() + ": give it other CPUs, then isolane apply"
	}
	return file + " is " + theirs.String() + ": write " + others.String() + " there, then isolane apply"
}
