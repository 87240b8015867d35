package plan

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"isolane.dev/isolane/lane"
)

// Refusal says why a lane does not fit. It is an error, and a JSON document of its own.
type Refusal struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Lane       string   `json:"lane"`
	Blocking   []string `json:"blocking"`           // the fewest constraints that cannot hold together
	Cheapest   *Change  `json:"cheapest,omitempty"` // nil: none is known
	Searched   bool     `json:"searched,omitempty"` // a change was searched for; also if none was found
}

// Change is what would admit all lanes of the request: another declaration of one of them, or moves of placed
// lanes. The planner has tried it.
type Change struct {
	Lane   string `json:"lane,omitempty"` // whose declaration changes
	Change string `json:"change,omitempty"`
	Moves  []Move `json:"moves,omitempty"`
	Price  Price  `json:"price,omitzero"`
}

// Price orders changes, also those of several hosts.
type Price struct {
	// Kind is the change's position in the order of docs/placement.md, from 1. 0 is unknown, and costs most.
	Kind int `json:"kind"`
	// Left is how many CPUs or bytes the lane keeps. Within a kind, more left costs less.
	Left uint64 `json:"left,omitempty"`
}

// Compare is negative if p costs less.
func (p Price) Compare(o Price) int {
	if (p.Kind == 0) != (o.Kind == 0) {
		return o.Kind - p.Kind
	}
	return cmp.Or(p.Kind-o.Kind, cmp.Compare(o.Left, p.Left))
}

// Error returns the refusal in one line.
func (r *Refusal) Error() string {
	text := fmt.Sprintf("lane %s refused: %s", r.Lane, strings.Join(r.Blocking, "; "))
	switch c := r.Cheapest; {
	case c == nil && !r.Searched:
	case c == nil:
		text += "; no change of one lane is known that would help"
	case len(c.Moves) > 0:
		var moves []string
		for _, m := range c.Moves {
			moves = append(moves, fmt.Sprintf("%s from CPUs %s to %s", m.Lane, m.From, m.To))
		}
		text += "; cheapest change: move " + strings.Join(moves, ", then ") + " (--repack)"
	case c.Lane != "" && c.Lane != r.Lane:
		text += fmt.Sprintf("; cheapest change: lane %s: %s", c.Lane, c.Change)
	default:
		text += "; cheapest change: " + c.Change
	}
	return text
}

// At adds the file and line of the refused lane to err, if they are known.
func At(err error, want []lane.Lane) error {
	refusal, is := errors.AsType[*Refusal](err)
	for _, l := range want {
		if is && l.Metadata.Name == refusal.Lane && l.At != "" {
			return fmt.Errorf("%s: %w", l.At, err)
		}
	}
	return err
}
