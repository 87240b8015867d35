package main

import (
	"github.com/spf13/cobra"

	"isolane.dev/isolane/results"
)

func reportCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "report DIR",
		Short: "Write the table and the page again from stored results",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := results.Read(args[0])
			if err != nil {
				return usage(err)
			}
			if err = present(cmd.OutOrStdout(), args[0], s); err != nil {
				return fail(err)
			}
			return nil
		},
	}
}
