package bench

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/host/hosttest"
)

const (
	handovers = 200_000 // of one cache line, for a figure
	far       = 200     // nanoseconds there and back: more than below one L3, less than between two
)

// BenchmarkCaches measures round trips over one veth pair, both ends spinning, 40 times, and right after each how long a
// cache line takes between the two CPUs, which never halt: a hypervisor may move virtual CPUs between caches. It reports
// the medians of the round trips while the CPUs were near and far.
func BenchmarkCaches(b *testing.B) {
	hosttest.Need(b, hosttest.Root, hosttest.CPUs(2), hosttest.Program("gcc"), hosttest.Program("ip"))
	c := inPlainC(b)
	cpus, _ := ends(b)
	network(b)
	keepAwake(b, cpus)
	for b.Loop() {
		found := map[string][]float64{}
		for range 40 {
			f := run(b, cpus, fifo(), []string{c, "server", server, "7007", "spin"},
				[]string{c, "client", server, "7007", "64", fmt.Sprint(window.Seconds())}, readFloor)
			line, where := cacheLine(b, cpus), "near"
			if line > far*time.Nanosecond {
				where = "far"
			}
			b.Logf("a cache line there and back %s: P50 %d P99.9 %d", line, f.P50, f.P999)
			found["P50-"+where+"-ns"] = append(found["P50-"+where+"-ns"], float64(f.P50))
			found["P99.9-"+where+"-ns"] = append(found["P99.9-"+where+"-ns"], float64(f.P999))
		}
		for name, values := range found {
			slices.Sort(values)
			b.ReportMetric(values[len(values)/2], name)
		}
	}
}

// keepAwake keeps the CPUs from halting, as a lane's do (pm_qos_resume_latency_us, Documentation/ABI/testing/sysfs-devices-power).
func keepAwake(b *testing.B, cpus []string) {
	b.Helper()
	for _, cpu := range cpus {
		file := "/sys/devices/system/cpu/cpu" + cpu + "/power/pm_qos_resume_latency_us"
		before, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(file, []byte("n/a"), 0)
		}
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			if err := os.WriteFile(file, before, 0); err != nil {
				b.Error(err)
			}
		})
	}
}

// cacheLine has two threads hand a variable to each other, and returns the time there and back.
func cacheLine(b *testing.B, cpus []string) time.Duration {
	b.Helper()
	var turn atomic.Int32
	failed := make(chan error, 1)
	go func() { failed <- handOver(cpus[1], &turn, 1) }()
	begun := time.Now()
	err := handOver(cpus[0], &turn, 0)
	took := time.Since(begun)
	if err == nil {
		err = <-failed
	}
	if err != nil {
		b.Fatal(err)
	}
	return took / handovers
}

// handOver waits for its turn and gives it to the other thread. The thread that does it ends with its goroutine, or has its
// CPUs again.
func handOver(cpu string, turn *atomic.Int32, own int32) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	id, err := strconv.Atoi(cpu)
	if err != nil {
		return err
	}
	var before, only unix.CPUSet
	if err = unix.SchedGetaffinity(0, &before); err != nil {
		return err
	}
	only.Set(id)
	if err = unix.SchedSetaffinity(0, &only); err != nil {
		return err
	}
	for range handovers {
		for turn.Load() != own {
		}
		turn.Store(1 - own)
	}
	return unix.SchedSetaffinity(0, &before)
}
