// Package journal changes a host so that each change can be taken back, whatever happens in between.
//
// A change is a Step: data, because it may be undone by another process, after a SIGKILL or a reboot. The
// journal writes each step to the log before doing it, and reads the value back afterwards. It undoes steps
// in reverse order, and only where the host still shows what the journal wrote: it reports a later change by
// somebody else and leaves it alone. The log lies under /run, so a reboot removes it, as it does all that is
// changed here; a log of another boot is ignored.
//
// The package knows no kind of step. The Op of a kind reads and writes its values (package change has those
// of the kernel). What else the journal asks of a kind is an optional interface of the Op.
package journal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
)

// Step is one change of the host as data: the Target of this Kind had the value Before and is to have the
// value After. Apply sets Before to the value that it finds.
type Step struct {
	Kind   string `json:"kind"`
	Target string `json:"target"`
	Before string `json:"before"`
	After  string `json:"after"`
	// Optional means that the kernel may refuse the step, as it does for managed interrupts. A refusal is
	// reported, and is no error.
	Optional bool `json:"optional,omitempty"`
	// Replaced is the value of an earlier step for the same target, which this step replaces. After a crash
	// between the record and the change the host still has it.
	Replaced string `json:"replaced,omitempty"`
}

// String names the step in messages.
func (s Step) String() string {
	return fmt.Sprintf("%s %s: %q -> %q", s.Kind, s.Target, s.Before, s.After)
}

// Inverse returns the step that takes s back.
func (s Step) Inverse() Step {
	s.Before, s.After = s.After, s.Before
	return s
}

// Same reports whether two steps have the same target. If so the later one replaces the earlier.
func (s Step) Same(o Step) bool { return s.Kind == o.Kind && s.Target == o.Target }

// Op knows how to read and write one kind of step. Read and Write fail with fs.ErrNotExist if the target does
// not exist, unless the step itself makes the target: then its absence is the value "". Check rejects steps
// that Isolane could not have written, so a forged journal changes nothing but what steps may change.
type Op interface {
	Check(s Step) error
	Read(ctx context.Context, s Step) (string, error)
	Write(ctx context.Context, s Step, value string) error
}

// Optional interfaces of an Op.
type (
	// comparer is for kinds whose value alone does not say whether a step is in force.
	comparer interface {
		InForce(ctx context.Context, s Step, now string) (bool, error)
	}
	// looker is for kinds that Read and InForce read the same things for, and one look is enough.
	looker interface {
		Look(ctx context.Context, s Step) (inForce bool, now string, err error)
	}
	// describer describes drift for people: what a step that is not in force should be like, and what was found
	// (Before).
	describer interface {
		DescribeDrift(s Step) (expected, found string)
	}
	// overwriter is for targets that the kernel also changes by itself. MayOverwrite reports whether the kernel
	// may have set the present value, so that undo overwrites nobody else's change.
	overwriter interface {
		MayOverwrite(s Step, now string) bool
	}
	// finisher is for targets that the kernel changes again during later steps, or that a killed process may
	// have left half changed. Finish is called after those steps.
	finisher interface {
		Finish(ctx context.Context, s Step) error
	}
	// ender reports whether the target may end by itself, as a thread does. Then its absence is no drift.
	ender interface{ Ends(s Step) bool }
	// dependent reports whether undoing another step undoes this one too: removing a cgroup removes its files.
	dependent interface{ UndoneWithOther(s Step) bool }
	// gatherer is for kinds whose steps are undone much faster together than one by one. Gathers reports whether
	// undoing a step may wait for the first step of its kind. UndoTogether returns how many steps it undid; each
	// is checked afterwards.
	gatherer interface {
		Gathers(s Step) bool
		UndoTogether(ctx context.Context, steps []Step) int
	}
	// maker is for kinds whose target is made anew for another value. The old target then goes before other
	// steps are done, which may need what it holds.
	maker interface{ MadeAnew() }
)

// Refused is an optional step that the kernel refused.
type Refused struct {
	Step Step
	Err  error
}

// Journal is an open log, with what has been done since it was opened.
type Journal struct {
	ops  map[string]Op
	log  *log
	lock io.Closer
	made int

	// Wanted reports whether a step without a record was wanted before; it has none if the host already was as
	// wanted. Such a step may wait. If Wanted is nil, only recorded steps may.
	Wanted  func(Step) bool
	waiting []Waiting
}

// Made returns how many changes of the host this journal has made since it was opened, undone ones included.
func (j *Journal) Made() int { return j.made }

// Apply does the steps in order. A step that is in force already is not Isolane's and is not recorded. Apply
// stops at the first error; Undo takes back what was done until then.
func (j *Journal) Apply(ctx context.Context, steps []Step) ([]Refused, error) {
	var refused []Refused
	for _, s := range steps {
		err, ended := j.do(ctx, s), ctx.Err()
		switch {
		case err == nil:
		case ended != nil && !errors.Is(err, ended): // a refusal alone would hide that the time is up
			return refused, fmt.Errorf("%w: %w", ended, err)
		case !s.Optional || ended != nil:
			return refused, err
		default:
			refused = append(refused, Refused{s, err})
		}
	}
	return refused, j.Finish(ctx, steps)
}

// Finish restores those of the done steps that the kernel has changed since. Apply calls it at its end.
func (j *Journal) Finish(ctx context.Context, steps []Step) error {
	for _, s := range steps {
		op, ok := j.ops[s.Kind].(finisher)
		done, open := j.log.find(s)
		if !ok || !open {
			continue
		}
		if err := op.Finish(ctx, done); err != nil {
			return fmt.Errorf("%s %s: %w", s.Kind, s.Target, err)
		}
	}
	return nil
}

// do does one step. If an earlier step has the same target, its Before is kept as the value to restore.
func (j *Journal) do(ctx context.Context, s Step) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	op, err := j.checked(s)
	if err != nil {
		return err
	}
	earlier, open := j.log.find(s)
	if s.Before = ""; open {
		s.Before, s.Replaced = earlier.Before, earlier.After
		// After a crash before the earlier step was written, the host has what that step was to replace.
		if now, rerr := op.Read(ctx, earlier); rerr == nil && earlier.Replaced != "" && now == earlier.Replaced {
			s.Replaced = now
		}
	}
	inForce, now, err := state(ctx, op, s)
	if err != nil {
		if j.mayWait(s, earlier, open, err) && j.waits(s, j.gone(s, err)) {
			return nil
		}
		return fmt.Errorf("%s %s: %w", s.Kind, s.Target, err)
	}
	if !open {
		s.Before = now
	}
	if inForce && (!open || earlier.After == s.After) {
		return nil
	}
	if err = j.log.done(s); err != nil {
		return err
	}
	if !inForce {
		err = op.Write(ctx, s, s.After)
	}
	if j.mayWait(s, earlier, open, err) && j.waits(s, j.gone(s, err)) {
		if !open {
			return j.log.undone(s)
		}
		return nil
	}
	if err == nil {
		err = verify(ctx, op, s)
	}
	if err == nil && !inForce {
		j.made++
	}
	switch {
	case err != nil && s.Optional && open && earlier.After != s.After:
		return errors.Join(fmt.Errorf("%s %s: %w", s.Kind, s.Target, err), j.keep(ctx, op, earlier))
	case err != nil && s.Optional:
		// Nothing changed, or not as asked: restore the old value and forget the step.
		return errors.Join(fmt.Errorf("%s %s: %w", s.Kind, s.Target, err), j.undo(ctx, op, s, true))
	case err != nil:
		return fmt.Errorf("%s %s: %w", s.Kind, s.Target, err)
	case s.Before == s.After:
		return j.log.undone(s)
	}
	return nil
}

// keep puts step s in force again after the kernel has refused a step that was to replace it.
func (j *Journal) keep(ctx context.Context, op Op, s Step) error {
	err := op.Write(ctx, s, s.After)
	if errors.Is(err, fs.ErrNotExist) {
		return j.log.undone(s)
	}
	if err != nil {
		err = fmt.Errorf("back to %q: %w", s.After, err)
	}
	return errors.Join(err, j.log.done(s))
}

// Set writes the value of a step unless the host has exactly that value. It records nothing, so undo does not
// take it back. It returns the value before.
func (j *Journal) Set(ctx context.Context, s Step) (before string, err error) {
	op, err := j.checked(s)
	if err != nil {
		return "", err
	}
	if before, err = op.Read(ctx, s); err != nil || before == s.After {
		return before, err
	}
	if err = op.Write(ctx, s, s.After); err == nil {
		err = verify(ctx, op, s)
	}
	return before, err
}

func (j *Journal) op(s Step) (Op, error) {
	op, ok := j.ops[s.Kind]
	if !ok {
		return nil, fmt.Errorf("step %s: unknown kind", s)
	}
	return op, nil
}

// checked returns the operation of a step, after checking the step.
func (j *Journal) checked(s Step) (Op, error) {
	op, err := j.op(s)
	if err == nil {
		err = op.Check(s)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", s.Kind, s.Target, err)
	}
	return op, nil
}

// Adopt records a change that was made by other means, to be undone like a step: the processes that were
// started in a cgroup.
func (j *Journal) Adopt(s Step) error { return j.log.done(s) }

// Undo takes back all steps, the last first. It goes on after a step that cannot be taken back. It reports
// what somebody else has changed since, and leaves it alone. When nothing is left it removes the log.
func (j *Journal) Undo(ctx context.Context) error {
	left, err := j.UndoWhere(ctx, func(Step) bool { return true })
	for _, l := range left {
		err = errors.Join(err, l)
	}
	for _, w := range j.waiting {
		err = errors.Join(err, fmt.Errorf("undo %s %s: %w", w.Step.Kind, w.Step.Target, w.Err))
	}
	return err
}

// UndoWhere takes back the steps for which which returns true, as Undo does, and returns those that it left
// alone. A step that waits is no error.
func (j *Journal) UndoWhere(ctx context.Context, which func(Step) bool) (left []*LeftAlone, err error) {
	var errs []error
	undo := func(s Step) {
		op, err := j.op(s)
		if err == nil {
			err = j.undo(ctx, op, s, false)
		}
		if alone, is := errors.AsType[*LeftAlone](err); is {
			left = append(left, alone)
		} else {
			errs = append(errs, err)
		}
	}
	steps := slices.DeleteFunc(j.log.open(), func(s Step) bool { return !which(s) })
	for i, s := range slices.Backward(steps) {
		g, is := j.ops[s.Kind].(gatherer)
		gathers := func(o Step) bool { return is && o.Kind == s.Kind && g.Gathers(o) }
		if !gathers(s) {
			undo(s)
			continue
		}
		if slices.ContainsFunc(steps[:i], gathers) {
			continue // go on with that one
		}
		all := slices.DeleteFunc(slices.Clone(steps), func(o Step) bool { return !gathers(o) })
		if len(all) > 1 {
			j.made += g.UndoTogether(ctx, all)
		}
		for _, o := range slices.Backward(all) {
			undo(o)
		}
	}
	return left, errors.Join(errs...)
}

// undo takes one step back. With force it does so whatever value the host has.
func (j *Journal) undo(ctx context.Context, op Op, s Step, force bool) error {
	now, err := op.Read(ctx, s)
	if j.waits(s.Inverse(), err) {
		return nil
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && now == s.Before:
		return j.log.undone(s)
	case err != nil:
		return fmt.Errorf("undo %s %s: %w", s.Kind, s.Target, err)
	case now != s.After && (s.Replaced == "" || now != s.Replaced) && !force && !mayOverwrite(op, s, now):
		return errors.Join(j.log.undone(s), &LeftAlone{Step: s, Now: now})
	}
	err = op.Write(ctx, s, s.Before)
	if n, is := errors.AsType[*NeededError](err); is {
		return errors.Join(j.log.undone(s), &LeftAlone{s, now, n.By})
	}
	if j.waits(s.Inverse(), err) {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("undo %s %s: %w", s.Kind, s.Target, err)
	}
	if !force {
		j.made++
	}
	return j.log.undone(s)
}

func mayOverwrite(op Op, s Step, now string) bool {
	o, ok := op.(overwriter)
	return ok && o.MayOverwrite(s, now)
}

// Pending returns the steps that are done and not undone, in the order in which they were done.
func (j *Journal) Pending() []Step { return j.log.open() }

// Close closes the journal and releases its lock. A log with steps that were not undone stays for Recover.
func (j *Journal) Close() error { return errors.Join(j.log.close(), j.lock.Close()) }
