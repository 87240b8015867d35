package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/probe/echo"
	"isolane.dev/isolane/prove"
	"isolane.dev/isolane/report"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/version"
)

type proveFlags struct {
	quick, standard, proof bool
	selfTest               bool
	cells                  []string
	seed                   uint64
	out, resume            string
	lane                   string
}

func proveCommand() *cobra.Command {
	var f proveFlags
	cmd := &cobra.Command{
		Use:   "prove [SCENARIO|FILE]",
		Short: "Measure what noisy neighbours do on this machine, and what a lane gives back",
		Long: "Runs a scenario: blocks of all its cells in random order, with fresh processes in each run and\n" +
			"the evidence of where they ran. Without a name it runs the scenario edge. Needs root, and\n" +
			"leaves the host as it was.\n" +
			"With --lane the probes run in a lane in force, beside its workload: each bound of its objective\n" +
			"is held, missed or unproven then, and isolane status says so until the kernel, the lane or its\n" +
			"neighbours change. The exit code is 3 where a bound is not held.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.seed == 0 {
				f.seed = rand.Uint64N(1e9) + 1 //nolint:gosec // G404: any order will do, and it is printed
			}
			return runProve(cmd, args, f)
		},
	}
	cmd.Flags().BoolVar(&f.quick, "quick", false, "3 blocks: figures and no verdict (the default)")
	cmd.Flags().BoolVar(&f.standard, "standard", false, "10 blocks: a verdict")
	cmd.Flags().BoolVar(&f.proof, "proof", false, "20 blocks and long windows: proof")
	cmd.Flags().StringSliceVar(&f.cells, "cells", nil,
		"cells to run (noise-placement-path), or all; default: the scenario's")
	cmd.Flags().Uint64Var(&f.seed, "seed", 0, "order of the cells; default: random, and printed")
	cmd.Flags().StringVar(&f.out, "out", "", "directory of the results; default: isolane-results/SCENARIO-TIME")
	cmd.Flags().StringVar(&f.resume, "resume", "", "go on with the interrupted session in this directory")
	cmd.Flags().StringVar(&f.lane, "lane", "", "a lane in force: measure in it, and judge its objective")
	cmd.Flags().BoolVar(&f.selfTest, "self-test", false,
		"break three things on purpose and see whether they are caught")
	cmd.MarkFlagsMutuallyExclusive("quick", "standard", "proof")
	cmd.MarkFlagsMutuallyExclusive("resume", "out")
	cmd.MarkFlagsMutuallyExclusive("resume", "seed")
	cmd.MarkFlagsMutuallyExclusive("resume", "cells")
	cmd.MarkFlagsMutuallyExclusive("resume", "self-test")
	for _, name := range []string{"resume", "cells", "self-test"} {
		cmd.MarkFlagsMutuallyExclusive("lane", name)
	}
	return cmd
}

func runProve(cmd *cobra.Command, args []string, f proveFlags) error {
	o, err := f.options(args)
	if err != nil {
		return usage(err)
	}
	if err = ready(o.Scenario); err != nil {
		return err
	}
	if o.Self, err = os.Executable(); err != nil {
		return err
	}
	o.Root, o.Lanes, o.Paths, o.Probes = host.Live(), options(), paths(), probes()
	if f.selfTest {
		return selfTest(cmd, o)
	}
	o.Versions = prove.Versions(cmd.Context(), version.Of(release, commit, date).String())
	show := prove.NewDisplay(cmd.ErrOrStderr())
	o.Plan, o.Progress = show.Plan, show.Progress
	session, err := prove.Run(cmd.Context(), o)
	show.Done()
	var summary report.Summary
	if len(session.Runs) > 0 {
		var perr error
		summary, perr = report.Present(cmd.OutOrStdout(), o.Dir, session)
		err = errors.Join(err, perr)
	}
	if err == nil && session.Lane != nil {
		err = prove.Record(cmd.Context(), options(), o.Dir, session, summary.Objective)
	}
	switch {
	case errors.Is(err, prove.ErrNotHeld), errors.Is(err, prove.ErrDrifted):
		return no(err)
	case errors.Is(err, results.ErrHasResults), errors.Is(err, prove.ErrInput):
		return usage(err)
	case errors.Is(err, prove.ErrInterrupted) && len(session.Runs) > 0:
		return hint(fmt.Errorf("%w: %d runs are stored in %s", err, len(session.Runs), o.Dir),
			"go on with: isolane prove --resume "+o.Dir)
	case errors.Is(err, prove.ErrTooSmall):
		return hint(err, lanes.InTheWay(options()))
	case err != nil:
		return hint(err, "") // whatever it is of
	}
	return nil
}

func (f proveFlags) options(args []string) (prove.Options, error) {
	o := prove.Options{Lane: f.lane, Mode: "quick", Cells: f.cells, Seed: f.seed, Dir: f.out}
	switch {
	case f.standard:
		o.Mode = "standard"
	case f.proof:
		o.Mode = "proof"
	}
	if f.resume != "" {
		if len(args) > 0 || f.quick || f.standard || f.proof {
			return o, errors.New("--resume goes on with the stored scenario and mode: name only the directory")
		}
		s, err := results.Read(f.resume)
		if err != nil {
			return o, err
		}
		o.Dir, o.Resume = f.resume, true
		if s.Lane != nil {
			o.Lane = s.Lane.Name
		}
		o.Scenario, err = prove.Parse(filepath.Join(f.resume, results.File)+": scenario.source",
			strings.NewReader(s.Scenario.Source))
		return o, err
	}
	name := "edge"
	if len(args) > 0 {
		name = args[0]
	}
	var err error
	if o.Scenario, err = prove.Load(name); err != nil {
		return o, err
	}
	if o.Dir == "" {
		o.Dir = filepath.Join("isolane-results", o.Scenario.Metadata.Name+"-"+time.Now().Format("20060102-150405"))
	}
	return o, o.Scenario.CheckCells(f.cells)
}

// ready checks what a proof needs before the host is looked at.
func ready(s prove.Scenario) error {
	if os.Geteuid() != 0 {
		return hint(errors.New("prove needs root: it makes network namespaces and cpusets"), "sudo isolane prove")
	}
	for _, program := range s.Programs() {
		if _, err := exec.LookPath(program); err != nil {
			return hint(fmt.Errorf("%s is not installed", program), "apt-get install "+program)
		}
	}
	return nil
}

func selfTest(cmd *cobra.Command, o prove.Options) error {
	fmt.Fprintln(cmd.ErrOrStderr(), "breaking three things on purpose, about 15 s")
	found, err := prove.SelfTest(cmd.Context(), o)
	missed := prove.WriteCaught(cmd.OutOrStdout(), found)
	if err != nil {
		return hint(err, "")
	}
	if missed != nil {
		return no(missed)
	}
	return nil
}

func scenariosCommand() *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   "scenarios",
		Short: "List the scenarios that come with isolane",
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := prove.List()
			return out.print(cmd, list, err)
		},
	}
	out.flags(cmd, "text", "json")
	return cmd
}

func reportCommand() *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   "report DIR",
		Short: "Write the table and the page again from stored results",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := results.Read(args[0])
			if err != nil {
				return usage(err)
			}
			w := cmd.OutOrStdout()
			if out.json() {
				w = io.Discard
			}
			sum, err := report.Present(w, args[0], s)
			if err != nil || !out.json() {
				return err
			}
			return printJSON(cmd.OutOrStdout(), sum.Document(args[0]))
		},
	}
	out.flags(cmd, "text", "json")
	return cmd
}

func probeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "probe",
		Short: "Run one measuring program by itself",
	}
	cmd.AddCommand(echoCommand())
	return cmd
}

func echoCommand() *cobra.Command {
	var serve bool
	var address, wait, settings string
	s := probe.Settings{Name: "echo"}
	cmd := &cobra.Command{
		Use:   "echo --address IP:PORT",
		Short: "Round-trip time: the application that answers (--serve), or the client that measures",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if settings != "" {
				if err := json.Unmarshal([]byte(settings), &s); err != nil {
					return usage(fmt.Errorf("--settings: %w", err))
				}
			} else {
				addr, err := netip.ParseAddrPort(address)
				if err != nil {
					return usage(fmt.Errorf("--address %q: expected IP:PORT", address))
				}
				s.Address, s.Wait = addr, wait
			}
			if serve {
				if !slices.Contains([]string{"", probe.Spin, probe.Block}, wait) {
					return usage(fmt.Errorf("--wait %q: expected spin or block", wait))
				}
				return echo.Serve(cmd.Context(), s.Address, wait, cmd.OutOrStdout())
			}
			if err := s.Validate(); err != nil {
				return usage(err)
			}
			m, err := echo.Run(cmd.Context(), s)
			if err != nil {
				return err
			}
			return printJSON(cmd.OutOrStdout(), m)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&serve, "serve", false, "be the application")
	f.StringVar(&address, "address", "127.0.0.1:7007", "of the application")
	f.StringVar(&wait, "wait", "",
		"how to await messages: spin (the client's default) or block (the application's)")
	f.StringVar(&s.Protocol, "protocol", probe.UDP, "udp or tcp")
	f.StringVar(&s.Mode, "mode", probe.PingPong, "pingpong (closed loop) or open (fixed rate)")
	f.IntVar(&s.PayloadBytes, "payload", 64, "bytes of a message")
	f.Float64Var(&s.RatePerSecond, "rate", 0, "messages per second in mode open")
	f.DurationVar(&s.Gap, "gap", 0, "pause after each reply in mode pingpong")
	f.DurationVar(&s.Warmup, "warmup", 100*time.Millisecond, "measured and dropped")
	f.DurationVar(&s.Window, "window", time.Second, "measured")
	f.StringVar(&settings, "settings", "", "all of it as JSON")
	cmd.MarkFlagsMutuallyExclusive("settings", "serve")
	return cmd
}
