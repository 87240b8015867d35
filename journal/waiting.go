package journal

import (
	"errors"
	"io/fs"
	"slices"
)

// UnansweredError is the error of an Op where the program that makes its changes did not answer, or what is
// changed is switched off. It may later: until then the step waits. So does a step that was done once and
// whose Op says fs.ErrNotExist.
type UnansweredError struct{ Err error }

func (u *UnansweredError) Error() string { return u.Err.Error() }

// Unwrap is why, with the remedy.
func (u *UnansweredError) Unwrap() error { return u.Err }

// Waiting is a step that was done once and is to be done again, or the inverse of one that is to be taken
// back, which waits for an answer. It stays written down.
type Waiting struct {
	Step Step
	Err  *UnansweredError
}

// Waiting are the steps that were tried since the journal was opened, and wait.
func (j *Journal) Waiting() []Waiting { return slices.Clone(j.waiting) }

// waits notes of a step, or the inverse of one, whether it waits, which then is no error.
func (j *Journal) waits(s Step, err error) bool {
	j.waiting = slices.DeleteFunc(j.waiting, func(w Waiting) bool { return w.Step.Same(s) })
	var u *UnansweredError
	if !errors.As(err, &u) {
		return false
	}
	j.waiting = append(j.waiting, Waiting{s, u})
	return true
}

// gone is err as one that waits, where what a step is of is not there: a card may come again, a thread does
// not.
func (j *Journal) gone(s Step, err error) error {
	if !errors.Is(err, fs.ErrNotExist) || j.ends(s) {
		return err
	}
	return &UnansweredError{err}
}

// mayWait says whether a step was done before, and so may wait where err is that nobody answers.
func (j *Journal) mayWait(s, earlier Step, open bool, err error) bool {
	if open {
		return earlier.After == s.After || earlier.Replaced == s.After
	}
	var u *UnansweredError
	waits := errors.As(j.gone(s, err), &u) ||
		slices.ContainsFunc(j.waiting, func(w Waiting) bool { return w.Step.Same(s) })
	return err != nil && waits && j.Again != nil && j.Again(s) // which plans all lanes
}
