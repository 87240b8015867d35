package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/draw"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/plan"
)

func hostCommand() *cobra.Command {
	var format string
	var from source
	cmd := &cobra.Command{
		Use:   "host",
		Short: "Show the machine: CPUs, caches, NUMA nodes, interrupts, kernel",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains([]string{"text", "json", "svg"}, format) {
				return usage(fmt.Errorf("-o %q: expected text, json or svg", format))
			}
			h, _, err := from.read()
			if err != nil {
				return err
			}
			switch format {
			case "json":
				return printJSON(cmd.OutOrStdout(), h)
			case "svg":
				err = draw.SVG(cmd.OutOrStdout(), h, plan.Placement{})
			default:
				err = draw.Text(cmd.OutOrStdout(), h, plan.Placement{})
			}
			if err != nil {
				return fail(err)
			}
			return nil
		},
	}
	from.flags(cmd)
	cmd.Flags().StringVarP(&format, "output", "o", "text", "text, json or svg")
	cmd.AddCommand(snapshotCommand())
	return cmd
}

func snapshotCommand() *cobra.Command {
	var from source
	cmd := &cobra.Command{
		Use:   "snapshot FILE",
		Short: "Save what was read of the machine, to be read elsewhere: FILE.tar, .tar.gz or .tar.zst",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			root, err := from.open()
			if err != nil {
				return usage(err)
			}
			rec := host.Record(root)
			if _, err := host.Read(rec); err != nil {
				return fail(err)
			}
			host.ReadSettings(rec) // so that the snapshot can be audited
			if err := rec.Save(args[0]); err != nil {
				return fail(err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: read it with: isolane host --snapshot %s\n", args[0], args[0])
			return nil
		},
	}
	from.flags(cmd)
	return cmd
}
