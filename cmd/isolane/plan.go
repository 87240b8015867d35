package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/draw"
	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/quantity"
)

func planCommand() *cobra.Command {
	var files laneFiles
	var placedFile string
	var out output
	var repack bool
	var from source
	cmd := &cobra.Command{
		Use:   "plan -f LANES",
		Short: "Show what would go where on this machine, and why",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			want, err := files.read(cmd)
			if err != nil {
				return err
			}
			var placed plan.Placement
			if placedFile != "" {
				if placed, err = readFile(placedFile, plan.Read); err != nil {
					return err
				}
			}
			h, _, err := from.read()
			if err != nil {
				return err
			}
			var l *lanes.Lanes
			if placedFile == "" { // beside the lanes in force, on the machine as it was before them
				if l, err = from.inForce(); err != nil {
					return fail(err)
				}
			}
			var p plan.Placement
			refusal := enforce.Refuse(want)
			switch {
			case refusal != nil:
				err = refusal
			case l == nil || len(l.Placement.Lanes) == 0:
				p, err = solver(repack)(h, placed, want)
			case repack:
				return usage(errors.New("--repack: name the placement with --placed FILE"))
			default:
				p, h, err = l.Want(want, false)
			}
			var other *plan.Mismatch
			if errors.As(err, &other) {
				return mismatch(placedFile, other)
			}
			return showPlan(cmd, h, p, err, files.String(), out.format)
		},
	}
	files.flags(cmd)
	cmd.Flags().StringVar(&placedFile, "placed", "",
		"placement that is in force already (what -o json prints); without it, the lanes in force here")
	cmd.Flags().BoolVar(&repack, "repack", false,
		"move lanes that are placed, where that saves something that costs more")
	from.flags(cmd)
	out.flags(cmd, "text", "json", "svg")
	if err := cmd.MarkFlagRequired("file"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

func solver(repack bool) func(host.Host, plan.Placement, []lane.Lane) (plan.Placement, error) {
	if repack {
		return plan.Repack
	}
	return plan.Solve
}

// readFile opens and parses what the user named.
func readFile[T any](name string, parse func(string, io.Reader) (T, error)) (T, error) {
	var none T
	f, err := os.Open(name)
	if err != nil {
		return none, usage(err)
	}
	defer f.Close()
	v, err := parse(name, f)
	if err != nil {
		return none, usage(err)
	}
	return v, nil
}

// mismatch is bad input where the placement is of another machine; where lanes have lost CPUs, the
// answer is no, and how to get back.
func mismatch(file string, m *plan.Mismatch) error {
	err := fmt.Errorf("%s: %w", file, m)
	if len(m.Lost) == 0 {
		return usage(err)
	}
	return &exitError{code: exitNo, err: err,
		hint: "--repack plans how lanes get back to CPUs that are there: " + strings.Join(m.Lost, ", ")}
}

func showPlan(cmd *cobra.Command, h host.Host, p plan.Placement, err error, file, format string) error {
	w := cmd.OutOrStdout()
	var refusal *plan.Refusal
	switch {
	case errors.As(err, &refusal):
		if format == "json" {
			if jerr := printJSON(w, refusal); jerr != nil {
				return jerr
			}
		}
		return no(fmt.Errorf("%s: %w", file, err))
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
	printPlan(w, p)
	return nil
}

func printPlan(w io.Writer, p plan.Placement) {
	for i, m := range p.Moves {
		fmt.Fprintf(w, "move %d: %s from CPUs %s to %s", i+1, m.Lane, m.From, m.To)
		if m.MemoryBytes > 0 {
			fmt.Fprintf(w, ", %s of memory", quantity.Bytes(m.MemoryBytes))
		}
		fmt.Fprintf(w, " (%s)\n", m.Reason)
	}
	for _, l := range p.Lanes {
		fmt.Fprintf(w, "lane %s: CPUs %s, memory of NUMA node %s\n", l.Name, l.CPUs, l.MemoryNodes)
		for _, role := range slices.Sorted(maps.Keys(l.Roles)) {
			fmt.Fprintf(w, "  %s: CPUs %s\n", role, l.Roles[role])
		}
		for _, reason := range l.Reasons {
			fmt.Fprintf(w, "  %s\n", reason)
		}
	}
	fmt.Fprintf(w, "housekeeping: CPUs %s\n", p.Housekeeping)
	if p.Optimal {
		fmt.Fprintln(w, "optimal: nothing costs less")
	} else {
		fmt.Fprintf(w, "not known to be optimal: %s\n", p.Cost.Above(*p.Bound))
		fmt.Fprintf(w, "  it costs: %s\n  nothing costs less than: %s\n", p.Cost, *p.Bound)
	}
}
