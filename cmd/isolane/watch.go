package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/enforce/guard"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/runtime/process"
	"isolane.dev/isolane/witness"
)

type watchFlags struct {
	cpus, format string
	repair       bool
	own          []string
	window       time.Duration
	budget       time.Duration
}

func watchCommand() *cobra.Command {
	var f watchFlags
	cmd := &cobra.Command{
		Use:   "watch [NAME]",
		Short: "Show who takes time from the lanes' CPUs, what to do about it, and what drifts from the plan",
		Long: "Counts on the CPUs of all lanes, or of one, every task that is not the lane's, kernel thread,\n" +
			"interrupt, softirq, IPI, tick and what the hypervisor takes: how often, for how long, P99 and\n" +
			"the longest, in the last second and since the start. A time is the source's own: what\n" +
			"interrupted it has a row of its own. The interrupts of a lane's own device, and what follows\n" +
			"from them, are shown as its own. Works until Ctrl-C or --for, and then sums up. Tells within a\n" +
			"second what is no longer as apply has set it, and with --repair puts it back; what is left in\n" +
			"the end makes the exit code 3. Needs root. Isolane itself keeps off these CPUs.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case f.format != "text" && f.format != "json":
				return usage(fmt.Errorf("-o %q: expected text or json", f.format))
			case f.window < 0 || f.budget < 0:
				return usage(errors.New("--for and --budget: expected a positive duration"))
			case f.cpus != "" && f.repair:
				return usage(errors.New("--repair puts back what apply has set: leave out --cpus"))
			case f.cpus != "" && len(args) > 0:
				return usage(errors.New("--cpus names the CPUs: leave out the lane"))
			}
			return runWatch(cmd, args, f)
		},
	}
	cmd.Flags().StringVar(&f.cpus, "cpus", "",
		"CPUs to watch (cpulist); default: those of the lanes that are applied")
	cmd.Flags().StringSliceVar(&f.own, "cgroup", nil, "with --cpus: cgroup directories whose tasks belong there")
	cmd.Flags().DurationVar(&f.window, "for", 0, "end after this time, such as 30s; default: Ctrl-C")
	cmd.Flags().DurationVar(&f.budget, "budget", 0,
		"longest single intrusion allowed, such as 50us; beyond it the exit code is 3")
	cmd.Flags().BoolVar(&f.repair, "repair", false,
		"put back what somebody else changes, unless they keep changing it")
	cmd.Flags().StringVarP(&f.format, "output", "o", "text", "text, or json: a document a second, one a line")
	return cmd
}

// watched says what to look at, and who looks for drift.
func (f watchFlags) watched(args []string) (w guard.Watched, g *guard.Guard, err error) {
	if f.cpus != "" {
		w.Groups = f.own
		if w.CPUs, err = cpuset.Parse(f.cpus); err != nil {
			err = usage(fmt.Errorf("--cpus: %w", err))
		}
		return w, nil, err
	}
	if g, err = guard.New(journal.Dir, host.Live(), options().Ops); err != nil {
		return w, nil, fail(err)
	}
	w, err = g.Watched(strings.Join(args, ""))
	if err != nil {
		return w, nil, usage(errors.Join(err, g.Close()))
	}
	if w.CPUs.IsEmpty() {
		return w, nil, usage(errors.Join(errors.New("no lanes are in force: give --cpus, or isolane apply"),
			g.Close()))
	}
	return w, g, nil
}

func runWatch(cmd *cobra.Command, args []string, f watchFlags) error {
	if os.Geteuid() != 0 {
		return hint(errors.New("watch needs root: it attaches programs to the kernel's tracepoints"),
			"sudo isolane watch")
	}
	w, g, err := f.watched(args)
	if err != nil {
		return err
	}
	if g != nil {
		defer g.Close()
	}
	root := host.Live()
	if err = process.StayOff(w.CPUs); err != nil {
		return usage(err)
	}
	// The kernel's description of its types is large, and garbage as soon as the programs are loaded.
	limit := debug.SetMemoryLimit(18 << 20)
	trace, err := witness.NewTrace(root, w.CPUs, witness.Owned{Cgroups: w.Groups, Interrupts: w.Interrupts})
	debug.SetMemoryLimit(limit)
	if err != nil {
		return fail(err)
	}
	show, err := newDisplayOfWatch(cmd.OutOrStdout(), f, w.CPUs)
	if err != nil {
		return fail(errors.Join(err, trace.Close()))
	}
	last, err := f.follow(cmd.Context(), trace, g, show)
	if err = errors.Join(err, trace.Close()); err != nil {
		return fail(err)
	}
	if f.budget > 0 && trace.Evidence() != "bpf" {
		return fail(errors.New("--budget: how long an intrusion lasted is not known without eBPF"))
	}
	if err = errors.Join(f.verdict(last.Since), unrepaired(g)); err != nil {
		return no(err)
	}
	return nil
}

// follow shows what the trace finds, each second and at the end, and returns the last reading.
func (f watchFlags) follow(ctx context.Context, trace *witness.Trace, g *guard.Guard,
	show *watchDisplay) (found witness.Reading, err error) {
	began := time.Now()
	end := began.Add(f.window)
	if f.window > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end)
		defer cancel()
	}
	second := time.NewTicker(time.Second)
	defer second.Stop()
	defer show.leave() // also where reading fails
	before := began
	for ended := false; !ended; {
		select {
		case <-ctx.Done():
			ended = true
		case now := <-second.C:
			if f.window > 0 && end.Sub(now) < time.Second/5 {
				continue // the end is the next second's
			}
		}
		if found, err = trace.Read(); err != nil {
			return found, err
		}
		now := time.Now()
		r := reading{At: now.UTC(), Evidence: trace.Evidence(), Window: results.Nanoseconds(now.Sub(before)),
			Sources: found.Last,
			SinceStart: sinceStart{began.UTC(), results.Nanoseconds(now.Sub(began)),
				found.Since}, Warnings: trace.Warnings(), Final: ended}
		before = now
		if g != nil {
			fresh, gerr := g.Check(context.WithoutCancel(ctx), f.repair)
			if gerr != nil {
				return found, gerr
			}
			r.drifted(fresh, g.Left())
		}
		if err = show.print(r); err != nil {
			return found, err
		}
	}
	return found, nil
}

// unrepaired says whether settings are not as the lanes want them, as isolane status does.
func unrepaired(g *guard.Guard) error {
	if g == nil || len(g.Left()) == 0 {
		return nil
	}
	return errors.New(unwanted(len(g.Left())))
}

// verdict compares the longest intrusion with the budget. Steal has no longest: the kernel counts
// only its sum, in ticks.
func (f watchFlags) verdict(sources []witness.Source) error {
	if f.budget == 0 {
		return nil
	}
	over, worst := 0, witness.Source{}
	for _, s := range sources {
		if s.Own || s.Longest == nil || time.Duration(*s.Longest) <= f.budget {
			continue
		}
		if over++; worst.Longest == nil || *s.Longest > *worst.Longest {
			worst = s
		}
	}
	if over == 0 {
		return nil
	}
	return fmt.Errorf("the budget of %s is exceeded by %s: %s took CPU %d for %s",
		f.budget, quantity.Count(over, "source"), title(worst), worst.CPU, took(worst.Longest))
}
