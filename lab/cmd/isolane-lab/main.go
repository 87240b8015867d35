// Command isolane-lab runs virtual machines with the hardware and kernels that Isolane is for: several
// NUMA nodes, SMT, SR-IOV, a real-time kernel. Timings measured in them mean nothing.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/lab"
)

// Exit codes, on which scripts rely. run and exec return those of the command in the guest.
const (
	exitYes    = 0
	exitFailed = 1 // the tool failed
	exitUsage  = 2 // wrong usage or bad input
	exitNo     = 3 // no machine of that name runs
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := command()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitYes
	}
	var exit *exitError
	if !errors.As(err, &exit) {
		exit = &exitError{code: exitUsage, err: err} // what cobra rejects: an unknown command or flag
	}
	if exit.err != nil {
		fmt.Fprintf(stderr, "isolane-lab: %s\n", strings.ReplaceAll(exit.err.Error(), "\n", "; "))
	}
	return exit.code
}

// exitError has an exit code. Without err, it is that of a command in the guest.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return fmt.Sprintf("exit code %d: %v", e.code, e.err) }
func (e *exitError) Unwrap() error { return e.err }

func fail(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, lab.ErrNotRunning):
		return &exitError{code: exitNo, err: err}
	}
	return &exitError{code: exitFailed, err: err}
}

func usage(err error) error { return &exitError{code: exitUsage, err: err} }

func command() *cobra.Command {
	root := &cobra.Command{
		Use:   "isolane-lab",
		Short: "Virtual machines with NUMA, SMT, SR-IOV and a real-time kernel, from Debian packages",
		Long: `Runs virtual machines with NUMA, SMT, SR-IOV and a real-time kernel, all from Debian packages. The
processor is emulated in software: the lab shows that something works, and its timings mean nothing.

run and exec end with the exit code of the command in the machine. Else 0 is yes, 1 failed, 2 wrong
usage or bad input, 3 no such machine runs.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(buildCommand(), runCommand(), upCommand(), pairCommand(), execCommand(), downCommand(),
		guestCommand())
	return root
}

func buildCommand() *cobra.Command {
	var update bool
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Make the lab where there is none yet (root, the network)",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cache, err := lab.Cache()
			if err != nil {
				return fail(err)
			}
			_, err = lab.Build(cmd.Context(), cache, update, cmd.ErrOrStderr())
			return fail(err)
		},
	}
	cmd.Flags().BoolVar(&update, "update", false, "also where there is one of older packages")
	return cmd
}

// guestCommand is the agent in the machine.
func guestCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "guest PORT",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE:   func(_ *cobra.Command, args []string) error { return fail(lab.Guest(args[0])) },
	}
}
