package main

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/claims"
	"isolane.dev/isolane/claims/rules"
	"isolane.dev/isolane/cli"
	"isolane.dev/isolane/terminal"
)

func claimsCommand() *cobra.Command {
	var out cli.Output
	var failOn claims.Severity
	cmd := &cobra.Command{
		Use:   "audit-claims FILE.csv",
		Short: "Do the arithmetic over published figures: what does not add up, and what is not said",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := rules.AuditFile(cmd.Context(), args[0])
			if ctxErr := cmd.Context().Err(); ctxErr != nil {
				return ctxErr
			}
			if err != nil {
				return cli.Usage(err)
			}
			err = out.PrintAs(cmd, r, func(w io.Writer) { _ = r.Write(w, terminal.Of(w)) })
			if err == nil && failOn > claims.None && r.Worst() >= failOn {
				err = cli.No(errors.New(r.Verdict()))
			}
			return err
		},
	}
	out.Flags(cmd, "text", "json")
	cmd.Flags().TextVar(&failOn, "fail-on", claims.None,
		"exit with 3 from this `severity` on: unsaid, suspicious, impossible or contradiction")
	return cmd
}
