package main

import (
	"github.com/spf13/cobra"

	"isolane.dev/isolane/runtime/process"
)

// launchCommand is what runtime/process starts: it enters its confines and becomes the workload.
func launchCommand() *cobra.Command {
	var c process.Confines
	cmd := &cobra.Command{
		Use:    "launch [flags] -- COMMAND [ARG...]",
		Short:  "Become a command inside a namespace and a scheduling class",
		Hidden: true,
		Args:   cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return fail(process.Become(c, args))
		},
	}
	cmd.Flags().StringVar(&c.Netns, "netns", "", "network namespace to enter")
	cmd.Flags().StringVar(&c.Policy, "policy", "", "scheduling policy: fifo, rr or other")
	cmd.Flags().IntVar(&c.Priority, "priority", 0, "real-time priority")
	return cmd
}
