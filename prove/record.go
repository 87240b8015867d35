package prove

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/results"
)

// ErrNotHeld says that a lane was measured, and bounds of its objective are missed or unproven.
var ErrNotHeld = errors.New("objective not held")

// Record stores what a session beside a lane in force has found, where isolane status finds it. dir is that
// of the results. It returns ErrNotHeld unless the lane's whole objective is held.
func Record(ctx context.Context, o lanes.Options, dir string, s results.Session,
	judged []lane.Judgement) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	l, _, err := lanes.OpenPatiently(ctx, o)
	if err != nil {
		return err
	}
	err = errors.Join(l.Proved(s.Lane.Name, lane.Proof{At: s.Ended.UTC(), Scenario: s.Scenario.Name,
		Mode: s.Scenario.Mode, Results: dir, Conditions: s.Lane.Conditions, Judgements: judged}), l.Close())
	broken := 0
	for _, j := range judged {
		if j.Verdict != lane.Held {
			broken++
		}
	}
	if err == nil && broken > 0 {
		err = fmt.Errorf("lane %s: %w: %d of %s", s.Lane.Name, ErrNotHeld, broken,
			quantity.Count(len(judged), "bound"))
	}
	return err
}
