package main

import (
	"os"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/top"
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
			return top.Run(cmd.Context(), options(), os.Stdin, cmd.OutOrStdout())
		},
	}
}
