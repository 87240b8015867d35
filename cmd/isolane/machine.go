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
	var from source
	cmd := cli.Prints(&cobra.Command{
		Use:   "host",
		Short: "Show the machine: CPUs, caches, NUMA nodes, interrupts, kernel",
	}, func(*cobra.Command, []string) (cli.Document, error) {
		h, _, err := from.read()
		if err != nil {
			return nil, err
		}
		l, _, err := from.inForce()
		if err != nil {
			return nil, err
		}
		m, err := l.Machine(h)
		return cli.Written{Document: m,
			Text: func(w io.Writer) { _ = draw.Text(w, m.Host, l.Placement, terminal.Of(w)) },
			SVG:  func(w io.Writer) { _ = draw.SVG(w, m.Host, l.Placement) }}, err
	}, "svg")
	from.flags(cmd, "")
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
	from.flags(cmd, "")
	return cmd
}

func auditCommand() *cobra.Command {
	var from source
	var lanes string
	var failOn audit.Severity
	cmd := cli.Prints(&cobra.Command{
		Use:   "audit",
		Short: "Say what keeps the machine from being deterministic; changes nothing",
	}, func(*cobra.Command, []string) (cli.Document, error) {
		h, root, err := from.read()
		if err != nil {
			return nil, err
		}
		lane, err := rules.LaneCPUs(h, lanes)
		if err != nil {
			return nil, cli.Usage(fmt.Errorf("--lane-cpus: %w", err))
		}
		named := "named by --lane-cpus"
		if lanes == "" {
			l, _, lerr := from.inForce()
			if lerr != nil {
				return nil, lerr
			}
			lane, named = l.Placement.CPUs(), "of the lanes in force"
		}
		r := rules.Run(h, settings.Read(root), lane, named)
		if failOn > audit.None && r.Worst() >= failOn {
			err = cli.Beside(cli.No(errors.New(r.Verdict())))
		}
		return r, err
	})
	from.flags(cmd, "")
	cmd.Flags().StringVar(&lanes, "lane-cpus", "",
		"CPUs that lanes have (cpulist); without it, those of the lanes in force, else those that the machine "+
			"isolates")
	cmd.Flags().TextVar(&failOn, "fail-on", audit.None, "exit with 3 from this `severity` on: warn or fault")
	return cmd
}
