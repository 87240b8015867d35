package enforce

import (
	"context"
	"slices"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/knob"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/plan"
)

func hasFunctions(p plan.Placement) bool {
	return slices.ContainsFunc(p.Lanes, func(l plan.Lane) bool {
		return netpath.FunctionsOf(host.Host{}, l).Card != ""
	})
}

// withInterrupts reads the host again once virtual functions are in their lanes, and moves their interrupts
// to the lanes' CPUs. When functions come or go, their card gets new interrupts too.
func (l *Lanes) withInterrupts(
	ctx context.Context, a *Applied,
) (v knob.View, want []journal.Step, refused []journal.Refused, err error) {
	l.hostBefore = nil
	if v, err = l.adoptInterrupts(ctx, a); err != nil {
		return v, nil, nil, err
	}
	a.fillView(&v)
	a.Placement = plan.WithDevices(v.Host, a.Placement)
	if want, err = l.wantedSteps(v, a.Placement, *a); err != nil {
		return v, nil, nil, err
	}
	refused, left, err := l.journal.Reconcile(ctx, want, false)
	l.Left = append(l.Left, left...)
	return v, want, refused, err
}
