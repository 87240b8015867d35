package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/cli"
	"isolane.dev/isolane/terminal"
	"isolane.dev/isolane/top"
	"isolane.dev/isolane/watch"
)

func topCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "top",
		Short: "Show the lanes live in a terminal: who disturbs them, what drifts, their packets and objectives",
		Long: "Shows what isolane watch prints, as top(1) shows processes: the lanes with what took time from\n" +
			"their CPUs in the last second and since the start, and the sources of the selected lane. Arrows\n" +
			"select, Enter shows a lane's sources and what to do about them, s sorts, p pauses, h shows all\n" +
			"keys, q quits. The screen is updated once a second. top changes nothing. Needs root.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, is := cmd.OutOrStdout().(*os.File)
			if !is || terminal.Height(out) == 0 || terminal.Height(os.Stdin) == 0 {
				return cli.Hint(errors.New("top needs a terminal"), "isolane watch prints the same, a line a second; "+
					"watch -o json: a document a second")
			}
			if err := watch.Need("top"); err != nil {
				return err
			}
			return top.Run(cmd.Context(), options(), os.Stdin, out)
		},
	}
}
