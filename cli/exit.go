package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// Exit codes, which scripts rely on. Commands that start a program have further ones.
const (
	ExitYes    = 0
	ExitFailed = 1 // the tool failed
	ExitUsage  = 2 // wrong usage or bad input
	ExitNo     = 3 // the answer is no
)

// Error carries the exit code of a command and what to try next, "" for nothing. Without Err nothing is
// printed: the code is all that the command says.
type Error struct {
	Code int
	Err  error
	Hint string
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Usage is for what the user got wrong; of nil it is nil.
func Usage(err error) error {
	if err == nil {
		return nil
	}
	return &Error{Code: ExitUsage, Err: err}
}

// No is for an answer that is no.
func No(err error) error { return &Error{Code: ExitNo, Err: err} }

// Hint is for what failed, with what to try next.
func Hint(err error, h string) error { return &Error{Code: ExitFailed, Err: err, Hint: h} }

// Print prints what went wrong in a program, and returns the exit code. What has none is of cobra: wrong
// usage.
func Print(stderr io.Writer, program string, err error) int {
	exit, ok := errors.AsType[*Error](err)
	if !ok {
		exit = &Error{Code: ExitUsage, Err: plain(err)}
	}
	if exit.Err != nil {
		fmt.Fprintf(stderr, "%s: %s\n", program, strings.ReplaceAll(exit.Err.Error(), "\n", "; "))
	}
	if exit.Hint != "" {
		fmt.Fprintf(stderr, "hint: %s\n", exit.Hint)
	}
	return exit.Code
}
