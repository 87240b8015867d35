package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/scenarios"
)

func scenariosCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "scenarios",
		Short: "List the scenarios that come with isolane",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			files, err := scenarios.Files.ReadDir(".")
			if err != nil {
				return fail(err)
			}
			for _, f := range files {
				name := strings.TrimSuffix(f.Name(), ".yaml")
				s, err := loadScenario(name)
				if err != nil {
					return fail(err)
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%-10s %s\n", name, s.Metadata.Title)
			}
			return nil
		},
	}
}
