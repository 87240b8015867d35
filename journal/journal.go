// Package journal changes a host, and is the only package that does.
//
// A change is a Step: data, because undo happens in another process, after a SIGKILL or a reboot.
// Each step is written to the log before it is done, read back after it, and undone in reverse
// order, and only where the host still shows what the journal wrote: a later change of somebody
// else is reported and left alone. The log lies under /run, which goes with a reboot, as all that
// is changed here does; a log of another boot is not believed.
package journal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
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

// same says whether two steps are about the same thing: the later one replaces the earlier.
func (s Step) same(o Step) bool { return s.Kind == o.Kind && s.Target == o.Target }

// Op knows how one kind of step is read and written. Both fail with fs.ErrNotExist where the
// target does not exist and its absence is not a value ("" is the value of an absent thing that
// the step itself makes). Check says what in a step cannot be: a journal is checked before it is
// believed, so that one that somebody else wrote changes nothing but what steps may change.
type Op interface {
	Check(s Step) error
	Read(ctx context.Context, s Step) (string, error)
	Write(ctx context.Context, s Step, value string) error
}

// stander is an Op whose value does not tell whether a step is in force.
type stander interface {
	Stands(ctx context.Context, s Step) (bool, error)
}

// restorer is an Op of something that the kernel also changes by itself: Restores says whether what is there
// now may be its doing, so that putting back what was there before takes nothing from anybody.
type restorer interface {
	Restores(s Step, now string) bool
}

// Ops returns the operation of each kind that this package knows; drivers add theirs. Root is "/", or a
// directory that stands in for the kernel's files.
func Ops(root string) map[string]Op {
	k := kernel{root}
	return map[string]Op{
		"file":       file{k},
		"attribute":  attribute{file{k}},
		"cgroup":     cgroup{k},
		"controller": controller{k},
		"tasks":      tasks{k},
		"task":       task{},
		"affinities": affinities{k},
		"scheduling": scheduling{},
		"member":     member{k},
		"cpuset":     cpusetCPUs{file{k}},
		"processes":  processes{k},
		"keeper":     keeper{processes{k}},
		"sysctl":     sysctl{k},
		"netns":      netNS{},
		"link":       link{},
		"unit":       unit{k},
	}
}

// settler is an Op of something that the kernel changes with other steps: Settle is called when these are done.
type settler interface {
	Settle(ctx context.Context, s Step) error
}

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
}

// Made is how many changes of the host this journal has made since it was opened, those taken back among them.
func (j *Journal) Made() int { return j.made }

// Apply does the steps in order. A step that is in force already is none of ours and is not
// recorded. It stops at the first error; what was done until then is undone by Undo.
func (j *Journal) Apply(ctx context.Context, steps []Step) ([]Refused, error) {
	var refused []Refused
	for _, s := range steps {
		err := j.do(ctx, s)
		switch {
		case err == nil:
		case s.Optional && ctx.Err() == nil:
			refused = append(refused, Refused{s, err})
		default:
			return refused, err
		}
	}
	return refused, j.settle(ctx, steps)
}

func (j *Journal) settle(ctx context.Context, steps []Step) error {
	for _, s := range steps {
		op, ok := j.ops[s.Kind].(settler)
		done, open := j.log.find(s)
		if !ok || !open {
			continue
		}
		if err := op.Settle(ctx, done); err != nil {
			return fmt.Errorf("%s %s: %w", s.Kind, s.Target, err)
		}
	}
	return nil
}

// LeftAlone is a step that was not taken back, because somebody else has changed what it had set.
type LeftAlone struct {
	Step Step
	Now  string
}

func (l *LeftAlone) Error() string {
	return fmt.Sprintf("undo %s %s: left alone: somebody changed it from %q to %q since (it was %q before)",
		l.Step.Kind, l.Step.Target, l.Step.After, l.Now, l.Step.Before)
}

// Reconcile makes the steps that are done equal to those that are wanted: what is no longer wanted is
// taken back, the last first, and then what is missing is done. What is left alone is returned, and no error.
func (j *Journal) Reconcile(ctx context.Context, want []Step) (refused []Refused, left []*LeftAlone, err error) {
	wanted := map[[2]string]bool{}
	for _, s := range want {
		wanted[[2]string{s.Kind, s.Target}] = true
	}
	left, err = j.undoWhere(ctx, func(s Step) bool { return !wanted[[2]string{s.Kind, s.Target}] })
	refused, aerr := j.Apply(ctx, want)
	return refused, left, errors.Join(err, aerr)
}

// UnreadError are targets that this user may not read, so that it is not known whether they are missing.
type UnreadError struct{ Targets []string }

func (u *UnreadError) Error() string {
	return "needs root to read " + strings.Join(u.Targets, ", ")
}

// Missing returns what Reconcile would do now, in its order: the steps to take back, as their inverse, and
// those to do. It changes nothing. With a *UnreadError it returns those that it could read.
func (j *Journal) Missing(ctx context.Context, want []Step) ([]Step, error) {
	var missing []Step
	var unread UnreadError
	for _, s := range slices.Backward(j.log.open()) {
		if slices.ContainsFunc(want, s.same) || s.Kind == "attribute" { // which goes with its cgroup
			continue
		}
		if _, _, err := j.Stands(ctx, s); !errors.Is(err, fs.ErrNotExist) { // a task may have ended
			missing = append(missing, s.Inverse())
		}
	}
	for _, s := range want {
		stands, now, err := j.Stands(ctx, s)
		gone := errors.Is(err, fs.ErrNotExist)
		if errors.Is(err, fs.ErrPermission) {
			unread.Targets = append(unread.Targets, s.Target)
			continue
		}
		if err != nil && !gone {
			return nil, fmt.Errorf("%s %s: %w", s.Kind, s.Target, err)
		}
		if !stands && (!gone || s.Kind != "task") { // what an earlier step makes is not there yet
			s.Before = now
			missing = append(missing, s)
		}
	}
	if len(unread.Targets) > 0 {
		return missing, &unread
	}
	return missing, nil
}

// do does one step. Where an earlier step has the same target, what was there before that one stays the
// value to come back to.
func (j *Journal) do(ctx context.Context, s Step) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	op, err := j.op(s)
	if err == nil {
		err = op.Check(s)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", s.Kind, s.Target, err)
	}
	earlier, open := j.log.find(s)
	if s.Before = ""; open {
		s.Before, s.Replaced = earlier.Before, earlier.After
	}
	stands, now, err := state(ctx, op, s)
	if err != nil {
		return fmt.Errorf("%s %s: %w", s.Kind, s.Target, err)
	}
	if !open {
		s.Before = now
	}
	if stands && (!open || earlier.After == s.After) {
		return nil
	}
	if err = j.log.done(s); err != nil {
		return err
	}
	if !stands {
		err = op.Write(ctx, s, s.After)
	}
	if err == nil {
		err = verify(ctx, op, s)
	}
	if err == nil && !stands {
		j.made++
	}
	switch {
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

// Set makes a step true and records nothing, so that it is not taken back: for what nobody knows the value before
// of. It returns what was there.
func (j *Journal) Set(ctx context.Context, s Step) (before string, err error) {
	op, err := j.op(s)
	if err == nil {
		err = op.Check(s)
	}
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", s.Kind, s.Target, err)
	}
	stands, before, err := state(ctx, op, s)
	if err != nil || stands {
		return before, err
	}
	if err = op.Write(ctx, s, s.After); err == nil {
		err = verify(ctx, op, s)
	}
	return before, err
}

// state reads what a step's target is like, and whether the step is in force.
func state(ctx context.Context, op Op, s Step) (stands bool, now string, err error) {
	if now, err = op.Read(ctx, s); err != nil {
		return false, now, err
	}
	if o, ok := op.(stander); ok {
		stands, err = o.Stands(ctx, s)
		return stands, now, err
	}
	return now == s.After, now, nil
}

// Stands says whether a step is in force, and what there is now.
func (j *Journal) Stands(ctx context.Context, s Step) (stands bool, now string, err error) {
	op, err := j.op(s)
	if err != nil {
		return false, "", err
	}
	if _, ok := op.(settler); ok {
		if done, open := j.log.find(s); open {
			s.Before = done.Before
		}
	}
	return state(ctx, op, s)
}

func verify(ctx context.Context, op Op, s Step) error {
	stands, now, err := state(ctx, op, s)
	if err == nil && !stands {
		err = fmt.Errorf("wrote %q, reads %q", s.After, now)
	}
	return err
}

func (j *Journal) op(s Step) (Op, error) {
	op, ok := j.ops[s.Kind]
	if !ok {
		return nil, fmt.Errorf("step %s: unknown kind", s)
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
	left, err := j.undoWhere(ctx, func(Step) bool { return true })
	for _, l := range left {
		err = errors.Join(err, l)
	}
	return err
}

func (j *Journal) undoWhere(ctx context.Context, which func(Step) bool) (left []*LeftAlone, err error) {
	var errs []error
	for _, s := range slices.Backward(j.log.open()) {
		if !which(s) {
			continue
		}
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
	return left, errors.Join(errs...)
}

// undo takes one step back. With force it does so whatever the host shows.
func (j *Journal) undo(ctx context.Context, op Op, s Step, force bool) error {
	now, err := op.Read(ctx, s)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && now == s.Before:
		return j.log.undone(s)
	case err != nil:
		return fmt.Errorf("undo %s %s: %w", s.Kind, s.Target, err)
	case now != s.After && (s.Replaced == "" || now != s.Replaced) && !force && !restores(op, s, now):
		return errors.Join(j.log.undone(s), &LeftAlone{s, now})
	}
	if err := op.Write(ctx, s, s.Before); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("undo %s %s: %w", s.Kind, s.Target, err)
	}
	if !force {
		j.made++
	}
	return j.log.undone(s)
}

func restores(op Op, s Step, now string) bool {
	r, ok := op.(restorer)
	return ok && r.Restores(s, now)
}

// Pending returns the steps that are done and not undone, in the order in which they were done.
func (j *Journal) Pending() []Step { return j.log.open() }

// Close gives the journal and its lock up. A log with steps that were not undone stays for Recover.
func (j *Journal) Close() error { return errors.Join(j.log.close(), j.lock.Close()) }
