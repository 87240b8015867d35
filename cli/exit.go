package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// Exit codes, on which scripts rely. Commands that start a program have further ones.
const (
	ExitYes    = 0
	ExitFailed = 1 // the tool failed
	ExitUsage  = 2 // wrong usage or bad input
	ExitNo     = 3 // the answer is no
)

// Error has the exit code of a command, and a hint what to try next; "": none. Without Err nothing is
// printed: the exit code is the whole answer.
type Error struct {
	Code int
	Err  error
	Hint string
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Usage wraps an error of the user; nil stays nil.
func Usage(err error) error {
	if err == nil {
		return nil
	}
	return &Error{Code: ExitUsage, Err: err}
}

// No wraps an answer that is no; nil stays nil.
func No(err error) error {
	if err == nil {
		return nil
	}
	return &Error{Code: ExitNo, Err: err}
}

// Hint wraps a failure, with a hint what to try next.
func Hint(err error, h string) error { return &Error{Code: ExitFailed, Err: err, Hint: h} }

// Print prints a program's error, and returns the exit code. An error without one is cobra's, and so wrong
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
