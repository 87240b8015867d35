package main

import (
	"github.com/spf13/cobra"

	"isolane.dev/isolane/cli"
	"isolane.dev/isolane/lane/explain"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/netpath/drivers"
	"isolane.dev/isolane/version"
)

func versionCommand() *cobra.Command {
	return cli.Prints(&cobra.Command{
		Use:   "version",
		Short: "Show the version and the commit that this program was built from",
	}, func(*cobra.Command, []string) (cli.Document, error) { return version.Of(), nil })
}

func explainCommand() *cobra.Command {
	return &cobra.Command{
		Use:       "explain {lane[.FIELD...] | examples[/NAME]}",
		Short:     "Explain the fields of a file with lanes (lane.spec.cpus), and show examples (examples/web)",
		Args:      cobra.ExactArgs(1),
		ValidArgs: explain.Topics(),
		RunE: func(cmd *cobra.Command, args []string) error {
			return cli.Usage(explain.Write(cmd.OutOrStdout(), args[0], netpath.Choices(drivers.Paths())))
		},
	}
}
