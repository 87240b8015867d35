package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/host"
)

func hostCommand() *cobra.Command {
	var format string
	var from source
	cmd := &cobra.Command{
		Use:   "host",
		Short: "Show the machine: CPUs, caches, NUMA nodes, interrupts, kernel",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, _, err := from.read()
			if err != nil {
				return err
			}
			switch format {
			case "json":
				return printJSON(cmd.OutOrStdout(), h)
			case "text":
				printHost(cmd.OutOrStdout(), h)
				return nil
			}
			return usage(fmt.Errorf("-o %q: expected text or json", format))
		},
	}
	from.flags(cmd)
	cmd.Flags().StringVarP(&format, "output", "o", "text", "text or json")
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

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return fail(err)
	}
	return nil
}

func printHost(w io.Writer, h host.Host) {
	fmt.Fprintf(w, "%s: %s, kernel %s\n", h.Hostname, h.Kernel.CPUModel, h.Kernel.Release)
	fmt.Fprintf(w, "CPUs %s online, %s usable, %d cores, %d MiB memory\n", h.Online(), h.Usable(), len(h.Cores()), h.MemoryBytes>>20)
	for _, n := range h.NUMANodes {
		fmt.Fprintf(w, "NUMA node %d: CPUs %s, %d MiB, distances %v\n", n.ID, n.CPUs, n.MemoryBytes>>20, n.Distances)
	}
	for i, core := range h.Cores() {
		c, _ := h.CPU(core.First())
		fmt.Fprintf(w, "core %d: CPUs %s, package %s, L3 %s, %s\n", i, core, known(c.Package), known(c.L3), c.Kind)
	}
	fmt.Fprintf(w, "%d interrupts, cgroup %s, idle %s/%s, clock %s\n", len(h.Interrupts), h.Kernel.Cgroup.Version,
		h.Kernel.IdleDriver, h.Kernel.IdleGovernor, h.Kernel.Clocksource)
	for _, warning := range h.Warnings {
		fmt.Fprintln(w, "warning:", warning)
	}
}

func known(n *int) string {
	if n == nil {
		return "unknown"
	}
	return fmt.Sprint(*n)
}
