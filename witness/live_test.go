package witness

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/witness/judge"
)

// begin opens a window on these CPUs.
func begin(tb testing.TB, w Watch) *Session {
	tb.Helper()
	w.CPUs = cpuset.Of(0, 1)
	s, err := Begin(tb.Context(), w)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// end closes the window and checks that the evidence is from where it should be.
func end(tb testing.TB, s *Session) results.Witness {
	tb.Helper()
	w, err := s.End()
	if err != nil {
		tb.Fatal(err)
	}
	want := "bpf"
	if s.watch.NoBPF {
		want = "procfs"
	}
	if w.Source != want {
		tb.Fatalf("source %s, want %s: %q", w.Source, want, w.Warnings)
	}
	return w
}

// seen is where the threads of a process ran, and for how long.
func seen(w results.Witness, pid int) (cpus cpuset.Set, ran time.Duration) {
	for _, t := range w.Threads {
		if t.PID == pid {
			cpus = cpus.Union(t.Seen)
			ran += time.Duration(t.Ran)
		}
	}
	return cpus, ran
}

// attempt keeps what is wrong instead of failing.
type attempt struct {
	testing.TB
	wrong []string
}

func (a *attempt) Errorf(format string, args ...any) {
	a.wrong = append(a.wrong, fmt.Sprintf(format, args...))
}

// both runs a test with eBPF and with /proc sampled. Other programs, such as the tests of
// other packages that make lanes, may move all tasks of the machine between cpusets meanwhile, and
// so those of this test: what goes wrong must do so three times.
func both(t *testing.T, test func(tb testing.TB, noBPF bool)) {
	t.Helper()
	for _, noBPF := range []bool{false, true} {
		t.Run(map[bool]string{false: "bpf", true: "procfs"}[noBPF], func(t *testing.T) {
			hosttest.Need(t, hosttest.Root, hosttest.CPUs(2))
			if !noBPF {
				hosttest.Need(t, collecting)
			}
			for range 3 {
				a := &attempt{TB: t}
				if test(a, noBPF); len(a.wrong) == 0 {
					return
				}
				t.Logf("wrong: %s", strings.Join(a.wrong, "\n"))
			}
			t.Error("wrong in each attempt")
		})
	}
}

func TestThreadsWhereTheyRan(t *testing.T) {
	both(t, func(tb testing.TB, noBPF bool) {
		tb.Helper()
		b := start(tb, "burn", 0)
		s := begin(tb, Watch{Subjects: []Subject{{Role: results.Application, PID: b.pid(), Planned: cpuset.Of(0)}}, NoBPF: noBPF})
		before := b.burn(1)
		spent := b.burn(100) - before
		w := end(tb, s)
		cpus, ran := seen(w, b.pid())
		if cpus != cpuset.Of(0) {
			tb.Errorf("seen on CPU %s, want 0", cpus)
		}
		if !noBPF && (ran < spent/2 || ran > time.Duration(w.Window)) {
			tb.Errorf("ran %s of %s, in a window of %s", ran, spent, time.Duration(w.Window))
		}
		if why := judge.Contradictions(w, judge.Expect{}); len(why) > 0 {
			tb.Errorf("contradictions: %q", why)
		}
		c := w.CPUs
		if len(c) != 2 || c[0].Interrupts+c[1].Interrupts == 0 || (c[0].ContextSwitches == 0) != noBPF {
			tb.Errorf("CPUs: %+v", c)
		}
	})
}

// A task that is on its CPU when the window opens and still when it closes never switches.
func TestThreadThatNeverSwitches(t *testing.T) {
	hosttest.Need(t, hosttest.Root, collecting)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s := begin(t, Watch{Subjects: []Subject{{Role: results.Application, PID: os.Getpid(), Planned: cpuset.Of(0, 1)}}})
	w := end(t, s)
	tid := unix.Gettid()
	i := slices.IndexFunc(w.Threads, func(t results.Thread) bool { return t.TID == tid })
	if i < 0 || w.Threads[i].Ran <= 0 || w.Threads[i].Seen.IsEmpty() {
		t.Errorf("thread %d, which opened and closed the window, did not run in it: %+v", tid, w.Threads)
	}
}

func TestThreadsThatMove(t *testing.T) {
	both(t, func(tb testing.TB, noBPF bool) {
		tb.Helper()
		b := start(tb, "burn", 0)
		s := begin(tb, Watch{Subjects: []Subject{{Role: results.Application, PID: b.pid(), Planned: cpuset.Of(0)}}, NoBPF: noBPF})
		b.burn(50)
		s.SubjectDone(b.pid()) // a look at it now
		b.move(1)
		b.burn(50)
		w := end(tb, s)
		if cpus, _ := seen(w, b.pid()); cpus != cpuset.Of(0, 1) {
			tb.Errorf("seen on CPU %s, want 0-1", cpus)
		}
		why := strings.Join(judge.Contradictions(w, judge.Expect{}), "\n")
		if !strings.Contains(why, "("+comm()+") ran on CPU 1, planned 0") {
			tb.Errorf("contradictions: %q", why)
		}
		if !noBPF && !strings.Contains(strings.Join(w.Warnings, "\n"), "on CPU 1, planned 0") {
			tb.Errorf("warnings: %q", w.Warnings)
		}
	})
}

// A client comes and goes within the window; nothing of it may be lost.
func TestClientWithinTheWindow(t *testing.T) {
	both(t, func(tb testing.TB, noBPF bool) {
		tb.Helper()
		s := begin(tb, Watch{NoBPF: noBPF})
		b := start(tb, "burn", 1)
		s.AddSubject(Subject{Role: results.Client, PID: b.pid(), Planned: cpuset.Of(1)})
		b.burn(20)
		s.SubjectDone(b.pid())
		b.end()
		s.SubjectDone(b.pid())
		w := end(tb, s)
		cpus, _ := seen(w, b.pid())
		var switched uint64
		for _, t := range w.Threads {
			switched += t.Voluntary + t.Involuntary
		}
		if cpus != cpuset.Of(1) || switched == 0 {
			tb.Errorf("seen on CPU %s with %d switches, want 1 and some", cpus, switched)
		}
		if why := judge.Contradictions(w, judge.Expect{}); len(why) > 0 {
			tb.Errorf("contradictions: %q", why)
		}
	})
}

// What a subject starts, and ends, within the window ran where it ran.
func TestTree(t *testing.T) {
	both(t, func(tb testing.TB, noBPF bool) {
		tb.Helper()
		b := start(tb, "family", 1)
		s := begin(tb, Watch{CPUs: cpuset.Of(0, 1), NoBPF: noBPF})
		s.AddSubject(Subject{Role: results.Application, PID: b.pid(), Planned: cpuset.Of(1), Tree: true})
		b.burn(600) // two looks at /proc and more
		s.SubjectDone(b.pid())
		w := end(tb, s)
		var ran time.Duration
		child := false
		for _, thread := range w.Threads {
			if thread.Role != results.Application || thread.Seen != cpuset.Of(1) && !thread.Seen.IsEmpty() {
				tb.Errorf("thread: %+v", thread)
			}
			if thread.PID != b.pid() && !thread.Seen.IsEmpty() {
				child = true
			}
			if thread.PID != b.pid() {
				ran += time.Duration(thread.Ran)
			}
		}
		if !child || !noBPF && ran < 300*time.Millisecond {
			tb.Errorf("the child ran %s: %+v", ran, w.Threads)
		}
		if why := judge.Contradictions(w, judge.Expect{}); len(why) > 0 {
			tb.Errorf("contradictions: %q, warnings: %q", why, w.Warnings)
		}
	})
}

func TestNeighbours(t *testing.T) {
	both(t, func(tb testing.TB, noBPF bool) {
		tb.Helper()
		b := start(tb, "family", 1)
		s := begin(tb, Watch{Neighbours: Neighbours{b.pid(), cpuset.Of(1)}, NoBPF: noBPF})
		b.burn(100)
		s.look()
		w := end(tb, s)
		n := w.Neighbours
		// The children are known by their parent's time alone: to the tick, and there were two.
		if !n.Alive || time.Duration(n.CPUTime) < 70*time.Millisecond || !noBPF && n.Seen != cpuset.Of(1) {
			tb.Errorf("neighbours: %+v", n)
		}
		if why := judge.Contradictions(w, judge.Expect{Noisy: true, Neighbours: cpuset.Of(1)}); len(why) > 0 {
			tb.Errorf("contradictions: %q, warnings: %q", why, w.Warnings)
		}
	})
}

func TestDeadNeighbours(t *testing.T) {
	both(t, func(tb testing.TB, noBPF bool) {
		tb.Helper()
		b := start(tb, "burn", 1)
		s := begin(tb, Watch{Neighbours: Neighbours{b.pid(), cpuset.Of(1)}, NoBPF: noBPF})
		b.burn(20)
		b.end()
		w := end(tb, s)
		why := judge.Contradictions(w, judge.Expect{Noisy: true, Neighbours: cpuset.Of(1)})
		if !slices.Contains(why, "the neighbours are dead") {
			tb.Errorf("contradictions: %q", why)
		}
	})
}

func TestIntruderIsNamed(t *testing.T) {
	both(t, func(tb testing.TB, noBPF bool) {
		tb.Helper()
		app, b := start(tb, "burn", 0), start(tb, "burn", 0)
		subjects := []Subject{{Role: results.Application, PID: app.pid(), Planned: cpuset.Of(0)}}
		s := begin(tb, Watch{Measured: cpuset.Of(0), Subjects: subjects, NoBPF: noBPF})
		app.burn(5)
		b.burn(100)
		w := end(tb, s)
		var ran results.Nanoseconds
		for _, i := range w.Sources {
			if slices.Contains(b.tids(), i.TID) {
				ran += value(i.Total)
				if i.Name != comm() || i.Kind != results.Task || i.PID != b.pid() || i.CPU != 0 {
					tb.Errorf("%+v", i)
				}
			}
			if slices.Contains(app.tids(), i.TID) {
				tb.Errorf("the application is an intruder: %+v", i)
			}
		}
		if time.Duration(ran) < 50*time.Millisecond {
			tb.Errorf("process %d ran %s of 100 ms or more: %+v", b.pid(), time.Duration(ran), w.Sources)
		}
		why := strings.Join(judge.Contradictions(w, judge.Expect{Lane: cpuset.Of(0)}), "\n")
		if !strings.Contains(why, "intruders ran") || !strings.Contains(why, comm()+" (") {
			tb.Errorf("contradictions: %q", why)
		}
	})
}

func TestNothingIsLeft(t *testing.T) {
	both(t, func(tb testing.TB, noBPF bool) {
		tb.Helper()
		open := func() int {
			entries, err := os.ReadDir("/proc/self/fd")
			if err != nil {
				tb.Fatal(err)
			}
			return len(entries)
		}
		window := func() {
			w := end(tb, begin(tb, Watch{Measured: cpuset.Of(0), NoBPF: noBPF}))
			if w.Window <= 0 {
				tb.Errorf("window: %d", w.Window)
			}
		}
		window() // what the libraries keep for ever
		files, routines := open(), runtime.NumGoroutine()
		for range 3 {
			window()
		}
		if f, r := open(), runtime.NumGoroutine(); f != files || r != routines {
			tb.Errorf("%d files and %d goroutines before, %d and %d after", files, routines, f, r)
		}
	})
}

// A cpuset that somebody widens within the window, and puts back, was not as planned.
func TestCpusets(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.CPUs(2))
	dir := group(t)
	file := filepath.Join(dir, "cpuset.cpus")
	if _, err := os.Stat(file); err != nil {
		t.Skip("skipped: ", err)
	}
	write := func(cpus string) {
		if err := os.WriteFile(file, []byte(cpus), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("1")
	for widened, want := range map[bool]cpuset.Set{false: cpuset.Of(1), true: cpuset.Of(0, 1)} {
		s := begin(t, Watch{Cpusets: map[string]cpuset.Set{dir: cpuset.Of(1)}})
		write("1") // the same again
		if widened {
			write("0-1")
		}
		seen := !widened
		for end := time.Now().Add(10 * time.Second); !seen && time.Now().Before(end); runtime.Gosched() {
			s.mu.Lock()
			seen = s.cpusets[0].InForce == want
			s.mu.Unlock()
		}
		write("1")
		if w := end(t, s); len(w.Cpusets) != 1 || w.Cpusets[0].InForce != want || w.Cpusets[0].Planned != cpuset.Of(1) {
			t.Errorf("widened %t: found %+v, %q; expected %s in force", widened, w.Cpusets, w.Warnings, want)
		}
	}
}
