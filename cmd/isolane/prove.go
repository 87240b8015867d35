package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/cli"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/prove"
	"isolane.dev/isolane/prove/drivers"
	"isolane.dev/isolane/prove/layout"
	"isolane.dev/isolane/report"
	"isolane.dev/isolane/version"
)

func proveCommand() *cobra.Command {
	var r prove.Request
	var selfTest bool
	modes := map[string]*bool{}
	cmd := &cobra.Command{
		Use:   "prove [SCENARIO|FILE]",
		Short: "Measure what noisy neighbours do on this machine, and what a lane gives back",
		Long: "Runs a scenario: blocks of all its cells in random order. Each run has fresh processes, and\n" +
			"evidence of where they ran. Without a name it runs the scenario edge. Needs root, and leaves the\n" +
			"host as it was.\n\n" +
			"With --lane the probes run in a lane in force, beside its workload. Each bound of its objective\n" +
			"is then held, missed or unproven, and isolane status says so until the kernel, the lane or its\n" +
			"neighbours change. The exit code is 3 if a bound is not held, or if cells are left that need\n" +
			"another boot.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for mode, chosen := range modes {
				if *chosen {
					r.Mode = mode
				}
			}
			r.Scenario, r.Kinds = strings.Join(args, ""), drivers.Kinds()
			return runProve(cmd, r, selfTest)
		},
	}
	f := cmd.Flags()
	modes["quick"] = f.Bool("quick", false, "3 blocks: figures and no verdict (the default)")
	modes["standard"] = f.Bool("standard", false, "10 blocks: a verdict")
	modes["proof"] = f.Bool("proof", false, "20 blocks and long windows: proof")
	f.StringSliceVar(&r.Cells, "cells", nil, "cells to run, by their names, or all; default: the scenario's")
	f.Uint64Var(&r.Seed, "seed", 0, "of the cells' order and arrivals; default: random, and printed")
	f.StringVar(&r.Dir, "out", "", "directory of the results; default: isolane-results/SCENARIO-TIME")
	f.StringVar(&r.Resume, "resume", "", "go on with the interrupted session in this directory")
	f.StringVar(&r.Lane, "lane", "", "a lane in force: measure in it, and judge its objective")
	f.StringVar(&r.Runtime, "runtime", "",
		"of application and neighbours: `pod` of this node, by kubectl; default: processes")
	f.StringVar(&r.Static, "static-node", "",
		"with pods: a second node of this machine, whose kubelet gives the CPUs of *pinned* (policy static)")
	f.BoolVar(&selfTest, "self-test", false, "break three things on purpose and see whether they are caught")
	cmd.MarkFlagsMutuallyExclusive("quick", "standard", "proof")
	cli.Alone(cmd, "resume", "out", "seed", "cells", "self-test", "lane", "runtime", "static-node")
	cli.Alone(cmd, "lane", "cells", "self-test", "runtime")
	return cmd
}

func runProve(cmd *cobra.Command, r prove.Request, selfTest bool) error {
	o, err := r.Options()
	if err != nil {
		return cli.Usage(err)
	}
	if err = o.Ready(cmd.Context()); err != nil {
		return err
	}
	o.Root, o.Lanes, o.Paths = host.Live(), options(), drivers.Paths()
	if selfTest {
		fmt.Fprintln(cmd.ErrOrStderr(), "breaking three things on purpose, about 15 s")
		err = prove.SelfTest(cmd.Context(), o, cmd.OutOrStdout())
		if errors.Is(err, prove.ErrInput) || errors.Is(err, layout.ErrTooSmall) { // the tool failed
			err = cli.Hint(err, "")
		}
		return err
	}
	o.Versions = o.VersionsOf(cmd.Context(), version.Of().String())
	show := prove.NewDisplay(cmd.ErrOrStderr())
	o.Plan, o.Progress = show.Plan, show.Progress
	session, err := prove.Run(cmd.Context(), o)
	show.Done()
	if len(session.Runs) == 0 {
		return err
	}
	d, serr := report.Store(o.Dir, session)
	if serr == nil {
		d.Write(cmd.OutOrStdout())
	}
	if err == nil && serr == nil && session.Lane != nil {
		serr = prove.Record(cmd.Context(), options(), o.Dir, session, d.Objective)
		if serr == nil || errors.Is(serr, prove.ErrNotHeld) {
			did := thisHost(cmd)
			did.Proved(session.Lane.Name, o.Dir, d.Objective)
			did.Keep()
		}
	}
	return errors.Join(err, serr)
}

func scenariosCommand() *cobra.Command {
	return cli.Prints(&cobra.Command{
		Use:   "scenarios",
		Short: "List the scenarios that come with isolane",
	}, func(*cobra.Command, []string) (cli.Document, error) { return prove.List(drivers.Kinds()) })
}

func probeCommand() *cobra.Command {
	var serve bool
	var c probe.Conditions
	cmd := &cobra.Command{
		Use:   "probe KIND [SETTINGS]",
		Short: "Run one measuring program by itself: the client that measures, or the application (--serve)",
		Long: "SETTINGS are those of a probe in a scenario, as YAML without name and kind:\n\n" +
			"    isolane probe echo --serve &\n" +
			"    isolane probe echo '{protocol: tcp, mode: open, rate: 1000}'",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			do, err := probe.ByHand(drivers.Kinds().Probes, args[0], strings.Join(args[1:], ""), c, serve)
			if err != nil {
				return cli.Usage(err)
			}
			return do(cmd.Context(), cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.BoolVar(&serve, "serve", false, "be the application")
	f.TextVar(&c.Address, "address", netip.MustParseAddrPort("127.0.0.1:7007"), "of the application, `IP:PORT`")
	f.StringVar(&c.Dir, "dir", "", "for files that the application needs; default: one that goes with it")
	f.StringVar(&c.Name, "name", "by hand", "of the measurement")
	f.DurationVar(&c.Warmup, "warmup", 100*time.Millisecond, "measured and dropped")
	f.DurationVar(&c.Window, "window", time.Second, "measured")
	f.Int64Var(&c.Start, "start", 0, "CLOCK_MONOTONIC in nanoseconds when it begins (http, router)")
	return cmd
}
