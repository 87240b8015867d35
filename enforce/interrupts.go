package enforce

import (
	"context"
	"slices"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/knob"
)

// adoptInterrupts records interrupts that came while lanes are in force, for example when a driver is loaded
// again, so that they get all CPUs back when the last lane goes. The kernel gives such interrupts the CPUs
// that the lanes leave in default_smp_affinity. If no lane is in force, adoptInterrupts notes in a which
// interrupts there are. It returns the host as it would be without lanes, with the new interrupts.
func (l *Lanes) adoptInterrupts(ctx context.Context, a *Applied) (knob.View, error) {
	v, err := l.View()
	if err != nil {
		return v, err
	}
	forNew, is := l.newInterruptsStep()
	if !is {
		a.Interrupts, a.NewInterrupts = []int{}, nil
		for _, irq := range v.Host.Interrupts {
			a.Interrupts = append(a.Interrupts, irq.IRQ)
		}
		return v, nil
	}
	if a.Interrupts == nil { // lanes of a version that did not note interrupts
		return v, nil
	}
	// Forget interrupts that have gone: their numbers may be used again.
	a.Interrupts = slices.DeleteFunc(slices.Clone(a.Interrupts), func(irq int) bool {
		return !slices.ContainsFunc(v.Host.Interrupts, func(is host.Interrupt) bool { return is.IRQ == irq })
	})
	if !slices.Contains(a.NewInterrupts, forNew.After) {
		a.NewInterrupts = append(slices.Clone(a.NewInterrupts), forNew.After)
	}
	later, err := knob.CameLater(v, forNew.Before, a.NewInterrupts, a.Interrupts)
	for _, s := range later {
		if l.ops[s.Kind].Write(ctx, s, s.After) != nil {
			continue // the kernel does not let it move, so releasing the lanes need not try
		}
		if err = l.journal.Adopt(s); err != nil {
			return v, err
		}
		l.hostBefore = nil
	}
	if err != nil || l.hostBefore != nil {
		return v, err
	}
	return l.View()
}

// newInterruptsStep returns the step that has set the CPUs of new interrupts, if lanes are in force.
func (l *Lanes) newInterruptsStep() (s journal.Step, is bool) {
	done := l.journal.Pending()
	at := slices.IndexFunc(done, knob.ForNewInterrupts)
	if at < 0 {
		return s, false
	}
	return done[at], true
}

// masksBefore returns the masks for new interrupts without the one in force, which is in the journal.
func (l *Lanes) masksBefore(masks []string) []string {
	forNew, _ := l.newInterruptsStep()
	return slices.DeleteFunc(slices.Clone(masks), func(m string) bool { return m == forNew.After })
}
