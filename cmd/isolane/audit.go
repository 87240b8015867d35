package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/audit"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/terminal"
)

func auditCommand() *cobra.Command {
	var from source
	var lanes, failOn string
	var out output
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Say what keeps the machine from being deterministic; changes nothing",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			threshold, known := map[string]audit.Severity{"": audit.Fault + 1, "warn": audit.Warn,
				"fault": audit.Fault}[failOn]
			if !known {
				return usage(fmt.Errorf("--fail-on %q: expected warn or fault", failOn))
			}
			h, root, err := from.read()
			if err != nil {
				return err
			}
			lane, err := laneCPUs(h, lanes)
			if err != nil {
				return usage(err)
			}
			named := "named by --lane-cpus"
			if lanes == "" {
				inForce, ferr := from.inForce()
				if ferr != nil {
					return fail(ferr)
				}
				lane, named = inForce.Placement.CPUs(), "of the lanes in force"
			}
			r := audit.Run(h, host.ReadSettings(root), lane, named)
			if out.json() {
				err = printJSON(cmd.OutOrStdout(), r)
			} else {
				err = r.Write(cmd.OutOrStdout(), terminal.Of(cmd.OutOrStdout()))
			}
			if err != nil {
				return fail(err)
			}
			if r.Worst() >= threshold {
				return no(errors.New(r.Verdict()))
			}
			return nil
		},
	}
	from.flags(cmd)
	cmd.Flags().StringVar(&lanes, "lane-cpus", "",
		"CPUs that lanes have (cpulist); without it, those of the lanes in force, else those that the machine "+
			"isolates")
	out.flags(cmd, "text", "json")
	cmd.Flags().StringVar(&failOn, "fail-on", "", "exit with 3 from this severity on: warn or fault")
	return cmd
}

// laneCPUs reads --lane-cpus. A CPU that the machine does not have is a mistake; one that is offline
// is a finding.
func laneCPUs(h host.Host, list string) (cpuset.Set, error) {
	var ids []int
	for _, c := range h.CPUs {
		ids = append(ids, c.ID)
	}
	possible := cpuset.Of(ids...)
	lane, err := cpuset.ParseWithin(list, possible)
	if err != nil {
		return lane, fmt.Errorf("--lane-cpus: %w", err)
	}
	if gone := lane.Difference(possible); !gone.IsEmpty() {
		return lane, fmt.Errorf("--lane-cpus: there are no CPUs %s, the machine has %s", gone, possible)
	}
	return lane, nil
}
