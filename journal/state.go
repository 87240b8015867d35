package journal

import (
	"context"
	"fmt"
)

// state reads what a step's target is like, and whether the step is in force.
func state(ctx context.Context, op Op, s Step) (inForce bool, now string, err error) {
	if o, ok := op.(looker); ok {
		return o.Look(ctx, s)
	}
	if now, err = op.Read(ctx, s); err != nil {
		return false, now, err
	}
	if o, ok := op.(comparer); ok {
		inForce, err = o.InForce(ctx, s, now)
		return inForce, now, err
	}
	return now == s.After, now, nil
}

// InForce reports whether a step is in force, and returns the present value.
func (j *Journal) InForce(ctx context.Context, s Step) (inForce bool, now string, err error) {
	op, err := j.op(s)
	if err != nil {
		return false, "", err
	}
	if done, open := j.log.find(s); open {
		if _, ok := op.(finisher); ok {
			s.Before = done.Before
		}
		if done.After != s.After { // the value that an interrupted change had set
			s.Replaced = done.After
		}
	}
	return state(ctx, op, s)
}

func verify(ctx context.Context, op Op, s Step) error {
	inForce, now, err := state(ctx, op, s)
	if err != nil || inForce {
		return err
	}
	if o, ok := op.(describer); ok {
		s.Before = now
		expected, found := o.DescribeDrift(s)
		return fmt.Errorf("expected %s, found %s", expected, found)
	}
	return &ReadBackError{s.After, now}
}

// ReadBackError says that a target does not have the value that was written.
type ReadBackError struct{ Wrote, Reads string }

func (r *ReadBackError) Error() string { return fmt.Sprintf("wrote %q, reads %q", r.Wrote, r.Reads) }
