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

	"isolane.dev/isolane/cmd/isolane/cli"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/runtime/guest"
	"isolane.dev/isolane/terminal"
	"isolane.dev/isolane/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// A closed pipe is an error of the write, and does not end us in the midst of a change.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	did, exit, err := guest.Entry(ctx, os.Args)
	if !did {
		did, err = lanes.Entry(ctx, options(), os.Args)
	}
	if !did {
		exit = run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	} else if err != nil {
		exit = printError(os.Stderr, coded(notStarted(err)))
	}
	stop()
	os.Exit(exit)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	root := command()
	root.SetArgs(args)
	root.SetOut(terminal.Checked(stdout, cancel))
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if lost, ok := errors.AsType[*terminal.OutputError](context.Cause(ctx)); ok {
		return incomplete(stderr, lost, err)
	}
	if err == nil {
		return exitYes
	}
	return printError(stderr, err)
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
		Version:       version.Of(release, commit, date).String(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noSuchCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("isolane {{.Version}}\n")
	root.SuggestionsMinimumDistance = 2
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(cli.FlagError(err)) })
	cli.Fit(root)
	for _, c := range []*cobra.Command{hostCommand(), auditCommand(), claimsCommand(), planCommand(),
		coresCommand(), applyCommand(), diffCommand(), statusCommand(), watchCommand(), topCommand(), runCommand(),
		attachCommand(), releaseCommand(), recoverCommand(), historyCommand(), bootCommand(), proveCommand(),
		scenariosCommand(), reportCommand(), compareCommand(), explainCommand(), versionCommand(), probeCommand(),
		unitCommand(), agentCommand()} {
		complete(c)
		root.AddCommand(c)
	}
	return root
}

// must is for what only an error of this program makes fail, such as a flag that is not defined.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
