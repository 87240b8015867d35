package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/journal"
)

func recoverCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "recover",
		Short: "End what a crash of isolane has left half done: the lanes that were in force stay, all else is undone",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// An undo that has begun is finished, whatever the user presses.
			ctx := context.WithoutCancel(cmd.Context())
			l, err := openLanes("recover")
			if err != nil {
				return err
			}
			steps, err := l.Recover(ctx)
			keep := l.Journals()
			if err = errors.Join(err, l.Close()); err != nil {
				return fail(err)
			}
			w := cmd.OutOrStdout()
			printLeft(w, l.Left)
			found, err := journal.Recover(ctx, journal.Dir, ops(), keep...)
			if err != nil {
				return fail(err)
			}
			for _, name := range found {
				fmt.Fprintln(w, "undone:", name)
			}
			switch {
			case steps > 0:
				fmt.Fprintf(w, "lanes: %d settings put back to what was in force\n", steps)
			case len(found) == 0:
				fmt.Fprintln(w, "nothing to recover")
			}
			return nil
		},
	}
}
