package witness

import (
	"errors"
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/hosttest"
)

// BenchmarkSwitch measures what the tracer costs at each sched_switch: two threads on one CPU pass
// a byte to and fro through pipes, and the kernel counts the time that the program took (statistics
// of bpf(2), BPF_ENABLE_STATS, which end with the benchmark). An operation is a round trip of two
// switches; "without" is the same with no tracer, "recording" has the trace of a proof's cell beside it.
func BenchmarkSwitch(b *testing.B) {
	hosttest.Need(b, hosttest.Root, tracing)
	b.Run("without", func(b *testing.B) { pingPong(b, b.N) })
	b.Run("with", func(b *testing.B) {
		s := begin(b, Watch{})
		pingPong(b, b.N)
		end(b, s)
	})
	b.Run("recording", func(b *testing.B) { // the trace of a proof beside it
		s := begin(b, Watch{Measured: cpuset.Of(0)})
		s.Record()
		pingPong(b, b.N)
		end(b, s)
	})
	b.Run("counted", func(b *testing.B) {
		stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
		if err != nil {
			b.Skip("skipped: ", err)
		}
		defer stats.Close()
		s := begin(b, Watch{Measured: cpuset.Of(0)})
		s.Record()
		pingPong(b, max(b.N, 100_000)) // one is no sample: make bench asks for one
		for unit, p := range map[string]*ebpf.Program{"ns/switch": s.tracer.coll.Programs["on_switch"],
			"recording-ns/switch": s.trace.kernel.coll.Programs[switchPoint]} {
			took, err := p.Stats()
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(took.Runtime.Nanoseconds())/float64(took.RunCount), unit)
		}
		end(b, s)
	})
}

// pingPong makes n round trips between two threads on CPU 0.
func pingPong(b *testing.B, n int) {
	b.Helper()
	var fds [4]int
	if err := errors.Join(unix.Pipe2(fds[:2], unix.O_CLOEXEC), unix.Pipe2(fds[2:], unix.O_CLOEXEC)); err != nil {
		b.Fatal(err)
	}
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}()
	done := make(chan error)
	go func() { done <- onFirstCPU(func() error { return echo(fds[0], fds[3], n, false) }) }()
	b.ResetTimer()
	err := onFirstCPU(func() error { return echo(fds[2], fds[1], n, true) })
	b.StopTimer()
	if err = errors.Join(err, <-done); err != nil {
		b.Fatal(err)
	}
}

// onFirstCPU runs f on a thread that is pinned to CPU 0 and ends with it.
func onFirstCPU(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread is not used again
		var first unix.CPUSet
		first.Set(0)
		if err := unix.SchedSetaffinity(0, &first); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

// echo answers n bytes; the one that begins sends the first.
func echo(in, out, n int, begins bool) error {
	buf := make([]byte, 1)
	for i := range n {
		if !begins || i > 0 {
			if _, err := unix.Read(in, buf); err != nil {
				return err
			}
		}
		if _, err := unix.Write(out, buf); err != nil {
			return err
		}
	}
	if begins {
		_, err := unix.Read(in, buf)
		return err
	}
	return nil
}

// BenchmarkTraceRead measures what a reading takes of a housekeeping CPU, with what eight quiet lanes
// have: 30 sources each, and nothing else on the machine counts. isolane watch reads once a second, so
// 1 ms/op is 0.1% of a CPU.
func BenchmarkTraceRead(b *testing.B) {
	hosttest.Need(b, hosttest.Root, collecting)
	tr := trace(b, 0)
	cgroups, err := cgroupIDs(tr.kernel.mount.Name(), []string{tr.kernel.mount.Name()})
	if err != nil {
		b.Fatal(err)
	}
	for id := range uint64(240) {
		v := sourceValue{Count: 1000, NS: 1_000_000, Longest: 1000, Cgroup: cgroups[0]}
		copy(v.Name[:], "kworker/0:1")
		v.Buckets[20] = 1000
		if err := tr.kernel.coll.Maps["sources"].Put(sourceKey{Kind: 1, ID: id, Start: 1}, v); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	before := cpuTime(unix.CLOCK_PROCESS_CPUTIME_ID)
	for b.Loop() {
		read(b, tr)
	}
	b.ReportMetric(float64(cpuTime(unix.CLOCK_PROCESS_CPUTIME_ID)-before)/float64(b.N), "cpu-ns/op")
}
