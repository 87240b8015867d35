package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/audit"
	"isolane.dev/isolane/audit/rules"
	"isolane.dev/isolane/cli"
	"isolane.dev/isolane/draw"
	"isolane.dev/isolane/host/settings"
	"isolane.dev/isolane/host/snapshot"
	"isolane.dev/isolane/terminal"
)

func hostCommand() *cobra.Command {
	var out cli.Output
	var from source
	cmd := &cobra.Command{
		Use:   "host",
		Short: "Show the machine: CPUs, caches, NUMA nodes, interrupts, kernel",
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, _, err := from.read()
			if err != nil {
				return err
			}
			l, _, err := from.inForce()
			if err != nil {
				return err
			}
			m, err := l.Machine(h)
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			switch out.String() {
			case "json":
				return cli.PrintJSON(w, m)
			case "svg":
				return draw.SVG(w, m.Host, l.Placement)
			}
			return draw.Text(w, m.Host, l.Placement, terminal.Of(w))
		},
	}
	from.flags(cmd)
	out.Flags(cmd, "text", "json", "svg")
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
			root, err := from.Open()
			if err != nil {
				return cli.Usage(err)
			}
			if err = snapshot.Save(root, args[0]); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: read it with: isolane host --snapshot %s\n", args[0], args[0])
			return nil
		},
	}
	from.flags(cmd)
	return cmd
}

func auditCommand() *cobra.Command {
	var from source
	var lanes string
	var failOn audit.Severity
	var out cli.Output
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Say what keeps the machine from being deterministic; changes nothing",
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, root, err := from.read()
			if err != nil {
				return err
			}
			lane, err := rules.LaneCPUs(h, lanes)
			if err != nil {
				return cli.Usage(fmt.Errorf("--lane-cpus: %w", err))
			}
			named := "named by --lane-cpus"
			if lanes == "" {
				l, _, lerr := from.inForce()
				if lerr != nil {
					return lerr
				}
				lane, named = l.Placement.CPUs(), "of the lanes in force"
			}
			r := rules.Run(h, settings.Read(root), lane, named)
			// What cannot be written ends the command, see terminal.Checked.
			err = out.PrintAs(cmd, r, func(w io.Writer) { _ = r.Write(w, terminal.Of(w)) })
			if err == nil && failOn > audit.None && r.Worst() >= failOn {
				err = cli.No(errors.New(r.Verdict()))
			}
			return err
		},
	}
	from.flags(cmd)
	cmd.Flags().StringVar(&lanes, "lane-cpus", "",
		"CPUs that lanes have (cpulist); without it, those of the lanes in force, else those that the machine "+
			"isolates")
	out.Flags(cmd, "text", "json")
	cmd.Flags().TextVar(&failOn, "fail-on", audit.None, "exit with 3 from this `severity` on: warn or fault")
	return cmd
}
