// Package watch shows who takes time from the CPUs of lanes, and what drifts from what was put in force: a
// Reading each second.
//
// The times come from the trace in package witness, the drift from the guard. A Display shows them as a
// table.
package watch

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

// Options say what to watch. The zero value means all lanes in force, until the context ends.
type Options struct {
	Lane   string        // to watch alone
	CPUs   cpuset.Set    // to watch, instead of lanes
	Groups []string      // with CPUs: cgroup directories whose tasks belong there
	For    time.Duration // 0: until the context ends
	Budget time.Duration // the longest single intrusion allowed; 0: any
	Repair bool          // undo changes by others, unless they keep making them
	Follow bool          // follow changes of the lanes in force, of which there may be none
}

// Validate returns an error if options contradict each other.
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

// Need fails with a *process.CapabilityError if this process may not watch, as the named command would.
func Need(command string) error {
	return process.NeedRoot(command, "it attaches programs to the kernel's tracepoints")
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

// Watch is a trace of CPUs, with a guard of their lanes.
type Watch struct {
	o     Options
	host  string
	now   guard.Watched
	trace *witness.Trace // nil: there is no CPU to watch
	guard *guard.Guard   // nil: the CPUs are no lane's
	paths counters

	began, before time.Time // of the watch, and of the last reading: by the monotonic clock
}

// Open starts watching, and keeps all threads of this process off the CPUs for good. Errors: *CPUsError,
// *enforce.NoLaneError.
func Open(of lanes.Options, o Options) (_ *Watch, err error) {
	w := &Watch{o: o, paths: counters{last: map[string]netpath.Traffic{}, since: map[string]netpath.Traffic{}}}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
		}
	}()
	if w.host, err = os.Hostname(); err != nil {
		return nil, err
	}
	now := guard.Watched{CPUs: o.CPUs, Groups: o.Groups}
	if o.CPUs.IsEmpty() {
		of = of.Complete()
		if w.guard, err = guard.New(of.Dir, host.Live(), of.Drivers()); err != nil {
			return nil, err
		}
		w.paths.of = w.guard.Traffic
		if now, err = w.wanted(); err != nil {
			return nil, err
		}
	}
	if now.CPUs.IsEmpty() && !o.Follow {
		if err = w.guard.Recorded(); err != nil {
			return nil, err
		}
		return nil, &CPUsError{errors.New("no lanes are in force: isolane apply, or isolane watch --cpus")}
	}
	err = w.begin(now)
	return w, err
}

// wanted returns what there is to watch now. A trace starts on the online CPUs.
func (w *Watch) wanted() (guard.Watched, error) {
	now, err := w.guard.Watched(w.o.Lane)
	if err != nil || !w.o.Follow {
		return now, err
	}
	online, err := host.Online(host.Live())
	now.CPUs = now.CPUs.Intersection(online)
	return now, err
}

// begin replaces what is watched.
func (w *Watch) begin(now guard.Watched) error {
	if w.trace != nil {
		if err := w.trace.Close(); err != nil {
			return err
		}
		w.trace = nil
	}
	w.now = now
	w.paths.follow(now.Lanes)
	if !now.CPUs.IsEmpty() {
		if err := process.StayOff(now.CPUs); err != nil {
			return &CPUsError{err}
		}
	}
	_, _, err := w.paths.read(context.Background())
	if err != nil {
		return err
	}
	if !now.CPUs.IsEmpty() {
		own := witness.Owned{Cgroups: now.Groups, CPUs: now.On, Interrupts: now.Interrupts}
		w.trace, err = witness.NewTrace(host.Live(), now.CPUs, own)
	}
	w.began = time.Now()
	w.before = w.began
	return err
}

// follow starts again if other CPUs, cgroups or interrupts are the lanes' now.
func (w *Watch) follow() error {
	now, err := w.wanted()
	if err != nil {
		return err
	}
	same := now.CPUs == w.now.CPUs && slices.Equal(now.Groups, w.now.Groups) && slices.Equal(now.On, w.now.On) &&
		maps.Equal(now.Interrupts, w.now.Interrupts) && (w.trace != nil || now.CPUs.IsEmpty())
	if !same {
		return w.begin(now)
	}
	w.now = now
	w.paths.follow(now.Lanes)
	return nil
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

// Lanes returns the lanes that are watched now: with Follow, those in force at the last reading.
func (w *Watch) Lanes() []enforce.LaneGroup { return w.now.Lanes }

// Run calls show with what was found, each second and at the end. It fails with a *FoundError if watching
// succeeded, but found what should not be.
func (w *Watch) Run(ctx context.Context, show func(Reading) error) error {
	end := w.began.Add(w.o.For)
	if w.o.For > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end)
		defer cancel()
	}
	second := time.NewTicker(time.Second)
	defer second.Stop()
	var r Reading
	for final := false; !final; {
		select {
		case <-ctx.Done():
			final = true
		case now := <-second.C:
			if w.o.For > 0 && end.Sub(now) < time.Second/5 {
				continue // the end is in the next second
			}
		}
		var err error
		if r, err = w.Read(ctx); err != nil {
			return err
		}
		r.Final = final
		if err = show(r); err != nil {
			return err
		}
	}
	if w.o.Budget > 0 && r.Evidence != "bpf" {
		return errors.New("--budget: how long an intrusion lasted is not known without eBPF")
	}
	return w.verdict(r.SinceStart.Sources)
}

// Read returns what was found since the last call. Even if it fails, the reading has what could be read, such
// as the sources if lanes cannot be compared with the host.
func (w *Watch) Read(ctx context.Context) (Reading, error) {
	now := time.Now()
	r := Reading{APIVersion: plan.APIVersion, Kind: "Intruders", Host: w.host, CPUs: w.now.CPUs,
		At: now.UTC(), Window: results.Nanoseconds(now.Sub(w.before)),
		Sources: []witness.Source{}, Drift: []enforce.Drift{}, Warnings: []string{},
		SinceStart: SinceStart{At: w.began.UTC(), Window: results.Nanoseconds(now.Sub(w.began)),
			Sources: []witness.Source{}}}
	w.before = now
	var err error
	if w.trace != nil {
		found, terr := w.trace.Read()
		r.Evidence, err = w.trace.Evidence(), terr
		r.Timed = r.Evidence == "bpf" && terr == nil
		r.Sources = append(r.Sources, found.Last...)
		r.SinceStart.Sources = append(r.SinceStart.Sources, found.Since...)
		r.Warnings = append(r.Warnings, w.trace.Warnings()...)
	}
	var perr error
	r.Traffic, r.SinceStart.Traffic, perr = w.paths.read(context.WithoutCancel(ctx))
	if err = errors.Join(err, perr); w.guard == nil {
		return r, err
	}
	var gerr error
	r.Fresh, gerr = w.guard.Check(context.WithoutCancel(ctx), w.o.Repair)
	left := w.guard.Left()
	r.Drift = append(r.Drift, left...)
	for _, d := range r.Fresh {
		if !slices.ContainsFunc(left, func(l enforce.Drift) bool { return l.Name == d.Name }) {
			r.Drift = append(r.Drift, d)
		}
	}
	if w.o.Follow {
		gerr = errors.Join(gerr, w.follow())
	}
	return r, errors.Join(err, gerr)
}

// verdict compares the longest intrusion with the budget, and the settings with those that the lanes want, as
// isolane status does. Steal has no longest intrusion: the kernel counts only its sum, in ticks.
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
			w.o.Budget, quantity.Count(over, "source"), Title(worst), worst.CPU, Took(worst.Longest))
	}
	if w.guard != nil {
		unsettled = lanes.Unsettled(enforce.Status{Drift: w.guard.Left()})
	}
	if err := errors.Join(exceeded, unsettled); err != nil {
		return &FoundError{err}
	}
	return nil
}
