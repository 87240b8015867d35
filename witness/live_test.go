package witness

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/results"
)

// childMode makes the test binary a process to be witnessed: "burn" burns CPU time, "family" lets a
// child of its own do it that ends at once.
const childMode = "ISOLANE_WITNESS_CHILD"

func TestMain(m *testing.M) {
	if mode := os.Getenv(childMode); mode != "" {
		if err := child(mode); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// child burns as many milliseconds of CPU time as each line says, and answers each with what all of
// this process has spent by then.
func child(mode string) error {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		ms, err := strconv.Atoi(lines.Text())
		if err != nil {
			return err
		}
		if mode == "family" {
			cmd := exec.Command(os.Args[0])
			cmd.Env = []string{childMode + "=burn"}
			cmd.Stdin = strings.NewReader(lines.Text() + "\n")
			err = cmd.Run()
		} else {
			err = burn(time.Duration(ms) * time.Millisecond)
		}
		if err != nil {
			return err
		}
		if _, err = fmt.Println(int64(cpuTime(unix.CLOCK_PROCESS_CPUTIME_ID))); err != nil {
			return err
		}
	}
	return lines.Err()
}

func cpuTime(clock int32) time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(clock, &now); err != nil {
		return 0
	}
	return time.Duration(now.Nano())
}

func burn(d time.Duration) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for end := cpuTime(unix.CLOCK_THREAD_CPUTIME_ID) + d; cpuTime(unix.CLOCK_THREAD_CPUTIME_ID) < end; {
	}
	return nil
}

// burner is a child process that runs on one CPU.
type burner struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// start starts a child whose threads are all born on the given CPU.
func start(t testing.TB, mode string, cpu int) *burner {
	t.Helper()
	b := &burner{t: t, cmd: exec.Command(os.Args[0])}
	b.cmd.Env = []string{childMode + "=" + mode, "GOMAXPROCS=1"}
	b.cmd.Stderr = os.Stderr
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := b.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := b.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	b.in, b.out = in, bufio.NewReader(out)
	runtime.LockOSThread() // also for Pdeathsig
	var before, only unix.CPUSet
	only.Set(cpu)
	if err = errors.Join(unix.SchedGetaffinity(0, &before), unix.SchedSetaffinity(0, &only)); err != nil {
		t.Fatal(err)
	}
	err = b.cmd.Start()
	if err = errors.Join(err, unix.SchedSetaffinity(0, &before)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.end()
		runtime.UnlockOSThread()
	})
	b.burn(1) // it is up
	return b
}

func (b *burner) pid() int { return b.cmd.Process.Pid }

func (b *burner) tids() []int { return ids(os.DirFS("/"), processDir(b.pid())+"/task") }

// burn lets the child burn CPU time and returns what it has spent in all.
func (b *burner) burn(ms int) time.Duration {
	b.t.Helper()
	if _, err := fmt.Fprintln(b.in, ms); err != nil {
		b.t.Fatal(err)
	}
	line, err := b.out.ReadString('\n')
	if err != nil {
		b.t.Fatal(err)
	}
	spent, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	if err != nil {
		b.t.Fatal(err)
	}
	return time.Duration(spent)
}

// move pins all threads of the child to another CPU.
func (b *burner) move(cpu int) {
	b.t.Helper()
	var only unix.CPUSet
	only.Set(cpu)
	for _, tid := range b.tids() {
		if err := unix.SchedSetaffinity(tid, &only); err != nil {
			b.t.Fatal(err)
		}
	}
}

// end ends the child and waits for it. It may be called again.
func (b *burner) end() {
	b.in.Close()
	_ = b.cmd.Process.Kill()
	_ = b.cmd.Wait()
}

// begin opens a window on these CPUs.
func begin(t testing.TB, w Watch) *Session {
	t.Helper()
	w.CPUs = cpuset.Of(0, 1)
	s, err := Begin(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// end closes the window and checks that the evidence is from where it should be.
func end(t testing.TB, s *Session) results.Witness {
	t.Helper()
	w, err := s.End()
	if err != nil {
		t.Fatal(err)
	}
	want := "bpf"
	if s.watch.NoBPF {
		want = "procfs"
	}
	if w.Source != want {
		t.Fatalf("source %s, want %s: %q", w.Source, want, w.Warnings)
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

// both runs a test with the tracer and with /proc sampled.
func both(t *testing.T, test func(t *testing.T, noBPF bool)) {
	for _, noBPF := range []bool{false, true} {
		t.Run(map[bool]string{false: "bpf", true: "procfs"}[noBPF], func(t *testing.T) {
			hosttest.Need(t, hosttest.Root, hosttest.CPUs(2))
			if !noBPF {
				hosttest.Need(t, tracing)
			}
			test(t, noBPF)
		})
	}
}

// tracing is a kernel that takes the tracer.
func tracing() string {
	t, err := newTracer(os.DirFS("/"))
	if err == nil {
		err = t.discard()
	}
	if err != nil {
		return "needs eBPF at sched_switch: " + err.Error()
	}
	return ""
}

func TestThreadsWhereTheyRan(t *testing.T) {
	both(t, func(t *testing.T, noBPF bool) {
		b := start(t, "burn", 0)
		s := begin(t, Watch{Subjects: []Subject{{Application, b.pid(), cpuset.Of(0)}}, NoBPF: noBPF})
		before := b.burn(1)
		spent := b.burn(100) - before
		w := end(t, s)
		cpus, ran := seen(w, b.pid())
		if cpus != cpuset.Of(0) {
			t.Errorf("seen on CPU %s, want 0", cpus)
		}
		if !noBPF && (ran < spent/2 || ran > time.Duration(w.Window)) {
			t.Errorf("ran %s of %s, in a window of %s", ran, spent, time.Duration(w.Window))
		}
		if why := Contradictions(w, Expect{}); len(why) > 0 {
			t.Error(why)
		}
		if c := w.CPUs; len(c) != 2 || c[0].Interrupts+c[1].Interrupts == 0 || (c[0].ContextSwitches == 0) != noBPF {
			t.Errorf("CPUs: %+v", c)
		}
	})
}

// A task that is on its CPU when the window opens and still when it closes never switches.
func TestThreadThatNeverSwitches(t *testing.T) {
	hosttest.Need(t, hosttest.Root, tracing)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s := begin(t, Watch{Subjects: []Subject{{Application, os.Getpid(), cpuset.Of(0, 1)}}})
	w := end(t, s)
	tid := unix.Gettid()
	i := slices.IndexFunc(w.Threads, func(t results.Thread) bool { return t.TID == tid })
	if i < 0 || w.Threads[i].Ran <= 0 || w.Threads[i].Seen.IsEmpty() {
		t.Errorf("thread %d, which opened and closed the window, did not run in it: %+v", tid, w.Threads)
	}
}

func TestThreadsThatMove(t *testing.T) {
	both(t, func(t *testing.T, noBPF bool) {
		b := start(t, "burn", 0)
		s := begin(t, Watch{Subjects: []Subject{{Application, b.pid(), cpuset.Of(0)}}, NoBPF: noBPF})
		b.burn(50)
		s.SubjectDone(b.pid()) // a look at it now
		b.move(1)
		b.burn(50)
		w := end(t, s)
		if cpus, _ := seen(w, b.pid()); cpus != cpuset.Of(0, 1) {
			t.Errorf("seen on CPU %s, want 0-1", cpus)
		}
		why := strings.Join(Contradictions(w, Expect{}), "\n")
		if !strings.Contains(why, "(witness.test) ran on CPU 1, planned 0") {
			t.Errorf("contradictions: %q", why)
		}
		if !noBPF && !strings.Contains(strings.Join(w.Warnings, "\n"), "on CPU 1, planned 0") {
			t.Errorf("warnings: %q", w.Warnings)
		}
	})
}

// A client comes and goes within the window; nothing of it may be lost.
func TestClientWithinTheWindow(t *testing.T) {
	both(t, func(t *testing.T, noBPF bool) {
		s := begin(t, Watch{NoBPF: noBPF})
		b := start(t, "burn", 1)
		s.AddSubject(Subject{Client, b.pid(), cpuset.Of(1)})
		b.burn(20)
		s.SubjectDone(b.pid())
		b.end()
		s.SubjectDone(b.pid())
		w := end(t, s)
		cpus, _ := seen(w, b.pid())
		var switched uint64
		for _, t := range w.Threads {
			switched += t.Voluntary + t.Involuntary
		}
		if cpus != cpuset.Of(1) || switched == 0 {
			t.Errorf("seen on CPU %s with %d switches, want 1 and some", cpus, switched)
		}
		if why := Contradictions(w, Expect{}); len(why) > 0 {
			t.Error(why)
		}
	})
}

func TestNeighbours(t *testing.T) {
	both(t, func(t *testing.T, noBPF bool) {
		b := start(t, "family", 1)
		s := begin(t, Watch{Neighbours: Neighbours{b.pid(), cpuset.Of(1)}, NoBPF: noBPF})
		b.burn(100)
		s.look()
		w := end(t, s)
		n := w.Neighbours
		// The children are known by their parent's time alone: to the tick, and there were two.
		if !n.Alive || time.Duration(n.CPUTime) < 70*time.Millisecond || !noBPF && n.Seen != cpuset.Of(1) {
			t.Errorf("neighbours: %+v", n)
		}
		if why := Contradictions(w, Expect{Noisy: true, Neighbours: cpuset.Of(1)}); len(why) > 0 {
			t.Error(why, w.Warnings, s.neighbours.debug)
		}
	})
}

func TestDeadNeighbours(t *testing.T) {
	both(t, func(t *testing.T, noBPF bool) {
		b := start(t, "burn", 1)
		s := begin(t, Watch{Neighbours: Neighbours{b.pid(), cpuset.Of(1)}, NoBPF: noBPF})
		b.burn(20)
		b.end()
		w := end(t, s)
		why := Contradictions(w, Expect{Noisy: true, Neighbours: cpuset.Of(1)})
		if !slices.Contains(why, "the neighbours are dead") {
			t.Errorf("contradictions: %q", why)
		}
	})
}

func TestIntruderIsNamed(t *testing.T) {
	both(t, func(t *testing.T, noBPF bool) {
		app, b := start(t, "burn", 0), start(t, "burn", 0)
		s := begin(t, Watch{Lane: cpuset.Of(0), Subjects: []Subject{{Application, app.pid(), cpuset.Of(0)}}, NoBPF: noBPF})
		app.burn(5)
		b.burn(100)
		w := end(t, s)
		var ran results.Nanoseconds
		for _, i := range w.Intruders {
			if slices.Contains(b.tids(), i.TID) {
				ran += i.Ran
				if i.Comm != "witness.test" || i.Kernel || i.CPU != 0 {
					t.Errorf("%+v", i)
				}
			}
			if slices.Contains(app.tids(), i.TID) {
				t.Errorf("the application is an intruder: %+v", i)
			}
		}
		if time.Duration(ran) < 50*time.Millisecond {
			t.Errorf("process %d ran %s of 100 ms or more: %+v", b.pid(), time.Duration(ran), w.Intruders)
		}
		why := strings.Join(Contradictions(w, Expect{Lane: cpuset.Of(0)}), "\n")
		if !strings.Contains(why, "intruders ran") || !strings.Contains(why, "witness.test (") {
			t.Errorf("contradictions: %q", why)
		}
	})
}

func TestNothingIsLeft(t *testing.T) {
	both(t, func(t *testing.T, noBPF bool) {
		open := func() int {
			entries, err := os.ReadDir("/proc/self/fd")
			if err != nil {
				t.Fatal(err)
			}
			return len(entries)
		}
		window := func() {
			w := end(t, begin(t, Watch{Lane: cpuset.Of(0), NoBPF: noBPF}))
			if w.Window <= 0 {
				t.Errorf("window: %d", w.Window)
			}
		}
		window() // what the libraries keep for ever
		files, routines := open(), runtime.NumGoroutine()
		for range 3 {
			window()
		}
		if f, r := open(), runtime.NumGoroutine(); f != files || r != routines {
			t.Errorf("%d files and %d goroutines before, %d and %d after", files, routines, f, r)
		}
	})
}
