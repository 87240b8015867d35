package lanes

import (
	"context"
	"errors"

	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/enforce/adopt"
	"isolane.dev/isolane/enforce/attached"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/plan"
)

// Recovered is the result of Recover.
type Recovered struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`     // Recovered
	Released   []string          `json:"released"` // lanes that were made for a process, which has ended
	Undone     []string          `json:"undone"`   // sessions that were cut off; what outlived a boot
	PutBack    []enforce.Drift   `json:"putBack"`  // what was not as the lanes in force want it
	Left       []Left            `json:"left"`
	Waiting    []enforce.Waiting `json:"waiting"`
	Adopted    []enforce.Adopted `json:"adopted"`
	Unrecorded []string          `json:"unrecorded"` // cgroups that adopting would remove
}

// Recover finishes what a crash has left half done: it restores the lanes that were in force, and undoes all
// else. It waits up to half a minute for other processes, such as a killed one that has not quite ended. With
// unrecorded it removes lanes without a record, and gives the kernel's defaults to what lanes change. If it
// leaves such lanes it returns an *enforce.NoRecordError.
func Recover(ctx context.Context, o Options, unrecorded bool) (Recovered, error) {
	r := Recovered{APIVersion: plan.APIVersion, Kind: "Recovered", Released: []string{}, Undone: []string{},
		PutBack: []enforce.Drift{}, Left: []Left{}, Waiting: []enforce.Waiting{},
		Adopted: []enforce.Adopted{}, Unrecorded: []string{}}
	if err := o.await(ctx); err != nil {
		return r, err
	}
	ctx = context.WithoutCancel(ctx) // an undo that has begun is finished, even if the user interrupts it
	seen, err := Look(o)
	if err != nil {
		return r, err
	}
	ours, err := seen.Journals()
	if err != nil {
		return r, err
	}
	// Sessions are undone first: they came after the lane beside which they ran.
	found, waiting, err := journal.Recover(ctx, seen.o.Dir, seen.o.Ops, ours...)
	r.Undone = append(r.Undone, found...)
	if err != nil {
		return r, err
	}
	half, left, err := endHalfAttached(ctx, o)
	r.Undone = append(r.Undone, half...)
	if err != nil {
		return r, err
	}
	l, expired, err := OpenPatiently(ctx, o)
	r.Released = append(r.Released, expired...)
	if err != nil {
		return r, err
	}
	l.Left = append(l.Left, left...)
	drift, err := l.Recover(ctx, func(at attached.Workload) error {
		_, aerr := l.attach(ctx, at)
		return aerr
	})
	r.PutBack, r.Left, r.Waiting = append(r.PutBack, drift...), l.left(), l.Waiting(waiting...)
	for _, p := range l.o.Paths { // under the lock, so no new lane has a bridge of the same name
		if last, is := p.(netpath.Lasting); is && err == nil && l.o.root == host.Live() {
			var removed []string
			removed, err = last.RemoveLeftovers(ctx)
			r.Undone = append(r.Undone, removed...)
		}
	}
	if err = errors.Join(err, l.Close()); err != nil {
		return r, err
	}
	return r, r.adopt(ctx, o, unrecorded)
}

// endHalfAttached undoes attaches that were cut off. That has to come before lanes are released, because such
// workloads may be in their cgroups.
func endHalfAttached(ctx context.Context, o Options) ([]string, []*journal.LeftAlone, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	l, err := open(ctx, o.patient().Complete())
	if err != nil {
		return nil, nil, err
	}
	half, err := l.EndHalfAttached(ctx)
	return half, l.Left, errors.Join(err, l.Close())
}

// adopt comes last, because journals that were cut off know cgroups too.
func (r *Recovered) adopt(ctx context.Context, o Options, really bool) error {
	l, _, err := OpenPatiently(ctx, o)
	if err != nil {
		return err
	}
	defer l.Close()
	if really {
		var did []enforce.Adopted
		did, err = adopt.Lanes(ctx, l.Lanes, o.root)
		r.Adopted = append(r.Adopted, did...)
	}
	if err == nil {
		var alone []string
		alone, err = l.Unrecorded()
		if r.Unrecorded = append(r.Unrecorded, alone...); err == nil && len(alone) > 0 {
			err = &enforce.NoRecordError{Groups: alone}
		}
	}
	return err
}
