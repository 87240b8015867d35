// Command isolane makes an edge host keep its promises, and shows it.
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
	"github.com/spf13/pflag"

	"isolane.dev/isolane/lanes"
)

// Exit codes, which scripts rely on.
const (
	exitYes    = 0
	exitFailed = 1 // the tool failed
	exitUsage  = 2 // wrong usage or bad input
	exitNo     = 3 // the answer is no
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// A closed pipe is an error of the write, and does not end us in the midst of a change.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	var code int
	if did, err := lanes.Entry(ctx, os.Args); did {
		code = ended(os.Stderr, err)
	} else {
		code = run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}
	stop()
	os.Exit(code)
}

// ended is the exit code of what this program was started again for.
func ended(stderr io.Writer, err error) int {
	if err == nil {
		return exitYes
	}
	return explain(stderr, notStarted(err))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	root := command()
	root.SetArgs(args)
	root.SetOut(checked(stdout, cancel))
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	var lost *outputError
	if errors.As(context.Cause(ctx), &lost) {
		return lost.report(stderr, err)
	}
	if err == nil {
		return exitYes
	}
	return explain(stderr, err)
}

// explain prints what went wrong, and returns the exit code.
func explain(stderr io.Writer, err error) int {
	var exit *exitError
	if !errors.As(err, &exit) {
		exit = &exitError{code: exitUsage, err: err} // what cobra refuses: an unknown command or flag
	}
	if exit.err != nil {
		fmt.Fprintf(stderr, "isolane: %s\n", strings.ReplaceAll(exit.err.Error(), "\n", "; "))
	}
	if exit.hint != "" {
		fmt.Fprintf(stderr, "hint: %s\n", exit.hint)
	}
	return exit.code
}

// exitError carries the exit code of a command and what to try next.
type exitError struct {
	code int
	err  error
	hint string
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func fail(err error) error           { return &exitError{code: exitFailed, err: err} }
func usage(err error) error          { return &exitError{code: exitUsage, err: err} }
func no(err error) error             { return &exitError{code: exitNo, err: err} }
func hint(err error, h string) error { return &exitError{code: exitFailed, err: err, hint: h} }

// flagError says what is wrong with a flag as all our errors do.
func flagError(_ *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		name := "--" + invalid.GetFlag().Name
		if short := invalid.GetFlag().Shorthand; short != "" {
			name = "-" + short
		}
		err = fmt.Errorf("%s %q: %w", name, invalid.GetValue(), invalid.Unwrap())
	}
	return usage(err)
}

// noSuchCommand refuses what is no command, and names those that it resembles.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return fmt.Errorf("unknown command %.40q, did you mean %s?", args[0], strings.Join(near, " or "))
	}
	return fmt.Errorf("unknown command %.40q: isolane help lists the commands", args[0])
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:   "isolane",
		Short: "Lanes for latency-critical workloads: discover, plan, enforce, prove",
		Long: "Isolane gives a workload a lane: CPUs, memory and interrupts of its own, and proves by\n" +
			"measurement under noisy neighbours what that is worth on this machine.",
		Version:       builtFrom().String(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noSuchCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("isolane {{.Version}}\n")
	root.SuggestionsMinimumDistance = 2
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(hostCommand(), auditCommand(), planCommand(), coresCommand(),
		applyCommand(), diffCommand(), statusCommand(), watchCommand(), runCommand(), attachCommand(),
		releaseCommand(), recoverCommand(), bootCommand(), proveCommand(), scenariosCommand(), reportCommand(),
		explainCommand(), versionCommand(), probeCommand())
	return root
}
