package lanes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/quantity"
)

// Conditions returns the conditions under which a measurement beside a lane in force is valid.
func (l *Lanes) Conditions(name string) (lane.Conditions, error) {
	own, err := l.Lane(name)
	if err != nil {
		return lane.Conditions{}, err
	}
	v, err := l.View()
	if err != nil {
		return lane.Conditions{}, err
	}
	k := v.Host.Kernel
	outside := []any{l.Placement.Housekeeping}
	for _, placed := range l.Placement.Lanes {
		if placed.Name != name {
			outside = append(outside, withoutReasons(placed))
		}
	}
	return lane.Conditions{Kernel: k.Release + " " + k.Version + " " + k.Cmdline,
		Lane:    digest(withoutReasons(own)),
		Outside: digest(outside)}, nil
}

// withoutReasons removes the reasons: after another plan they say the same in other words.
func withoutReasons(l plan.Lane) plan.Lane {
	l.Reasons = nil
	return l
}

func digest(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // placements can always be written as JSON
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// Proved records what measurements beside a lane have found. Status shows it until the conditions change.
func (l *Lanes) Proved(name string, p lane.Proof) error {
	if _, err := l.Lane(name); err != nil {
		return err
	}
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	return journal.WriteState(l.o.Dir, proofFile(name), append(text, '\n'))
}

func proofFile(name string) string { return "proof-" + name + ".json" }

// forget removes the proofs of lanes that are released.
func (l *Lanes) forget(names []string) error {
	var err error
	for _, name := range names {
		err = errors.Join(err, journal.RemoveState(l.o.Dir, proofFile(name)))
	}
	return err
}

// Status returns what is in force, and what was proved of it. It changes nothing.
func (l *Lanes) Status(ctx context.Context) (enforce.Status, error) {
	s, err := l.Lanes.Status(ctx)
	if err != nil {
		return s, err
	}
	for i := range s.Lanes {
		if err = l.judge(&s.Lanes[i], len(s.Drift)); err != nil {
			return s, err
		}
	}
	return s, nil
}

// judge gives a lane the verdicts of its last proof, if they are valid for what is in force.
func (l *Lanes) judge(s *enforce.LaneStatus, drift int) error {
	text, err := journal.ReadState(l.o.Dir, proofFile(s.Name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	s.Proof = &lane.Proof{}
	if err = json.Unmarshal(text, s.Proof); err != nil {
		return fmt.Errorf("%s: %w: remove it, and prove the lane again", filepath.Join(l.o.Dir, proofFile(s.Name)),
			err)
	}
	now, err := l.Conditions(s.Name)
	if err != nil {
		return err
	}
	changed := s.Proof.Conditions.Changed(now)
	if changed == "" && drift > 0 {
		changed = quantity.Count(drift, "setting") + " of the host changed by somebody else"
	}
	for i, o := range s.Objectives {
		for _, j := range s.Proof.Judgements {
			switch {
			case j.Bound != o.Bound:
			case changed == "":
				s.Objectives[i] = j
			default:
				s.Objectives[i].Reason = fmt.Sprintf("%s when it was measured, but since then: %s", j.Verdict, changed)
			}
		}
	}
	return nil
}
