package enforce

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/plan"
)

// Waiting are settings that could not be changed, because the program that makes them did not answer or their
// CPUs are offline. They stay recorded, and each later change of the lanes tries them again.
type Waiting struct {
	Lanes    []string `json:"lanes"` // whose settings they are, in force now or until the last change
	Settings []string `json:"settings"`
	Reason   string   `json:"reason"` // with the remedy
}

// String says what waits and why, in one line.
func (w Waiting) String() string {
	who := "of lanes released before"
	if len(w.Lanes) > 0 {
		who = "of lane " + strings.Join(w.Lanes, ", ")
	}
	return fmt.Sprintf("waits: %s, %s: %s; isolane recover, or the next change of lanes, tries again",
		strings.Join(w.Settings, ", "), who, w.Reason)
}

// Waiting returns what waits after the last change of the lanes, and more, grouped by reason.
func (l *Lanes) Waiting(more ...journal.Waiting) []Waiting {
	all := []Waiting{}
	for _, w := range slices.Concat(l.journal.Waiting(), more) {
		reason := w.Err.Error()
		i := slices.IndexFunc(all, func(a Waiting) bool { return a.Reason == reason })
		if i < 0 {
			i = len(all)
			all = append(all, Waiting{Lanes: []string{}, Reason: reason})
		}
		name, _, _ := l.ops.describe(w.Step)
		all[i].Settings = append(all[i].Settings, name)
		for n, lane := range slices.Concat(l.Placement.Lanes, l.released) {
			inForce := n < len(l.Placement.Lanes)
			if !slices.Contains(all[i].Lanes, lane.Name) &&
				(l.isOfPath(lane, w.Step) || inForce && isOfFrequencyPolicy(lane, w.Step)) {
				all[i].Lanes = append(all[i].Lanes, lane.Name)
			}
		}
	}
	return all
}

// isOfFrequencyPolicy reports whether a step is of the frequency policy that is named after a CPU of the
// lane, the policy's first CPU. While that CPU is offline no step for the policy is wanted, so this finds its
// lane.
func isOfFrequencyPolicy(lane plan.Lane, s journal.Step) bool {
	var first int
	_, err := fmt.Sscanf(s.Target, "/sys/devices/system/cpu/cpufreq/policy%d/", &first)
	return err == nil && lane.Owned().Contains(first)
}

// isOfPath reports whether a step belongs to the path of a lane.
func (l *Lanes) isOfPath(of plan.Lane, s journal.Step) bool {
	p := netpath.Find(l.paths, of.Spec.Network)
	if p == nil {
		return false
	}
	steps, err := p.Steps([]netpath.Lane{l.On(of)})
	return err == nil && slices.ContainsFunc(steps, s.Same)
}

// isWanted reports whether the lanes in force want a step.
func (l *Lanes) isWanted(s journal.Step) bool {
	w, err := l.Wanted()
	return err == nil && slices.ContainsFunc(w.steps, func(o journal.Step) bool {
		return o.Same(s) && o.After == s.After
	})
}

// Unfinished returns the steps that no lane in force wants any more: they waited, or a change was cut off.
func (w *Wanted) Unfinished() []journal.Step {
	return slices.DeleteFunc(w.lanes.journal.Pending(), func(s journal.Step) bool {
		return slices.ContainsFunc(w.steps, s.Same)
	})
}

// TakeBack undoes steps. A step that waits is no error.
func (l *Lanes) TakeBack(ctx context.Context, steps []journal.Step) error {
	_, err := l.journal.UndoWhere(ctx, func(s journal.Step) bool { return slices.Contains(steps, s) })
	return err
}
