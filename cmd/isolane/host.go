package main

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/draw"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/snapshot"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/terminal"
)

func hostCommand() *cobra.Command {
	var out output
	var from source
	cmd := &cobra.Command{
		Use:   "host",
		Short: "Show the machine: CPUs, caches, NUMA nodes, interrupts, kernel",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, p, err := from.withLanes()
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			switch out.format {
			case "json":
				return printJSON(w, machine{h, p.Lanes})
			case "svg":
				err = draw.SVG(w, h, p)
			default:
				err = draw.Text(w, h, p, terminal.Of(w))
			}
			if err != nil {
				return fail(err)
			}
			return nil
		},
	}
	from.flags(cmd)
	out.flags(cmd, "text", "json", "svg")
	cmd.AddCommand(snapshotCommand())
	return cmd
}

// withLanes reads the machine as it was before the lanes in force, and these.
func (s *source) withLanes() (host.Host, plan.Placement, error) {
	h, _, err := s.read()
	if err != nil {
		return h, plan.Placement{}, err
	}
	l, err := s.inForce()
	if err != nil {
		return h, plan.Placement{}, fail(err)
	}
	if len(l.Placement.Lanes) == 0 {
		return h, l.Placement, nil
	}
	v, err := l.View()
	if err != nil {
		return h, plan.Placement{}, fail(err)
	}
	return v.Host, l.Placement, nil
}

// machine is the JSON of isolane host: the host, and what its lanes own.
type machine struct {
	host.Host
	Lanes []plan.Lane `json:"lanes"`
}

// MarshalJSON adds the lanes to what the host prints of itself.
func (m machine) MarshalJSON() ([]byte, error) {
	h, err := json.Marshal(m.Host)
	if err != nil {
		return nil, err
	}
	lanes, err := json.Marshal(append([]plan.Lane{}, m.Lanes...))
	return slices.Concat(h[:len(h)-1], []byte(`,"lanes":`), lanes, []byte("}")), err
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
			rec := snapshot.Record(root)
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
