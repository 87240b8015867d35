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

func command() *cobra.Command {
	root := &cobra.Command{
		Use:   "isolane",
		Short: "Lanes for latency-critical workloads: discover, plan, enforce, prove",
		Long: "Isolane gives a workload a lane: CPUs, memory, interrupts and a network path of its own,\n" +
			"and proves by measurement under noisy neighbours what that is worth on this machine.",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(hostCommand(), auditCommand(), planCommand(), coresCommand(), applyCommand(), diffCommand(), statusCommand(), watchCommand(), runCommand(), attachCommand(), releaseCommand(), bootCommand(), proveCommand(), scenariosCommand(), reportCommand(),
		recoverCommand(), probeCommand(), launchCommand())
	return root
}
