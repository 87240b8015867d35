// Package journal changes a host so that each change can be taken back, whatever happens meanwhile.
//
// A change is a Step: data, because undo happens in another process, after a SIGKILL or a reboot.
// Each step is written to the log before it is done, read back after it, and undone in reverse
// order, and only where the host still shows what the journal wrote: a later change by somebody
// else is reported and left as it is. The log lies under /run, which goes with a reboot, as all
// that is changed here does; a log of another boot is ignored.
//
// The package knows no kind of step. What a kind reads and writes is its Op (package change has
// those of the kernel); what else the journal asks of a kind is an optional interface of the Op.
package journal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
)

// Step is one change of the host as data: the Target of this Kind had the value Before and is to
// have the value After. Apply fills in Before with what it finds.
type Step struct {
	Kind   string `json:"kind"`
	Target string `json:"target"`
	Before string `json:"before"`
	After  string `json:"after"`
	// Optional: the kernel may refuse this one, such as a managed interrupt. A refusal is
	// reported, not an error.
	Optional bool `json:"optional,omitempty"`
	// Replaced is the value that an earlier step for the same target had set, which this one replaces:
	// after a crash between record and change the host still has it.
	Replaced string `json:"replaced,omitempty"`
}

// String is the step as messages name it.
func (s Step) String() string {
	return fmt.Sprintf("%s %s: %q -> %q", s.Kind, s.Target, s.Before, s.After)
}

// Inverse is the step that takes s back.
func (s Step) Inverse() Step {
	s.Before, s.After = s.After, s.Before
	return s
}

// Same says whether two steps have the same target: the later one replaces the earlier.
func (s Step) Same(o Step) bool { return s.Kind == o.Kind && s.Target == o.Target }

// Op knows how one kind of step is read and written. Both fail with fs.ErrNotExist where the
// target does not exist and its absence is not a value ("" is the value of an absent thing that
// the step itself makes). Check says what in a step cannot be: a journal is checked before it is
// believed, so that one that somebody else wrote changes nothing but what steps may change.
type Op interface {
	Check(s Step) error
	Read(ctx context.Context, s Step) (string, error)
	Write(ctx context.Context, s Step, value string) error
}

// Optional interfaces of an Op.
type (
	// comparer: the value alone, which has just been read, does not say whether a step is in force.
	comparer interface {
		InForce(ctx context.Context, s Step, now string) (bool, error)
	}
	// describer says for people what a step that is not in force should be like, and what there is: Before.
	describer interface {
		DescribeDrift(s Step) (expected, found string)
	}
	// overwriter: the kernel also changes the target by itself. MayOverwrite says whether what is there
	// now may come from that, so that undo takes nothing from anybody.
	overwriter interface {
		MayOverwrite(s Step, now string) bool
	}
	// finisher: the kernel changes the target again with later steps, or a process that was killed may have left
	// it half changed. Finish is called after these.
	finisher interface {
		Finish(ctx context.Context, s Step) error
	}
	// ender: Ends says whether the target may end by itself, as a thread does. Then nothing is missing.
	ender interface{ Ends(s Step) bool }
	// dependent: UndoneWithOther says whether undo of another step takes this one back too, as the
	// removal of a cgroup does with its files.
	dependent interface{ UndoneWithOther(s Step) bool }
	// gatherer: many are undone together in much less time than one by one. Gathers says whether undo of a step
	// may wait for the first of its kind. UndoTogether returns how many it undid; each is looked at after it.
	gatherer interface {
		Gathers(s Step) bool
		UndoTogether(ctx context.Context, steps []Step) int
	}
	// maker: another value makes the target anew. Then the one that there is goes before other steps come, which
	// may need what it has.
	maker interface{ MadeAnew() }
)

// Refused is an optional step that the kernel did not take.
type Refused struct {
	Step Step
	Err  error
}

// Journal is an open log and what it has done.
type Journal struct {
	ops  map[string]Op
	log  *log
	lock io.Closer
	made int

	// Again says of a step that is not recorded, as what it wants was there already, whether it was wanted
	// before. Then it may wait; else only what is recorded may.
	Again   func(Step) bool
	waiting []Waiting
}

// Made is how many changes of the host this journal has made since it was opened, with those taken back.
func (j *Journal) Made() int { return j.made }

// Apply does the steps in order. A step that is in force already is none of ours and is not
// recorded. It stops at the first error; what was done until then is undone by Undo.
func (j *Journal) Apply(ctx context.Context, steps []Step) ([]Refused, error) {
	var refused []Refused
	for _, s := range steps {
		err, ended := j.do(ctx, s), ctx.Err()
		switch {
		case err == nil:
		case ended != nil && !errors.Is(err, ended): // a refusal alone would not say that the time was up
			return refused, fmt.Errorf("%w: %w", ended, err)
		case !s.Optional || ended != nil:
			return refused, err
		default:
			refused = append(refused, Refused{s, err})
		}
	}
	return refused, j.Finish(ctx, steps)
}

// Finish sets again what the kernel has changed of those steps that are done. Apply ends with it.
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

// do does one step. Where an earlier step has the same target, what was there before that one stays the
// value to come back to.
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
		// A crash may have come before that was written: then what it was to replace is still there.
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
		// Nothing changed, or not to what was asked: put back what was there and forget the step.
		return errors.Join(fmt.Errorf("%s %s: %w", s.Kind, s.Target, err), j.undo(ctx, op, s, true))
	case err != nil:
		return fmt.Errorf("%s %s: %w", s.Kind, s.Target, err)
	case s.Before == s.After:
		return j.log.undone(s)
	}
	return nil
}

// keep puts a step in force again which the kernel lets no other replace.
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

// Set writes a step's value, where that is not there to the letter, and records nothing, so that it is not
// taken back. It returns what was there.
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

// checked is the operation of a step that can be.
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

// Adopt records a change that is made by other means and is undone like a step: the processes that
// are started in a cgroup.
func (j *Journal) Adopt(s Step) error { return j.log.done(s) }

// Undo takes back all steps, the last first, and goes on where one cannot be taken back. What
// somebody else changed since is left as it is and reported. When nothing is left the log is
// removed.
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

// UndoWhere takes back those steps of which which says so, as Undo does, and returns what it left alone. What
// waits is no error.
func (j *Journal) UndoWhere(ctx context.Context, which func(Step) bool) (left []*LeftAlone, err error) {
	var errs []error
	undo := func(s Step) {
		op, err := j.op(s)
		if err == nil {
			err = j.undo(ctx, op, s, false)
		}
		var alone *LeftAlone
		if errors.As(err, &alone) {
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
			continue // with that one
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

// undo takes one step back. With force it does so whatever the host shows.
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
		return errors.Join(j.log.undone(s), &LeftAlone{s, now})
	}
	err = op.Write(ctx, s, s.Before)
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

// Close gives the journal and its lock up. A log with steps that were not undone stays for Recover.
func (j *Journal) Close() error { return errors.Join(j.log.close(), j.lock.Close()) }
