// Package journal changes a host, and is the only package that does.
//
// A change is a Step: data, because undo happens in another process, after a SIGKILL or a reboot.
// Each step is written to the log before it is done, read back after it, and undone in reverse
// order, and only where the host still shows what the journal wrote: a later change of somebody
// else is reported and left alone. The log lies under /run, which goes with a reboot, as all that
// is changed here does.
package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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
}

// String is the step as `--dry-run` prints it.
func (s Step) String() string {
	return fmt.Sprintf("%s %s: %q -> %q", s.Kind, s.Target, s.Before, s.After)
}

// Op knows how one kind of step is read and written. Both fail with fs.ErrNotExist where the
// target does not exist and its absence is not a value ("" is the value of an absent thing that
// the step itself makes).
type Op interface {
	Read(ctx context.Context, s Step) (string, error)
	Write(ctx context.Context, s Step, value string) error
}

// Ops returns the operation of each kind that this package knows; drivers add theirs.
func Ops() map[string]Op {
	return map[string]Op{
		"file":       file{},
		"dir":        dir{},
		"controller": controller{},
		"tasks":      tasks{},
		"task":       task{},
		"member":     member{},
		"cpuset":     cpusetCPUs{},
		"processes":  processes{},
		"sysctl":     sysctl{},
		"netns":      netNS{},
		"link":       link{},
	}
}

// Refused is an optional step that the kernel did not take.
type Refused struct {
	Step Step
	Err  error
}

// Journal is an open log and what it has done.
type Journal struct {
	ops map[string]Op
	log *log
}

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
	return refused, nil
}

func (j *Journal) do(ctx context.Context, s Step) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	op, err := j.op(s)
	if err != nil {
		return err
	}
	if s.Before, err = op.Read(ctx, s); err != nil {
		return fmt.Errorf("%s %s: %w", s.Kind, s.Target, err)
	}
	if s.Before == s.After {
		return nil
	}
	if err = j.log.done(s); err != nil {
		return err
	}
	if err = op.Write(ctx, s, s.After); err == nil {
		err = verify(ctx, op, s)
	}
	if err != nil && s.Optional {
		// Nothing changed, or not to what was asked: put back what was there and forget the step.
		return errors.Join(fmt.Errorf("%s %s: %w", s.Kind, s.Target, err), j.undo(ctx, op, s, true))
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", s.Kind, s.Target, err)
	}
	return nil
}

func verify(ctx context.Context, op Op, s Step) error {
	now, err := op.Read(ctx, s)
	if err == nil && now != s.After {
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
	var errs []error
	steps := j.log.open()
	for i := len(steps) - 1; i >= 0; i-- {
		op, err := j.op(steps[i])
		if err == nil {
			err = j.undo(ctx, op, steps[i], false)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// undo takes one step back. With force it does so whatever the host shows.
func (j *Journal) undo(ctx context.Context, op Op, s Step, force bool) error {
	now, err := op.Read(ctx, s)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && now == s.Before:
		return j.log.undone(s)
	case err != nil:
		return fmt.Errorf("undo %s %s: %w", s.Kind, s.Target, err)
	case now != s.After && !force:
		return errors.Join(j.log.undone(s), fmt.Errorf(
			"undo %s %s: left alone: somebody changed it from %q to %q since (it was %q before)",
			s.Kind, s.Target, s.After, now, s.Before))
	}
	if err := op.Write(ctx, s, s.Before); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("undo %s %s: %w", s.Kind, s.Target, err)
	}
	return j.log.undone(s)
}

// Pending returns the steps that are done and not undone, in the order in which they were done.
func (j *Journal) Pending() []Step { return j.log.open() }

// Close gives the journal up. A log with steps that were not undone stays for Recover.
func (j *Journal) Close() error { return j.log.close() }
