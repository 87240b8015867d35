package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/knob"
	"isolane.dev/isolane/prove/layout"
	"isolane.dev/isolane/results"
)

// Freeze is how long the self-test stops the responder.
const Freeze = 500 * time.Millisecond

// Fault is one thing that the self-test breaks, in a cell whose application has a cpuset, or in a pod a lane.
type Fault struct {
	Name   string
	Noisy  bool // the cell has neighbours
	Inject func(context.Context, moment) error
	Judge  func(results.Run) (bool, string)
}

// Faults returns the faults of a self-test that uses this probe.
func (r *Bed) Faults(probe string, h host.Host) []Fault {
	all := []Fault{freezeFault(probe), wrongCPUFault(h), deadNeighbourFault(probe)}
	if r.Pods != nil {
		all[1] = widenedFault(probe, h.Online())
	}
	return all
}

// freezeFault stops the echo server for 500 ms during the open-loop probe. A client that waits for each reply
// would see one slow exchange. Counted from the intended send times, all messages of the stall are late.
func freezeFault(probe string) Fault {
	return Fault{
		Name: fmt.Sprintf("responder frozen for %s", Freeze),
		Inject: func(ctx context.Context, m moment) error {
			if m.probe != probe {
				return nil
			}
			if err := pause(ctx, 150*time.Millisecond); err != nil { // after the client's warm-up
				return err
			}
			server, err := m.responder()
			if err != nil {
				return err
			}
			if err = server.Signal(syscall.SIGSTOP); err != nil {
				return err
			}
			return errors.Join(pause(ctx, Freeze), server.Signal(syscall.SIGCONT))
		},
		Judge: func(run results.Run) (bool, string) {
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
				return worst >= Freeze*9/10 && p90 >= Freeze/10,
					fmt.Sprintf("open loop: P90 %s, max %s of %d messages", p90.Round(time.Millisecond),
						worst.Round(time.Millisecond), h.TotalCount())
			}
			return false, fmt.Sprintf("probe %s has no figures: %v", probe, run.Void)
		},
	}
}

// wrongCPUFault moves the echo server into the client's cpuset.
func wrongCPUFault(h host.Host) Fault {
	return Fault{
		Name: "application on the client's CPU",
		Inject: func(_ context.Context, m moment) error {
			if m.probe != "" {
				return nil
			}
			dir, err := knob.GroupDir(h, layout.Client)
			if err != nil {
				return err
			}
			pid := strconv.Itoa(m.application[0].PID())
			return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(pid+"\n"), 0)
		},
		Judge: isVoid,
	}
}

// widenedFault gives the application's container the whole host's CPUs while it is measured, as a kubelet
// might do.
func widenedFault(probe string, all cpuset.Set) Fault {
	return Fault{
		Name: "cpuset of the lane's container widened",
		Inject: func(_ context.Context, m moment) error {
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
		Judge: func(run results.Run) (bool, string) {
			void := strings.Join(run.Void, "; ")
			return strings.Contains(void, fmt.Sprintf("is %s in force", all)), "void: " + void
		},
	}
}

// deadNeighbourFault kills the neighbours before the last probe, as an out-of-memory kill would.
func deadNeighbourFault(probe string) Fault {
	return Fault{
		Name: "neighbours killed", Noisy: true,
		Inject: func(_ context.Context, m moment) error {
			if m.probe != probe {
				return nil
			}
			if m.pods != nil {
				return syscall.Kill(m.pods.neighbours.PID, syscall.SIGKILL)
			}
			return m.neighbours.OS().Kill()
		},
		Judge: isVoid,
	}
}

func isVoid(run results.Run) (bool, string) {
	if len(run.Void) == 0 {
		return false, "the run passed as valid"
	}
	return true, "void: " + run.Void[0]
}
