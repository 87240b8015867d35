// Package watch shows who takes time from the CPUs of lanes, and what drifts from what was put in force: a
// Reading each second.
//
// The times are those of the trace in package witness, the drift is that of the guard. A Display shows them
// as a table.
package watch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/enforce/guard"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/runtime/process"
	"isolane.dev/isolane/witness"
)

// Options say what to watch. The zero value is all lanes in force, until the context ends.
type Options struct {
	Lane   string        // to watch alone
	CPUs   cpuset.Set    // to watch, in place of lanes
	Groups []string      // with CPUs: cgroup directories whose tasks belong there
	For    time.Duration // 0: until the context ends
	Budget time.Duration // the longest single intrusion allowed; 0: any
	Repair bool          // put back what somebody else changes, unless they keep changing it
}

// Validate says which options contradict each other.
func (o Options) Validate() error {
	switch {
	case o.For < 0 || o.Budget < 0:
		return errors.New("--for and --budget: expected a positive duration")
	case !o.CPUs.IsEmpty() && o.Repair:
		return errors.New("--repair puts back what apply has set: leave out --cpus")
	case !o.CPUs.IsEmpty() && o.Lane != "":
		return errors.New("--cpus names the CPUs: leave out the lane")
	}
	return nil
}

// CPUsError says that there is nothing to watch, or no CPU left to watch it from.
type CPUsError struct{ Err error }

func (e *CPUsError) Error() string { return e.Err.Error() }
func (e *CPUsError) Unwrap() error { return e.Err }

// FoundError says what was found that should not be: an intrusion beyond the budget, or settings that are not
// as the lanes want them.
type FoundError struct{ Err error }

func (e *FoundError) Error() string { return e.Err.Error() }
func (e *FoundError) Unwrap() error { return e.Err }

// Watch is a trace of CPUs, with a guard of the lanes that have them.
type Watch struct {
	o     Options
	host  string
	cpus  cpuset.Set
	trace *witness.Trace
	guard *guard.Guard // nil: CPUs that are no lane's
	paths counters

	began, before time.Time // of the watch, and of the reading before: by a clock that nobody sets
}

// Open begins to watch, and keeps all threads of this process off the CPUs for good. Errors: *CPUsError,
// *enforce.NoLaneError.
func Open(of lanes.Options, o Options) (_ *Watch, err error) {
	w := &Watch{o: o, cpus: o.CPUs}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
		}
	}()
	owned := witness.Owned{Cgroups: o.Groups}
	if o.CPUs.IsEmpty() {
		of = of.Complete()
		if w.guard, err = guard.New(of.Dir, host.Live(), of.Drivers()); err != nil {
			return nil, err
		}
		watched, werr := w.guard.Watched(o.Lane)
		if werr != nil {
			return nil, werr
		}
		w.cpus, owned = watched.CPUs, witness.Owned{Cgroups: watched.Groups, Interrupts: watched.Interrupts}
		w.paths = counters{w.guard.Traffic, watched.Networked, map[string]netpath.Traffic{},
			map[string]netpath.Traffic{}}
	}
	if w.cpus.IsEmpty() {
		if err = w.guard.Recorded(); err != nil {
			return nil, err
		}
		return nil, &CPUsError{errors.New("no lanes are in force: give --cpus, or isolane apply")}
	}
	if err = process.StayOff(w.cpus); err != nil {
		return nil, &CPUsError{err}
	}
	if w.host, err = os.Hostname(); err != nil {
		return nil, err
	}
	if _, _, err = w.paths.read(context.Background()); err != nil {
		return nil, err
	}
	w.trace, err = witness.NewTrace(host.Live(), w.cpus, owned)
	return w, err
}

// Close ends the watch.
func (w *Watch) Close() error {
	var err error
	if w.trace != nil {
		err = w.trace.Close()
	}
	if w.guard != nil {
		err = errors.Join(err, w.guard.Close())
	}
	return err
}

// Run calls show with what was found, each second and at the end. The error is a *FoundError where the watch
// went well, but what it found is not as it should be.
func (w *Watch) Run(ctx context.Context, show func(Reading) error) error {
	w.began = time.Now()
	w.before = w.began
	end := w.began.Add(w.o.For)
	if w.o.For > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end)
		defer cancel()
	}
	second := time.NewTicker(time.Second)
	defer second.Stop()
	r := Reading{APIVersion: plan.APIVersion, Kind: "Intruders", Host: w.host, CPUs: w.cpus,
		SinceStart: SinceStart{At: w.began.UTC()}}
	for !r.Final {
		select {
		case <-ctx.Done():
			r.Final = true
		case now := <-second.C:
			if w.o.For > 0 && end.Sub(now) < time.Second/5 {
				continue // the end is the next second's
			}
		}
		if err := w.read(ctx, &r); err != nil {
			return err
		}
		if err := show(r); err != nil {
			return err
		}
	}
	if w.o.Budget > 0 && r.Evidence != "bpf" {
		return errors.New("--budget: how long an intrusion lasted is not known without eBPF")
	}
	return w.verdict(r.SinceStart.Sources)
}

// read takes the next reading in the place of the last.
func (w *Watch) read(ctx context.Context, r *Reading) error {
	found, err := w.trace.Read()
	if err != nil {
		return err
	}
	now := time.Now()
	r.At, r.Evidence, r.Window = now.UTC(), w.trace.Evidence(), results.Nanoseconds(now.Sub(w.before))
	r.SinceStart.Window = results.Nanoseconds(now.Sub(w.began))
	w.before = now
	r.Sources = append([]witness.Source{}, found.Last...)
	r.SinceStart.Sources = append([]witness.Source{}, found.Since...)
	r.Warnings = append([]string{}, w.trace.Warnings()...)
	r.Drift, r.fresh = []enforce.Drift{}, nil
	if r.Traffic, r.SinceStart.Traffic, err = w.paths.read(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	if w.guard == nil {
		return nil
	}
	if r.fresh, err = w.guard.Check(context.WithoutCancel(ctx), w.o.Repair); err != nil {
		return err
	}
	left := w.guard.Left()
	r.Drift = append(r.Drift, left...)
	for _, d := range r.fresh {
		if !slices.ContainsFunc(left, func(l enforce.Drift) bool { return l.Name == d.Name }) {
			r.Drift = append(r.Drift, d)
		}
	}
	return nil
}

// verdict compares the longest intrusion with the budget, and the settings with those that the lanes want, as
// isolane status does. Steal has no longest: the kernel counts only its sum, in ticks.
func (w *Watch) verdict(sources []witness.Source) error {
	var exceeded, unsettled error
	over, worst := 0, witness.Source{}
	for _, s := range sources {
		if w.o.Budget == 0 || s.Own || s.Longest == nil || time.Duration(*s.Longest) <= w.o.Budget {
			continue
		}
		if over++; worst.Longest == nil || *s.Longest > *worst.Longest {
			worst = s
		}
	}
	if over > 0 {
		exceeded = fmt.Errorf("the budget of %s is exceeded by %s: %s took CPU %d for %s",
			w.o.Budget, quantity.Count(over, "source"), title(worst), worst.CPU, took(worst.Longest))
	}
	if w.guard != nil {
		unsettled = lanes.Unsettled(enforce.Status{Drift: w.guard.Left()})
	}
	if err := errors.Join(exceeded, unsettled); err != nil {
		return &FoundError{err}
	}
	return nil
}
