package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/runtime/spread"
)

// spreadCommand is what a step of kind enforce.Spreader starts.
func spreadCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "spread",
		Short:  "Spread threads over the CPUs of lanes that the kernel does not balance, until there are none",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := spreadThreads(cmd.Context()); err != nil {
				return fail(err)
			}
			return nil
		},
	}
}

func spreadThreads(ctx context.Context) error {
	root := host.Live()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var groups []enforce.LaneGroup
	for n := 0; ; n++ {
		if n%20 == 0 { // lanes come and go, and workloads
			l, err := enforce.Look(journal.Dir, root, ops())
			if err != nil {
				return err
			}
			if groups, err = l.Groups(); err != nil {
				return err
			}
		}
		for _, g := range groups {
			if !g.Spread {
				continue
			}
			if err := spread.Once(root, g.Dir, g.Lane.CPUs); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
