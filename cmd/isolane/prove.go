package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/prove"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/report"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/scenarios"
	"isolane.dev/isolane/terminal"
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
		return fail(err)
	}
	o.Root, o.Lanes, o.Paths, o.Probes = host.Live(), options(), paths(), probes()
	if f.selfTest {
		return selfTest(cmd, o)
	}
	o.Versions = versions(cmd.Context())
	show := newDisplay(cmd.ErrOrStderr())
	o.Plan, o.Progress = show.plan, show.progress
	session, err := prove.Run(cmd.Context(), o)
	show.done()
	var judged []lane.Judgement
	if len(session.Runs) > 0 {
		var perr error
		judged, perr = present(cmd.OutOrStdout(), o.Dir, session)
		err = errors.Join(err, perr)
	}
	if err == nil && session.Lane != nil {
		err = record(cmd, o.Dir, session, judged)
	}
	switch {
	case errors.Is(err, errNotHeld), errors.Is(err, prove.ErrDrifted):
		return no(err)
	case errors.Is(err, results.ErrHasResults), errors.Is(err, prove.ErrInput):
		return usage(err)
	case errors.Is(err, prove.ErrInterrupted) && len(session.Runs) > 0:
		return hint(fmt.Errorf("%w: %d runs are stored in %s", err, len(session.Runs), o.Dir),
			"go on with: isolane prove --resume "+o.Dir)
	case errors.Is(err, prove.ErrTooSmall):
		return hint(err, beside())
	case err != nil:
		return fail(err)
	}
	return nil
}

// beside names the lanes in force, whose CPUs a proof cannot have; "" where there are none.
func beside() string {
	l, err := lanes.Look(options())
	if err != nil {
		return "" // the machine is too small with or without lanes
	}
	var have, names []string
	for _, placed := range l.Placement.Lanes {
		cpus := "CPU "
		if placed.Owned().Len() > 1 {
			cpus = "CPUs "
		}
		have = append(have, "lane "+placed.Name+" has "+cpus+placed.Owned().String())
		names = append(names, placed.Name)
	}
	if len(names) == 0 {
		return ""
	}
	return strings.Join(have, ", ") + ": isolane release " + strings.Join(names, " ") + " first"
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
	if o.Scenario, err = loadScenario(name); err != nil {
		return o, err
	}
	if o.Dir == "" {
		o.Dir = filepath.Join("isolane-results", o.Scenario.Metadata.Name+"-"+time.Now().Format("20060102-150405"))
	}
	return o, o.Scenario.CheckCells(f.cells)
}

// loadScenario reads one of the program's own scenarios, or a file.
func loadScenario(name string) (prove.Scenario, error) {
	if f, err := scenarios.Files.Open(name + ".yaml"); err == nil {
		defer f.Close()
		return prove.Parse(name, f)
	}
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return prove.Scenario{}, fmt.Errorf("%s is neither a scenario nor a file: isolane scenarios lists them",
			name)
	}
	if err != nil {
		return prove.Scenario{}, err
	}
	defer f.Close()
	return prove.Parse(name, f)
}

// ready checks what a proof needs before the host is looked at.
func ready(s prove.Scenario) error {
	if err := needRoot("prove"); err != nil {
		return err
	}
	for _, program := range s.Programs() {
		if _, err := exec.LookPath(program); err != nil {
			return hint(fmt.Errorf("%s is not installed", program), "apt-get install "+program)
		}
	}
	return nil
}

func needRoot(command string) error {
	if os.Geteuid() != 0 {
		return hint(fmt.Errorf("%s needs root: it makes network namespaces and cpusets", command),
			"sudo isolane "+command)
	}
	return nil
}

func selfTest(cmd *cobra.Command, o prove.Options) error {
	fmt.Fprintln(cmd.ErrOrStderr(), "breaking three things on purpose, about 15 s")
	found, err := prove.SelfTest(cmd.Context(), o)
	missed := 0
	for _, c := range found {
		word := "caught"
		if !c.Caught {
			word = "MISSED"
			missed++
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s: %s (%s)\n", word, c.Fault, c.Evidence)
	}
	if err != nil {
		return fail(err)
	}
	if missed > 0 {
		return no(fmt.Errorf("%d of %d faults went unnoticed: do not trust the figures of this machine", missed,
			len(found)))
	}
	return nil
}

// present writes the report, prints the table, and returns what is found of a lane's objective.
func present(w io.Writer, dir string, s results.Session) ([]lane.Judgement, error) {
	summary, err := report.Summarize(s)
	if err != nil {
		return nil, err
	}
	if err = report.Text(w, summary, terminal.Of(w)); err != nil {
		return nil, err
	}
	if err = report.Write(dir, summary); err != nil {
		return nil, err
	}
	fmt.Fprintf(w, "\nreport: %s\n", filepath.Join(dir, "report.html"))
	return summary.Objective, nil
}

var errNotHeld = errors.New("of its objective are not held")

// record keeps what was found where isolane status finds it. The error says that the objective is not held.
func record(cmd *cobra.Command, dir string, s results.Session, judged []lane.Judgement) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	l, _, err := lanes.OpenPatiently(cmd.Context(), options())
	if err != nil {
		return err
	}
	err = errors.Join(l.Proved(s.Lane.Name, lane.Proof{At: s.Ended.UTC(), Scenario: s.Scenario.Name,
		Mode: s.Scenario.Mode, Results: dir, Conditions: s.Lane.Conditions, Judgements: judged}), l.Close())
	broken := 0
	for _, j := range judged {
		if j.Verdict != lane.Held {
			broken++
		}
	}
	if err == nil && broken > 0 {
		err = fmt.Errorf("lane %s: %d of %s %w", s.Lane.Name, broken, quantity.Count(len(judged), "bound"),
			errNotHeld)
	}
	return err
}

// versions records what made the figures.
func versions(ctx context.Context) map[string]string {
	found := map[string]string{"isolane": builtFrom().String()}
	for _, program := range []string{"stress-ng", "iperf3"} {
		out, err := exec.CommandContext(ctx, program, "--version").Output()
		if line, _, _ := strings.Cut(string(out), "\n"); err == nil {
			found[program] = strings.TrimSpace(line)
		}
	}
	return found
}

// display shows where a session is: one line that renews itself on a terminal, and a line a run
// elsewhere.
type display struct {
	w       io.Writer
	renewed bool
}

func newDisplay(w io.Writer) display {
	f, ok := w.(*os.File)
	return display{w: w, renewed: ok && term.IsTerminal(int(f.Fd()))}
}

func (d display) plan(e prove.Estimate) {
	for _, n := range e.Notes {
		fmt.Fprintln(d.w, "note:", n)
	}
	fmt.Fprintf(d.w, "%d runs: a warm-up block and %d blocks of %d cells, seed %d; takes about %s\n",
		e.Runs, e.Blocks, e.Cells, e.Seed, e.Takes.Round(time.Second))
}

func (d display) progress(p prove.Progress) {
	block := fmt.Sprintf("block %d of %d", p.Block, p.Blocks)
	if p.Block == 0 {
		block = "warm-up block"
	}
	line := fmt.Sprintf("run %d of %d  %s  %-24s about %s left", p.Done+1, p.Runs, block, p.Cell,
		p.Left.Round(time.Second))
	if p.Void > 0 {
		line += fmt.Sprintf("  %d void", p.Void)
	}
	if d.renewed {
		fmt.Fprintf(d.w, "\r\x1b[K%s", line)
	} else {
		fmt.Fprintln(d.w, line)
	}
}

func (d display) done() {
	if d.renewed {
		fmt.Fprint(d.w, "\r\x1b[K")
	}
}
