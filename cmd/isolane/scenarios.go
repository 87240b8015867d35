package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/scenarios"
)

// scenariosDocument is the JSON of isolane scenarios.
type scenariosDocument struct {
	head
	Scenarios []scenarioLine `json:"scenarios"`
}

type scenarioLine struct {
	Name  string `json:"name"`
	Title string `json:"title"`
}

func scenariosCommand() *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   "scenarios",
		Short: "List the scenarios that come with isolane",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			files, err := scenarios.Files.ReadDir(".")
			if err != nil {
				return fail(err)
			}
			list := scenariosDocument{head: document("Scenarios"), Scenarios: []scenarioLine{}}
			for _, f := range files {
				name := strings.TrimSuffix(f.Name(), ".yaml")
				s, err := loadScenario(name)
				if err != nil {
					return fail(err)
				}
				list.Scenarios = append(list.Scenarios, scenarioLine{name, s.Metadata.Title})
			}
			if out.json() {
				return printJSON(cmd.OutOrStdout(), list)
			}
			for _, s := range list.Scenarios {
				fmt.Fprintf(cmd.OutOrStdout(), "%-10s %s\n", s.Name, s.Title)
			}
			return nil
		},
	}
	out.flags(cmd, "text", "json")
	return cmd
}
