package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/terminal"
)

// Run runs the command of a program with these arguments, prints its error, and returns the exit code. The
// command ends if its output cannot be written.
func Run(ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	root.SetArgs(args)
	root.SetOut(terminal.Checked(stdout, cancel))
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	lost, is := errors.AsType[*terminal.OutputError](context.Cause(ctx))
	switch {
	case !is && err == nil:
		return ExitYes
	case !is:
		return Print(stderr, root.Name(), err)
	case err != nil && !errors.Is(err, lost.Err) && !errors.Is(err, context.Canceled):
		Print(stderr, root.Name(), err)
	}
	if !errors.Is(lost, syscall.EPIPE) { // who has closed a pipe knows it
		fmt.Fprintf(stderr, "%s: %v\n", root.Name(), lost)
	}
	return ExitFailed
}
