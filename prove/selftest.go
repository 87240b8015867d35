package prove

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/knob"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/results"
)

// ErrUnnoticed says that the self-test broke something, and the run did not say so.
var ErrUnnoticed = errors.New("went unnoticed: do not trust the figures of this machine")

// freeze is how long the self-test stops the responder.
const freeze = 500 * time.Millisecond

// SelfTest breaks three things on purpose, each in a run of its own, and writes whether the run says so: it
// freezes the responder for 500 ms, runs the application on the wrong CPU, and kills the neighbours. Where
// one goes unnoticed the error is ErrUnnoticed. Nothing is stored.
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
	r.scenario.Spec.Probes = slices.DeleteFunc(slices.Clone(r.scenario.Spec.Probes), func(p ProbeSpec) bool {
		return p.Name != openProbe // the only one whose figures are looked at
	})
	for _, p := range r.scenario.Spec.Probes {
		r.mode.Windows = map[string]Window{p.Kind: {Warmup: r.mode.Windows[p.Kind].Warmup,
			Measure: quantity.Duration(4 * freeze)}}
	}
	h, err := host.Read(o.Root)
	if err != nil {
		return err
	}
	faults, missed := []fault{freezeFault(), wrongCPUFault(h, r.layout), deadNeighbourFault()}, 0
	for _, f := range faults {
		cell, err := pick(s.Cells, f.placement, f.noise)
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

// fault is one thing that the self-test breaks.
type fault struct {
	name, placement, noise string
	inject                 func(context.Context, moment) error
	judge                  func(results.Run) (bool, string)
}

func pick(cells []results.Cell, placement, loudness string) (results.Cell, error) {
	for _, c := range cells {
		if c.Placement == placement && c.Noise == loudness {
			return c, nil
		}
	}
	return results.Cell{}, fmt.Errorf("the scenario has no cell %s-%s, which the self-test needs", loudness,
		placement)
}

// freezeFault stops the echo server for 500 ms within the open-loop probe. A client that waits for
// each reply would see one slow exchange; counted from the intended send times, all messages of
// the stall are late.
func freezeFault() fault {
	return fault{
		name: fmt.Sprintf("responder frozen for %s", freeze), placement: Pinned, noise: Quiet,
		inject: func(ctx context.Context, m moment) error {
			if m.probe != openProbe {
				return nil
			}
			if err := pause(ctx, 150*time.Millisecond); err != nil { // past the client's warm-up
				return err
			}
			server := m.application[0].cmd.Process
			if err := server.Signal(syscall.SIGSTOP); err != nil {
				return err
			}
			return errors.Join(pause(ctx, freeze), server.Signal(syscall.SIGCONT))
		},
		judge: func(run results.Run) (bool, string) {
			for _, m := range run.Measured {
				if m.Name != openProbe || m.RTT == nil {
					continue
				}
				h, err := m.RTT.Latency.Decode()
				if err != nil {
					return false, err.Error()
				}
				p90, worst := time.Duration(h.ValueAtQuantile(90)), time.Duration(h.Max())
				return worst >= freeze*9/10 && p90 >= freeze/10,
					fmt.Sprintf("open loop: P90 %s, max %s of %d messages", p90.Round(time.Millisecond),
						worst.Round(time.Millisecond), h.TotalCount())
			}
			return false, fmt.Sprintf("probe %s has no figures: %v", openProbe, run.Void)
		},
	}
}

// openProbe is the open-loop probe of the scenario edge.
const openProbe = "rtt-udp-64-open"

// wrongCPUFault moves the echo server into the client's cpuset.
func wrongCPUFault(h host.Host, l layout) fault {
	return fault{
		name: fmt.Sprintf("application on CPU %s instead of %s", l.client, l.lane), placement: Pinned, noise: Quiet,
		inject: func(_ context.Context, m moment) error {
			if m.probe != "" {
				return nil
			}
			dir, err := knob.GroupDir(h, clientGroup)
			if err != nil {
				return err
			}
			pid := strconv.Itoa(m.application[0].pid())
			return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(pid+"\n"), 0)
		},
		judge: isVoid,
	}
}

// deadNeighbourFault kills the neighbours before the last probe, as an out-of-memory kill would.
func deadNeighbourFault() fault {
	return fault{
		name: "neighbours killed", placement: Pinned, noise: Noisy,
		inject: func(_ context.Context, m moment) error {
			if m.probe != openProbe {
				return nil
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
