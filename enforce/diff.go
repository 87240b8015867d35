package enforce

import (
	"context"
	"errors"
	"reflect"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/unit"
)

// Difference is what putting a placement in force would change.
type Difference struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"` // Difference
	Lanes      []LaneChange `json:"lanes"`
	Settings   []Setting    `json:"settings"` // in the order of the changes
	Units      []unit.CPUs  `json:"units"`    // units of systemd that ask for CPUs of the lanes
	// Unread are files that this user may not read, so it is unknown whether they would change.
	Unread []string `json:"unread"`
}

// LaneChange is a lane that would be added, moved, removed, or changed where it is.
type LaneChange struct {
	Name   string `json:"name"`
	Change string `json:"change"` // added, moved, removed or changed
	From   string `json:"from,omitempty"`
	To     string `json:"to,omitempty"`
}

// Values of LaneChange.Change.
const (
	laneAdded   = "added"
	laneMoved   = "moved"
	laneRemoved = "removed"
	laneChanged = "changed" // without moving
)

// Setting is a value of the host that would change.
type Setting struct {
	Name    string `json:"name"`    // a file, or which setting of which thread
	From    string `json:"from"`    // "": there is none before
	To      string `json:"to"`      // "": there will be none
	Command string `json:"command"` // that does the same in a shell
	// MayBeRefused: the kernel may refuse it, as for interrupts that are bound to a CPU.
	MayBeRefused bool `json:"mayBeRefused,omitempty"`
}

// None reports whether nothing would change.
func (d Difference) None() bool {
	return len(d.Lanes) == 0 && len(d.Settings) == 0 && len(d.Unread) == 0
}

// Diff returns what Put of a placement would change, as far as that can be known. It changes nothing.
func (l *Lanes) Diff(ctx context.Context, p plan.Placement) (Difference, error) {
	d := Difference{APIVersion: plan.APIVersion, Kind: "Difference", Lanes: l.laneChanges(p),
		Settings: []Setting{}, Units: []unit.CPUs{}, Unread: []string{}}
	units, err := unit.AskingCPUs(l.root, p)
	if err != nil {
		return d, err
	}
	d.Units = append(d.Units, units...)
	missing, err := l.Missing(ctx, p)
	if unread, is := errors.AsType[*journal.UnreadError](err); is {
		d.Unread, err = unread.Targets, nil
	}
	if err != nil {
		return d, err
	}
	for _, s := range missing {
		if l.isRefused(s) && len(d.Lanes) == 0 { // it was tried already for these lanes
			continue
		}
		d.Settings = append(d.Settings, l.describeSetting(s))
	}
	return d, nil
}

// describeSetting describes a missing step for people.
func (l *Lanes) describeSetting(s journal.Step) Setting {
	set := Setting{Command: change.Shell(l.ops[s.Kind], s), MayBeRefused: s.Optional}
	set.Name, set.From, set.To = l.ops.describe(s)
	return set
}

func (l *Lanes) laneChanges(p plan.Placement) []LaneChange {
	changes := []LaneChange{}
	for _, next := range p.Lanes {
		was, err := l.Lane(next.Name)
		c := LaneChange{Name: next.Name, From: was.CPUs.String(), To: next.CPUs.String()}
		switch {
		case err != nil:
			c.Change = laneAdded
		case was.CPUs != next.CPUs || was.Idle != next.Idle || was.MemoryNodes != next.MemoryNodes:
			c.Change = laneMoved
		case !sameLane(was, next):
			c.Change = laneChanged
		default:
			continue
		}
		changes = append(changes, c)
	}
	for _, was := range l.Placement.Lanes {
		if _, stays := p.Lane(was.Name); !stays {
			changes = append(changes, LaneChange{Name: was.Name, Change: laneRemoved, From: was.CPUs.String()})
		}
	}
	return changes
}

// sameLane reports whether two placed lanes are equal apart from their reasons.
func sameLane(a, b plan.Lane) bool {
	a.Reasons, b.Reasons = nil, nil
	return reflect.DeepEqual(a, b)
}
