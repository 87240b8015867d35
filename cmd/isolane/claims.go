package main

import (
	"errors"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/claims"
	"isolane.dev/isolane/claims/rules"
	"isolane.dev/isolane/cli"
)

func claimsCommand() *cobra.Command {
	var failOn claims.Severity
	cmd := cli.Prints(&cobra.Command{
		Use:   "audit-claims FILE.csv",
		Short: "Do the arithmetic over published figures: what does not add up, and what is not said",
		Args:  cobra.ExactArgs(1),
	}, func(cmd *cobra.Command, args []string) (cli.Document, error) {
		r, err := rules.AuditFile(cmd.Context(), args[0])
		if ctxErr := cmd.Context().Err(); ctxErr != nil {
			return nil, ctxErr
		}
		if err != nil {
			return nil, cli.Usage(err)
		}
		if failOn > claims.None && r.Worst() >= failOn {
			err = cli.Beside(cli.No(errors.New(r.Verdict())))
		}
		return r, err
	})
	cmd.Flags().TextVar(&failOn, "fail-on", claims.None,
		"exit with 3 from this `severity` on: unsaid, suspicious, impossible or contradiction")
	return cmd
}
