package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/cores"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/plan"
)

// coresDocument is the JSON of isolane cores.
type coresDocument struct {
	head
	Lane        string     `json:"lane"`
	Application string     `json:"application"`
	CPUs        cpuset.Set `json:"cpus"`
	Text        string     `json:"text"` // what the application reads
}

func coresCommand() *cobra.Command {
	var app, placedFile, granted string
	var out output
	var from source
	var help strings.Builder
	for _, a := range cores.Apps() {
		fmt.Fprintf(&help, "  %-11s %s\n", a.Name, a.About)
	}
	cmd := &cobra.Command{
		Use:   "cores NAME --for APPLICATION",
		Short: "Write the core lists that an application in a lane needs",
		Long:  "Writes what an application needs to be told of its lane. The applications:\n" + help.String(),
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := from.placed(placedFile)
			if err != nil {
				return err
			}
			at := slices.IndexFunc(p.Lanes, func(l plan.Lane) bool { return l.Name == args[0] })
			if at < 0 {
				return usage(fmt.Errorf("%s: there is no lane %q", cmp.Or(placedFile, "in force"), args[0]))
			}
			set, err := cpuset.Parse(granted)
			if err != nil {
				return usage(fmt.Errorf("--cpuset: %w", err))
			}
			h, _, err := from.read()
			if err != nil {
				return err
			}
			text, err := cores.Write(app, cores.Request{Lane: p.Lanes[at], Lanes: p.Lanes,
				Housekeeping: p.Housekeeping,
				Granted:      set, Cores: h.CoresOf(h.Online()), MemoryNodes: h.MemoryNodes()})
			if err != nil {
				return usage(err)
			}
			if out.json() {
				return printJSON(cmd.OutOrStdout(), coresDocument{document("Cores"), args[0], app, p.Lanes[at].CPUs,
					text})
			}
			fmt.Fprint(cmd.OutOrStdout(), text)
			return nil
		},
	}
	cmd.Flags().StringVar(&app, "for", "", "application, one of those above")
	cmd.Flags().StringVar(&placedFile, "placed", "",
		"placement with the lane (what plan -o json prints); without it, the lanes in force")
	cmd.Flags().StringVar(&granted, "cpuset", "",
		"cpuset that the application will see (cpulist); without it, the lane's CPUs")
	from.flags(cmd)
	out.flags(cmd, "text", "json")
	if err := cmd.MarkFlagRequired("for"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}
