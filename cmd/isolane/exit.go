package main

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/agent"
	"isolane.dev/isolane/cli"
	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/history/diary"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/prove"
	"isolane.dev/isolane/prove/layout"
	"isolane.dev/isolane/prove/schedule"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/runtime/process"
	"isolane.dev/isolane/watch"
)

// coded gives what a command returns its exit code, by its type, and a hint.
func coded(cmd *cobra.Command, err error) error {
	if is[*enforce.NoLaneError](err) && cmd != nil && cmd.Flags().Lookup("lane") != nil {
		err = fmt.Errorf("--lane: %w", err)
	}
	if err == nil || is[*cli.Error](err) {
		return err
	}
	e := &cli.Error{Code: codeOf(err), Err: err}
	switch answer, asked := errors.AsType[*agent.AnswerError](err); {
	case is[*prove.StoppedError](err):
		e.Hint = hintOf(err)
	case errors.Is(err, journal.ErrNeedsRoot):
		e.Err, e.Hint = errors.New("needs root to see the lanes in force"), sudo()
	case is[*process.CapabilityError](err), asked && answer.Status == http.StatusForbidden:
		e.Hint = sudo()
	case errors.Is(err, lanes.ErrNothing):
		e.Err = fmt.Errorf("%w: name a file with lanes by -f", err)
	case errors.Is(err, layout.ErrTooSmall):
		e.Hint = lanes.ConflictText(options())
	case e.Code != cli.ExitUsage || is[*lane.FieldError](err):
		e.Hint = hintOf(err)
	}
	return e
}

// hintOf is the hint that an error has itself.
func hintOf(err error) string {
	var e interface{ Hint() string }
	if errors.As(err, &e) {
		return e.Hint()
	}
	return ""
}

// codeOf is the exit code of an error: 1 where nothing else is said.
func codeOf(err error) int {
	mismatch, mismatched := errors.AsType[*plan.Mismatch](err)
	answer, asked := errors.AsType[*agent.AnswerError](err)
	switch {
	case is[*schedule.AwaitsError](err), errors.Is(err, prove.ErrNotHeld), errors.Is(err, prove.ErrDrifted),
		mismatched && len(mismatch.Lost) > 0:
		return cli.ExitNo
	case is[*lane.FieldError](err), errors.Is(err, results.ErrHasResults), errors.Is(err, prove.ErrInput):
		return cli.ExitUsage
	case is[*prove.StoppedError](err), is[*diary.UnchangedError](err):
		return cli.ExitFailed
	case is[*enforce.NoLaneError](err), is[*lanes.TargetError](err), is[*watch.CPUsError](err),
		is[*lane.FilesError](err), errors.Is(err, lanes.ErrNothing),
		asked && answer.IsUsage(), mismatched: // a placement of another machine
		return cli.ExitUsage
	case is[*plan.Refusal](err), is[*enforce.OwnedError](err), is[*watch.FoundError](err),
		is[*lanes.UnsettledError](err), is[*diary.LeftOutError](err), is[*enforce.NoRecordError](err),
		errors.Is(err, prove.ErrUnnoticed), asked && answer.Status == http.StatusConflict:
		return cli.ExitNo
	}
	return cli.ExitFailed
}

func is[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

// notStarted gives the error of a program that could not be started the exit code that env(1) gives.
func notStarted(err error) error {
	if code := process.ExitCode(err); code != 0 {
		return &cli.Error{Code: code, Err: err}
	}
	return err
}
