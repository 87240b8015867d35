package simulate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/solver"
)

// tellReferee is called with the lock.
func (h *Host) tellReferee() {
	if h.referee != nil {
		h.referee.Placed(h.Name, h.like.Machine, h.placed)
	}
}

// Judge has a referee judge what happens to the host from now on.
func (h *Host) Judge(by *Referee) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.referee = by
	h.tellReferee()
}

// Lanes returns the names of the lanes that the host has for its hub.
func (h *Host) Lanes() (names []string) {
	h.lock.Lock()
	defer h.lock.Unlock()
	for _, l := range h.placed.Lanes {
		if !strings.HasPrefix(l.Name, ownLane) {
			names = append(names, l.Name)
		}
	}
	return names
}

// ownLane begins the names of lanes that the hub has not asked for.
const ownLane = "own-"

// ChangeOwn has people of the host put a lane in force that the hub has not asked for, or release one (0
// CPUs).
func (h *Host) ChangeOwn(ctx context.Context, cpus int) {
	select {
	case <-ctx.Done():
	case h.own <- cpus:
	}
}

func (h *Host) changeOwn(ctx context.Context, cpus int) error {
	h.lock.Lock()
	if cpus > 0 {
		name := fmt.Sprint(ownLane, h.told)
		p, refusal := solver.Solve(h.like.Machine, h.placed, []lane.Lane{{Metadata: lane.Metadata{Name: name},
			Spec: lane.Spec{CPUs: lane.CPUs{Count: cpus}}}})
		if refusal == nil {
			h.placed = p
			h.tellReferee()
		}
	} else if i := slices.IndexFunc(h.placed.Lanes, func(l plan.Lane) bool {
		return strings.HasPrefix(l.Name, ownLane)
	}); i >= 0 {
		h.placed.Lanes = slices.Delete(slices.Clone(h.placed.Lanes), i, i+1)
	}
	h.lock.Unlock()
	return h.say(ctx)
}
