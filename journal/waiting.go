package journal

import (
	"errors"
	"io/fs"
	"slices"
)

// UnansweredError is the error of an Op if the program that makes its changes did not answer, or the target
// is switched off. Either may change, so until then the step waits. A step that was done once also waits if
// its Op now fails with fs.ErrNotExist.
type UnansweredError struct{ Err error }

func (u *UnansweredError) Error() string { return u.Err.Error() }

// Unwrap returns the cause, with the remedy.
func (u *UnansweredError) Unwrap() error { return u.Err }

// Waiting is a step that waits for an answer: one that was done once and is to be done again, or the inverse
// of one that is to be undone. It stays in the log.
type Waiting struct {
	Step Step
	Err  *UnansweredError
}

// Waiting returns the steps that were tried since the journal was opened and still wait.
func (j *Journal) Waiting() []Waiting { return slices.Clone(j.waiting) }

// waits reports whether err makes a step, or the inverse of one, wait, and records that. Then err is no
// error.
func (j *Journal) waits(s Step, err error) bool {
	j.waiting = slices.DeleteFunc(j.waiting, func(w Waiting) bool { return w.Step.Same(s) })
	var u *UnansweredError
	if !errors.As(err, &u) {
		return false
	}
	j.waiting = append(j.waiting, Waiting{s, u})
	return true
}

// gone turns fs.ErrNotExist into an UnansweredError, unless the target is of a kind that ends by itself: a
// network card may come back, a thread does not.
func (j *Journal) gone(s Step, err error) error {
	if !errors.Is(err, fs.ErrNotExist) || j.ends(s) {
		return err
	}
	return &UnansweredError{err}
}

// mayWait reports whether a step that fails with err may wait: only one that was done before may.
func (j *Journal) mayWait(s, earlier Step, open bool, err error) bool {
	if open {
		return earlier.After == s.After || earlier.Replaced == s.After
	}
	waits := errors.As(j.gone(s, err), new(*UnansweredError)) ||
		slices.ContainsFunc(j.waiting, func(w Waiting) bool { return w.Step.Same(s) })
	return err != nil && waits && j.Wanted != nil && j.Wanted(s) // which plans all lanes
}
