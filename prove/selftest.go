package prove

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/knob"
	"isolane.dev/isolane/prove/layout"
	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/results"
)

// ErrUnnoticed says that the self-test broke something, and the run did not say so.
var ErrUnnoticed = errors.New("went unnoticed: do not trust the figures of this machine")

// freeze is how long the self-test stops the responder.
const freeze = 500 * time.Millisecond

// SelfTest breaks three things on purpose, each in a run of its own, and writes whether the run says so: it
// freezes the responder for 500 ms, runs the application on the wrong CPU, and kills the neighbours. In pods
// it widens the application's cpuset in place of the second. Where one goes unnoticed the error is
// ErrUnnoticed. Nothing is stored.
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
	p, err := openLoop(r.scenario)
	if err != nil {
		return err
	}
	r.scenario.Spec.Probes = []scenario.Probe{p} // the only one whose figures are looked at
	r.mode.Windows = map[string]scenario.Window{p.Kind: {Warmup: r.mode.Windows[p.Kind].Warmup,
		Measure: quantity.Duration(4 * freeze)}}
	h, err := host.Read(o.Root)
	if err != nil {
		return err
	}
	faults, missed := []fault{freezeFault(p.Name), wrongCPUFault(h), deadNeighbourFault(p.Name)}, 0
	if r.pods != nil {
		faults[1] = widenedFault(p.Name, h.Online())
	}
	for _, f := range faults {
		cell, err := r.pick(s.Cells, f.noisy)
		if err != nil {
			return err
		}
		r.fault = f.inject
		run, err := r.run(ctx, cell)
		if err != nil {
			return interrupted(ctx, err)
		}
		word := "caught"
		caught, evidence := f.judge(run)
		if !caught {
			word = "MISSED"
			missed++
		}
		fmt.Fprintf(w, "%s: %s (%s)\n", word, f.name, evidence)
	}
	if missed > 0 {
		return fmt.Errorf("%d of %d faults %w", missed, len(faults), ErrUnnoticed)
	}
	return nil
}

// fault is one thing that the self-test breaks, in a cell whose application has a cpuset, or in a pod a lane.
type fault struct {
	name   string
	noisy  bool // the cell has neighbours
	inject func(context.Context, moment) error
	judge  func(results.Run) (bool, string)
}

// openLoop is the first probe that sends at a fixed rate from outside.
func openLoop(s scenario.Scenario) (scenario.Probe, error) {
	for _, p := range s.Spec.Probes {
		if m := p.Metrics(p.Name)[0]; m.Sampled && m.Loop == results.Open && !p.Inside() {
			return p, nil
		}
	}
	return scenario.Probe{}, fmt.Errorf("%w: the self-test needs a probe in an open loop: there is none",
		ErrInput)
}

// pick is the first cell whose application has a cpuset and nothing else, or in a pod a lane.
func (r *runner) pick(cells []results.Cell, noisy bool) (results.Cell, error) {
	place, what := factor.InCpuset, "a cpuset alone"
	if r.pods != nil {
		place, what = factor.InLane, "a lane"
	}
	for _, c := range cells {
		if _, here := r.layouts[c.Name]; !here {
			continue
		}
		if given := r.scenario.Conditions(c); given.Place == place && len(given.Neighbours) > 0 == noisy {
			return c, nil
		}
	}
	return results.Cell{}, fmt.Errorf("%w: the self-test needs a cell whose application has %s "+
		"(with neighbours: %t), and the scenario has none", ErrInput, what, noisy)
}

// freezeFault stops the echo server for 500 ms within the open-loop probe. A client that waits for
// each reply would see one slow exchange; counted from the intended send times, all messages of
// the stall are late.
func freezeFault(probe string) fault {
	return fault{
		name: fmt.Sprintf("responder frozen for %s", freeze),
		inject: func(ctx context.Context, m moment) error {
			if m.probe != probe {
				return nil
			}
			if err := pause(ctx, 150*time.Millisecond); err != nil { // past the client's warm-up
				return err
			}
			server, err := m.responder()
			if err != nil {
				return err
			}
			if err = server.Signal(syscall.SIGSTOP); err != nil {
				return err
			}
			return errors.Join(pause(ctx, freeze), server.Signal(syscall.SIGCONT))
		},
		judge: func(run results.Run) (bool, string) {
			for _, m := range run.Measured {
				samples, ok := m.Samples[probe]
				if !ok {
					continue
				}
				h, err := samples.Histogram.Decode()
				if err != nil {
					return false, err.Error()
				}
				p90, worst := time.Duration(h.ValueAtQuantile(90)), time.Duration(h.Max())
				return worst >= freeze*9/10 && p90 >= freeze/10,
					fmt.Sprintf("open loop: P90 %s, max %s of %d messages", p90.Round(time.Millisecond),
						worst.Round(time.Millisecond), h.TotalCount())
			}
			return false, fmt.Sprintf("probe %s has no figures: %v", probe, run.Void)
		},
	}
}

// wrongCPUFault moves the echo server into the client's cpuset.
func wrongCPUFault(h host.Host) fault {
	return fault{
		name: "application on the client's CPU",
		inject: func(_ context.Context, m moment) error {
			if m.probe != "" {
				return nil
			}
			dir, err := knob.GroupDir(h, layout.Client)
			if err != nil {
				return err
			}
			pid := strconv.Itoa(m.application[0].pid())
			return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(pid+"\n"), 0)
		},
		judge: isVoid,
	}
}

// widenedFault gives the application's container the whole host's CPUs while it is measured, as a kubelet
// would that wrote its own.
func widenedFault(probe string, all cpuset.Set) fault {
	return fault{
		name: "cpuset of the lane's container widened",
		inject: func(_ context.Context, m moment) error {
			if m.probe != probe {
				return nil
			}
			dir := m.pods.application.Group
			partition := filepath.Join(dir, knob.PartitionFile)
			if _, err := os.Stat(partition); err == nil {
				if err = os.WriteFile(partition, []byte("member"), 0); err != nil {
					return err
				}
			}
			return os.WriteFile(filepath.Join(dir, "cpuset.cpus"), []byte(all.String()), 0)
		},
		judge: func(run results.Run) (bool, string) {
			void := strings.Join(run.Void, "; ")
			return strings.Contains(void, fmt.Sprintf("is %s in force", all)), "void: " + void
		},
	}
}

// deadNeighbourFault kills the neighbours before the last probe, as an out-of-memory kill would.
func deadNeighbourFault(probe string) fault {
	return fault{
		name: "neighbours killed", noisy: true,
		inject: func(_ context.Context, m moment) error {
			if m.probe != probe {
				return nil
			}
			if m.pods != nil {
				return syscall.Kill(m.pods.neighbours.PID, syscall.SIGKILL)
			}
			return m.neighbours.cmd.Process.Kill()
		},
		judge: isVoid,
	}
}

func isVoid(run results.Run) (bool, string) {
	if len(run.Void) == 0 {
		return false, "the run passed as valid"
	}
	return true, "void: " + run.Void[0]
}
