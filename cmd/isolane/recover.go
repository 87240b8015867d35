package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/journal"
)

func recoverCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "recover",
		Short: "Undo what a crash of isolane left on this host",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := needRoot("recover"); err != nil {
				return err
			}
			// An undo that has begun is finished, whatever the user presses.
			found, err := journal.Recover(context.WithoutCancel(cmd.Context()), journal.Dir, ops())
			if err != nil {
				return fail(err)
			}
			if len(found) == 0 {
				fmt.Fprintln(cmd.OutOrStdout(), "nothing to recover")
				return nil
			}
			fmt.Fprintf(cmd.OutOrStdout(), "undone: %s\n", strings.Join(found, ", "))
			return nil
		},
	}
}
