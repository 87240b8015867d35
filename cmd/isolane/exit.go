package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"

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
	"isolane.dev/isolane/runtime/process"
	"isolane.dev/isolane/watch"
)

// coded gives what a command returns its exit code, by its type: 1 where nothing else is said.
func coded(cmd *cobra.Command, err error) error {
	if is[*enforce.NoLaneError](err) && cmd != nil && cmd.Flags().Lookup("lane") != nil {
		err = fmt.Errorf("--lane: %w", err)
	}
	if err == nil || is[*cli.Error](err) {
		return err
	}
	if field, ok := errors.AsType[*lane.FieldError](err); ok {
		return &cli.Error{Code: cli.ExitUsage, Err: err, Hint: "isolane explain " + field.Topic()}
	}
	if missing, ok := errors.AsType[*prove.MissingError](err); ok {
		return cli.Hint(err, cmp.Or(missing.Remedy, sudo()))
	}
	if mismatch, ok := errors.AsType[*plan.Mismatch](err); ok && len(mismatch.Lost) > 0 {
		return &cli.Error{Code: cli.ExitNo, Err: err, Hint: "bring the CPUs back online, or isolane release the " +
			"lanes that have lost them; plan --repack takes those of a file to others: " +
			strings.Join(mismatch.Lost, ", ")}
	}
	if unchanged, ok := errors.AsType[*diary.UnchangedError](err); ok {
		return cli.Hint(unchanged, "the lanes that were in force before are; isolane status shows them")
	}
	if answer, ok := errors.AsType[*agent.AnswerError](err); ok {
		switch answer.Status {
		case http.StatusForbidden:
			return cli.Hint(err, sudo())
		case http.StatusBadRequest, http.StatusNotFound, http.StatusRequestEntityTooLarge:
			return cli.Usage(err)
		case http.StatusConflict:
			return cli.No(err)
		}
	}
	switch {
	case errors.Is(err, journal.ErrNeedsRoot):
		return cli.Hint(errors.New("needs root to see the lanes in force"), sudo())
	case is[*process.CapabilityError](err):
		return cli.Hint(err, sudo())
	case is[*enforce.NoLaneError](err), is[*lanes.TargetError](err), is[*watch.CPUsError](err),
		is[*plan.Mismatch](err), is[*lane.FilesError](err): // of another machine
		return cli.Usage(err)
	case errors.Is(err, lanes.ErrNothing):
		return cli.Usage(fmt.Errorf("%w: name a file with lanes by -f", err))
	case is[*plan.Refusal](err), is[*enforce.OwnedError](err), is[*watch.FoundError](err),
		is[*lanes.UnsettledError](err), is[*diary.LeftOutError](err), errors.Is(err, prove.ErrUnnoticed):
		return cli.No(err)
	case is[*enforce.NoRecordError](err):
		return &cli.Error{Code: cli.ExitNo, Err: err,
			Hint: "isolane recover --adopt gives what lanes change the kernel's defaults, and removes the cgroups"}
	}
	return cli.Hint(err, "")
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
