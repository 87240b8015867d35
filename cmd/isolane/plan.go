package main

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/draw"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
)

func planCommand() *cobra.Command {
	var file, format string
	var from source
	cmd := &cobra.Command{
		Use:   "plan -f LANES",
		Short: "Show what would go where on this machine, and why",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains([]string{"text", "json", "svg"}, format) {
				return usage(fmt.Errorf("-o %q: expected text, json or svg", format))
			}
			f, err := os.Open(file)
			if err != nil {
				return usage(err)
			}
			defer f.Close() //nolint:errcheck // only read
			lanes, err := lane.Parse(file, f)
			if err != nil {
				return usage(err)
			}
			h, _, err := from.read()
			if err != nil {
				return err
			}
			p, err := plan.Solve(h, plan.Placement{}, lanes)
			return showPlan(cmd, h, p, err, format)
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "file with lanes (YAML)")
	from.flags(cmd)
	cmd.Flags().StringVarP(&format, "output", "o", "text", "text, json or svg")
	if err := cmd.MarkFlagRequired("file"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

func showPlan(cmd *cobra.Command, h host.Host, p plan.Placement, err error, format string) error {
	w := cmd.OutOrStdout()
	var refusal *plan.Refusal
	switch {
	case errors.As(err, &refusal):
		if format == "json" {
			if jerr := printJSON(w, refusal); jerr != nil {
				return jerr
			}
		}
		return no(err)
	case err != nil:
		return fail(err)
	case format == "json":
		return printJSON(w, p)
	case format == "svg":
		if err = draw.SVG(w, h, p); err != nil {
			return fail(err)
		}
		return nil
	}
	for _, l := range p.Lanes {
		fmt.Fprintf(w, "lane %s: CPUs %s, memory of NUMA node %s\n", l.Name, l.CPUs, l.MemoryNodes)
		for _, reason := range l.Reasons {
			fmt.Fprintf(w, "  %s\n", reason)
		}
	}
	fmt.Fprintf(w, "housekeeping: CPUs %s\n", p.Housekeeping)
	return nil
}
