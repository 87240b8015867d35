package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/agent"
	"isolane.dev/isolane/cmd/isolane/cli"
	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/history/diary"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/prove"
	"isolane.dev/isolane/runtime/process"
	"isolane.dev/isolane/watch"
)

// Exit codes, which scripts rely on. Commands that start a program have further ones.
const (
	exitYes    = 0
	exitFailed = 1 // the tool failed
	exitUsage  = 2 // wrong usage or bad input
	exitNo     = 3 // the answer is no
)

// exitError carries the exit code of a command and what to try next.
type exitError struct {
	code int
	err  error
	hint string
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// usage is for what the user got wrong; of nil it is nil.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{code: exitUsage, err: err}
}

func no(err error) error             { return &exitError{code: exitNo, err: err} }
func hint(err error, h string) error { return &exitError{code: exitFailed, err: err, hint: h} }

// coded gives what a command returns its exit code, by its type: 1 where nothing else is said.
func coded(err error) error {
	if err == nil || is[*exitError](err) {
		return err
	}
	if field, ok := errors.AsType[*lane.FieldError](err); ok {
		return &exitError{exitUsage, err, "isolane explain " + field.Topic()}
	}
	if missing, ok := errors.AsType[*prove.MissingError](err); ok {
		return hint(err, cmp.Or(missing.Remedy, sudo()))
	}
	if mismatch, ok := errors.AsType[*plan.Mismatch](err); ok && len(mismatch.Lost) > 0 {
		return &exitError{exitNo, err, "bring the CPUs back online, or isolane release the lanes that have lost " +
			"them; plan --repack takes those of a file to others: " + strings.Join(mismatch.Lost, ", ")}
	}
	if unchanged, ok := errors.AsType[*diary.UnchangedError](err); ok {
		return hint(unchanged, "the lanes that were in force before are; isolane status shows them")
	}
	if answer, ok := errors.AsType[*agent.AnswerError](err); ok {
		switch answer.Status {
		case http.StatusForbidden:
			return hint(err, sudo())
		case http.StatusBadRequest, http.StatusNotFound, http.StatusRequestEntityTooLarge:
			return usage(err)
		case http.StatusConflict:
			return no(err)
		}
	}
	switch {
	case errors.Is(err, journal.ErrNeedsRoot):
		return hint(errors.New("needs root to see the lanes in force"), sudo())
	case is[*process.CapabilityError](err):
		return hint(err, sudo())
	case is[*enforce.NoLaneError](err), is[*lanes.TargetError](err), is[*watch.CPUsError](err),
		is[*plan.Mismatch](err), is[*lane.FilesError](err), errors.Is(err, lanes.ErrNothing): // of another machine
		return usage(err)
	case is[*plan.Refusal](err), is[*enforce.OwnedError](err), is[*watch.FoundError](err),
		is[*lanes.UnsettledError](err), is[*diary.LeftOutError](err), errors.Is(err, prove.ErrUnnoticed):
		return no(err)
	case is[*enforce.NoRecordError](err):
		return &exitError{exitNo, err,
			"isolane recover --adopt gives what lanes change the kernel's defaults, and removes the cgroups"}
	}
	return hint(err, "")
}

func is[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

// complete gives what a command and those below it return its exit code. A command that does not say which
// arguments it takes, takes none.
func complete(cmd *cobra.Command) {
	if cmd.Args == nil {
		cmd.Args = cobra.NoArgs
	}
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			err := run(cmd, args)
			if is[*enforce.NoLaneError](err) && cmd.Flags().Lookup("lane") != nil {
				err = fmt.Errorf("--lane: %w", err)
			}
			return coded(err)
		}
	}
	for _, c := range cmd.Commands() {
		complete(c)
	}
}

// printError prints what went wrong, and returns the exit code.
func printError(stderr io.Writer, err error) int {
	exit, ok := errors.AsType[*exitError](err)
	if !ok {
		exit = &exitError{code: exitUsage, err: cli.Plain(err)} // what cobra refuses
	}
	if exit.err != nil {
		fmt.Fprintf(stderr, "isolane: %s\n", strings.ReplaceAll(exit.err.Error(), "\n", "; "))
	}
	if exit.hint != "" {
		fmt.Fprintf(stderr, "hint: %s\n", exit.hint)
	}
	return exit.code
}

// notStarted gives the error of a program that could not be started the exit code that env(1) gives.
func notStarted(err error) error {
	if code := process.ExitCode(err); code != 0 {
		return &exitError{code: code, err: err}
	}
	return err
}
