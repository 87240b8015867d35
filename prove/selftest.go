package prove

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/prove/testbed"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/results"
)

// ErrUnnoticed says that the self-test broke something, and the run did not report it.
var ErrUnnoticed = errors.New("went unnoticed: do not trust the figures of this machine")

// SelfTest breaks three things on purpose, each in a run of its own, and prints whether the run reports it.
// It freezes the responder for 500 ms, runs the application on the wrong CPU (in pods it widens the
// application's cpuset instead), and kills the neighbours. If one goes unnoticed it returns ErrUnnoticed. It
// stores nothing.
func SelfTest(ctx context.Context, o Options, w io.Writer) error {
	dir, err := os.MkdirTemp("", "isolane-selftest-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	o.Dir, o.Cells, o.Resume = dir, []string{"all"}, false
	s, r, err := open(ctx, o)
	if err != nil {
		return err
	}
	defer r.close()
	p, err := openLoop(r.Scenario)
	if err != nil {
		return err
	}
	r.Scenario.Spec.Probes = []scenario.Probe{p} // the only one whose figures are read
	r.Mode.Windows = map[string]scenario.Window{p.Kind: {Warmup: r.Mode.Windows[p.Kind].Warmup,
		Measure: quantity.Duration(4 * testbed.Freeze)}}
	h, err := host.Read(o.Root)
	if err != nil {
		return err
	}
	faults, missed := r.Faults(p.Name, h), 0
	for _, f := range faults {
		cell, err := r.pick(s.Cells, f.Noisy)
		if err != nil {
			return err
		}
		r.Fault = f.Inject
		run, err := r.Run(ctx, cell)
		if err != nil {
			return interrupted(ctx, err)
		}
		word := "caught"
		caught, evidence := f.Judge(run)
		if !caught {
			word = "MISSED"
			missed++
		}
		fmt.Fprintf(w, "%s: %s (%s)\n", word, f.Name, evidence)
	}
	if missed > 0 {
		return fmt.Errorf("%d of %d faults %w", missed, len(faults), ErrUnnoticed)
	}
	return nil
}

// openLoop returns the first probe that sends at a fixed rate from outside.
func openLoop(s scenario.Scenario) (scenario.Probe, error) {
	for _, p := range s.Spec.Probes {
		if m := p.Metrics(p.Name)[0]; m.Sampled && m.Loop == results.Open && !p.Inside() {
			return p, nil
		}
	}
	return scenario.Probe{}, fmt.Errorf("%w: the self-test needs a probe in an open loop: there is none",
		ErrInput)
}

// pick returns the first cell whose application has a cpuset and nothing else, or in a pod a lane.
func (r *runner) pick(cells []results.Cell, noisy bool) (results.Cell, error) {
	place, what := factor.InCpuset, "a cpuset alone"
	if r.Pods != nil {
		place, what = factor.InLane, "a lane"
	}
	for _, c := range cells {
		if _, here := r.Layouts[c.Name]; !here {
			continue
		}
		given := r.Scenario.Conditions(c)
		if r.Pods != nil && given.Process {
			continue
		}
		if given.Place == place && len(given.Neighbours) > 0 == noisy {
			return c, nil
		}
	}
	return results.Cell{}, fmt.Errorf("%w: the self-test needs a cell whose application has %s "+
		"(with neighbours: %t), and the scenario has none", ErrInput, what, noisy)
}
