package main

import (
	"errors"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/cli"
	"isolane.dev/isolane/prove"
	"isolane.dev/isolane/prove/drivers"
	"isolane.dev/isolane/report"
	"isolane.dev/isolane/report/answers"
	"isolane.dev/isolane/report/compare"
	"isolane.dev/isolane/report/export"
	"isolane.dev/isolane/results"
)

func reportCommand() *cobra.Command {
	var to export.Exports
	var table string
	cmd := cli.Prints(&cobra.Command{
		Use:   "report DIR...",
		Short: "Write the table and the page again from stored results, and export them",
		Long: "Writes the page and the charts of a session beside its results, and prints the table. With\n" +
			"--export the session is written in the format of another program, to a file or, instead of the\n" +
			"table, to standard output:\n\n" + export.About() + "\n\nWith --answers the figures of a published " +
			"table (see audit-claims) are set beside those of\nsessions, one or more of them, as Markdown.",
		Args: cobra.MinimumNArgs(1),
	}, func(cmd *cobra.Command, args []string) (cli.Document, error) {
		switch flags := cmd.Flags(); {
		case table != "" && (flags.Changed("export") || flags.Changed("output")):
			return nil, cli.Usage(errors.New("--answers prints Markdown: expected neither --export nor -o"))
		case table != "":
			return nil, answer(cmd, table, args)
		case len(args) > 1:
			return nil, cli.Usage(errors.New("expected one directory, or --answers TABLE.csv, which takes several"))
		case to.Printed() && flags.Changed("output"):
			return nil, cli.Usage(errors.New("--export and -o both print: name a file, --export FORMAT=FILE"))
		}
		s, err := results.Read(args[0])
		if err == nil {
			err = to.RefuseOverwrite(args[0])
		}
		if err != nil {
			return nil, cli.Usage(err)
		}
		d, err := report.Store(args[0], s)
		if err == nil {
			err = to.Write(cmd.OutOrStdout(), d)
		}
		if err != nil || to.Printed() {
			return nil, err
		}
		return d, nil
	})
	cmd.Flags().Var(&to, "export", "write another format too, `FORMAT[=FILE]`; may be given several times")
	cmd.Flags().StringVar(&table, "answers", "",
		"set the figures of a published table, `TABLE.csv`, beside ours")
	return cmd
}

// answer prints what sessions say of a published table.
func answer(cmd *cobra.Command, table string, dirs []string) error {
	scenarios, err := prove.Own(drivers.Kinds())
	if err != nil {
		return err
	}
	page, err := answers.Stored(cmd.Context(), table, scenarios, dirs)
	if err != nil {
		return cli.Usage(err)
	}
	return page.Write(cmd.OutOrStdout())
}

func compareCommand() *cobra.Command {
	var all bool
	cmd := cli.Prints(&cobra.Command{
		Use:   "compare A B",
		Short: "Compare two sessions, and show what differs in their conditions",
		Long: "A and B are directories with results. Cells are matched by their levels, and each metric of B is\n" +
			"given in percent of that of A. The sessions were measured at different times, so drift between\n" +
			"them is not excluded, as it is within a session.",
		Args: cobra.ExactArgs(2),
	}, func(_ *cobra.Command, args []string) (cli.Document, error) {
		d, err := compare.Stored(args[0], args[1], all)
		return d, cli.Usage(err)
	})
	cmd.Flags().BoolVar(&all, "all", false, "compare all metrics, not the primary ones only")
	return cmd
}
