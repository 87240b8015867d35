package terminal

import (
	"context"
	"errors"
	"io"
	"io/fs"
)

// OutputError is a failure to write to standard output.
type OutputError struct{ Err error }

func (e *OutputError) Error() string { return "standard output: " + e.Err.Error() }
func (e *OutputError) Unwrap() error { return e.Err }

// Checked returns a writer that cancels a program with an *OutputError when its output cannot be written. A
// terminal is returned as it is, for those who ask what it can show.
func Checked(w io.Writer, cancel context.CancelCauseFunc) io.Writer {
	if Height(w) > 0 {
		return w
	}
	return checked{w, cancel}
}

type checked struct {
	w      io.Writer
	cancel context.CancelCauseFunc
}

func (c checked) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		err = path.Err // the file's name is standard output, which is said elsewhere
	}
	if err != nil {
		c.cancel(&OutputError{err})
	}
	return n, err
}
