package sriov

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/quantity"
)

// kindLimit makes the card limit what a function in a lane sends, in Mbit per second; "" is no limit. The
// lane could bypass a queue of its device. The target is as in kindFunction. Drivers may refuse any limit, or
// those below some value or above the speed of the link.
const kindLimit = "vf-rate"

// limitStep returns the step that makes the card limit a function to a rate, in whole Mbit.
func limitStep(target string, r quantity.BitRate) journal.Step {
	return journal.Step{Kind: kindLimit, Target: target, Optional: true,
		After: fmt.Sprint(uint64((r + mbit - 1) / mbit))}
}

type limitOp struct{}

func (limitOp) Check(s journal.Step) error {
	_, err := parseTarget(s.Target)
	for _, value := range []string{s.Before, s.After} {
		if err == nil {
			_, err = parseLimit(value)
		}
	}
	return err
}

func parseLimit(value string) (uint32, error) {
	if value == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(value, 10, 32)
	if err != nil {
		err = fmt.Errorf("%q: expected a number of Mbit a second", value)
	}
	return uint32(n), err
}

func (limitOp) Read(_ context.Context, s journal.Step) (string, error) {
	a, err := find(s.Target)
	if err != nil {
		return "", err
	}
	a.h.Close()
	if a.Settings.Rate == 0 {
		return "", nil
	}
	return fmt.Sprint(a.Settings.Rate), nil
}

func (limitOp) Write(_ context.Context, s journal.Step, value string) error {
	a, err := find(s.Target)
	if err != nil {
		return err
	}
	defer a.h.Close()
	want := a.Settings
	if want.Rate, err = parseLimit(value); err != nil {
		return err
	}
	return a.set(want, true)
}

// MadeAnew makes undo the old limit before a new one is set: so if that is refused, no limit below the lane's
// rate is left.
func (limitOp) MadeAnew() {}

// Name says which setting it is.
func (limitOp) Name(s journal.Step) string { return "max_tx_rate of " + functionOp{}.Name(s) }

// Shell returns a command of ip-link(8).
func (limitOp) Shell(s journal.Step) string {
	t, err := parseTarget(s.Target)
	if err != nil {
		return ""
	}
	c, _ := cardOf(t.card)
	return fmt.Sprintf("ip link set %s vf %d max_tx_rate %s", cmp.Or(c.device, t.card), t.number,
		cmp.Or(s.After, "0"))
}
