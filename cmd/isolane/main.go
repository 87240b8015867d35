// Command isolane makes an edge host keep its promises, and shows it.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/cli"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/runtime/guest"
	"isolane.dev/isolane/runtime/process"
	"isolane.dev/isolane/terminal"
	"isolane.dev/isolane/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), process.Ending()...)
	// A closed pipe is an error of the write, and does not end us in the midst of a change.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	did, exit, err := guest.Entry(ctx, os.Args)
	if !did {
		did, err = lanes.Entry(ctx, options(), os.Args)
	}
	if !did {
		exit = cli.Run(ctx, command(), os.Args[1:], os.Stdout, terminal.Folded(os.Stderr))
	} else if err != nil {
		exit = cli.Print(os.Stderr, "isolane", coded(nil, notStarted(err)))
	}
	stop()
	os.Exit(exit)
}

func command() *cobra.Command {
	root := cli.Root(&cobra.Command{
		Use:   "isolane",
		Short: "Lanes for latency-critical workloads: discover, plan, enforce, prove",
		Long: "Isolane gives a workload a lane: CPUs, memory and interrupts of its own, and proves by\n" +
			"measurement under noisy neighbours what that is worth on this machine.",
		Version: version.Of().String(),
	}, hostCommand(), auditCommand(), claimsCommand(), planCommand(),
		coresCommand(), applyCommand(), diffCommand(), statusCommand(), watchCommand(), topCommand(), runCommand(),
		attachCommand(), releaseCommand(), recoverCommand(), historyCommand(), bootCommand(), proveCommand(),
		scenariosCommand(), reportCommand(), compareCommand(), explainCommand(), versionCommand(), probeCommand(),
		unitCommand(), agentCommand(), hubCommand())
	cli.Code(root, coded)
	return root
}
