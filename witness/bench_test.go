package witness

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/witness/tail"
)

// BenchmarkSwitch measures what the programs cost at each sched_switch: two threads on one CPU pass
// a byte to and fro through pipes. An operation is a round trip of two switches: without programs, on a CPU whose
// tasks are counted, on one that is measured, and there while single intrusions are recorded. "programs" is
// what the kernel itself counts of their time (statistics of bpf(2), BPF_ENABLE_STATS, which end with the
// benchmark), and the statistics make each run longer.
func BenchmarkSwitch(b *testing.B) {
	hosttest.Need(b, hosttest.Root, collecting)
	b.Run("without", func(b *testing.B) { pingPong(b, b.N) })
	for _, c := range []struct {
		name     string
		watch    Watch
		record   bool
		programs []string
	}{
		{"counted", Watch{}, false, []string{switchPoint}},
		{"measured", Watch{Measured: cpuset.Of(0)}, false, []string{switchPoint}},
		{"recording", Watch{Measured: cpuset.Of(0)}, true, []string{switchPoint, "sched_waking"}},
	} {
		window := func(b *testing.B, n int) *Session {
			b.Helper()
			s := begin(b, c.watch)
			if c.record {
				s.Record()
			}
			pingPong(b, n)
			return s
		}
		b.Run(c.name, func(b *testing.B) { end(b, window(b, b.N)) })
		b.Run(c.name+"/programs", func(b *testing.B) {
			stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
			if err != nil {
				b.Skip("skipped: ", err)
			}
			defer stats.Close()
			s := window(b, max(b.N, 100_000)) // one is no sample: make bench asks for one
			for _, name := range c.programs {
				took, err := s.trace.kernel.coll.Programs[name].Stats()
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(took.Runtime.Nanoseconds())/float64(took.RunCount), "ns/"+name)
			}
			end(b, s)
		})
	}
}

// BenchmarkGaps says what of a CPU's time no program of the guest explains: a thread reads the clock without end,
// and whenever it did not get on for 2 µs or more, the timeline should say why.
func BenchmarkGaps(b *testing.B) {
	hosttest.Need(b, hosttest.Root, hosttest.CPUs(2), collecting)
	dir := makeCgroup(b, "isolane-bench-"+strconv.Itoa(os.Getpid()))
	child := start(b, "gaps", 1)
	join(b, dir, child.pid())
	b.Cleanup(child.end) // before its cgroup goes
	s := begin(b, Watch{Client: cpuset.Of(1), Own: []string{dir},
		Subjects: []Subject{{Role: results.Client, PID: child.pid(), Planned: cpuset.Of(1)}}})
	var total results.Tail
	var stolen results.Nanoseconds
	for b.Loop() {
		s.Record()
		var found []results.Sample
		if _, err := fmt.Fprintln(child.in, 2000); err != nil {
			b.Fatal(err)
		}
		line, err := child.out.ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(line, &found)
		}
		if err == nil {
			_, err = child.out.ReadBytes('\n') // what it has spent
		}
		if err != nil {
			b.Fatal(err)
		}
		all, lost, ok := s.Recorded()
		if !ok || lost > 0 {
			b.Fatalf("recorded: %v, %d lost", ok, lost)
		}
		t, _ := tail.Explain(found, 0, all)
		total.Samples += t.Samples
		total.Excess += t.Excess
		total.Unexplained += t.Unexplained
		for _, m := range t.Met {
			if m.Kind == results.Steal {
				stolen += m.Took
			}
		}
	}
	end(b, s)
	seconds := 2 * float64(b.N)
	b.ReportMetric(float64(total.Samples)/seconds, "gaps/s")
	b.ReportMetric(float64(total.Excess)/seconds, "gap-ns/s")
	b.ReportMetric(100*float64(total.Unexplained)/float64(max(1, total.Excess)), "%unexplained")
	if stolen > 0 {
		b.ReportMetric(100*float64(stolen)/float64(max(1, total.Excess)), "%steal")
	}
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
