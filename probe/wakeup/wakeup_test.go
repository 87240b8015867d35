package wakeup

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
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

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/results"
)

func TestMain(m *testing.M) { hosttest.Main(m, child) }

// child makes this binary a process that measures for a while, for tests that stop or restrict it.
func child() (bool, error) {
	window, err := time.ParseDuration(os.Getenv("ISOLANE_WAKEUP"))
	if err != nil {
		return false, nil
	}
	if _, err = fmt.Fprintln(os.Stdout, "begins"); err != nil {
		return true, err
	}
	m, err := usual().Run(context.Background(), probe.Conditions{Name: "w", Window: window})
	return true, errors.Join(err, json.NewEncoder(os.Stdout).Encode(m))
}

func usual() Probe {
	return Probe{Interval: quantity.Duration(time.Millisecond), Policy: FIFO, Priority: 80, Pin: true}
}

func short() probe.Conditions {
	return probe.Conditions{Name: "w", Warmup: 20 * time.Millisecond, Window: 200 * time.Millisecond}
}

// count returns how many samples there are, and how many took at least `least`.
func count(t *testing.T, m results.Measurement, least time.Duration) (all, long int64) {
	t.Helper()
	h, err := m.Samples["w"].Histogram.Decode()
	if err != nil {
		t.Fatal(err)
	}
	for _, bar := range h.Distribution() {
		if bar.From >= int64(least) {
			long += bar.Count
		}
	}
	return h.TotalCount(), long
}

func TestRun(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	one := usual()
	one.Threads = 1
	floating := usual()
	floating.Pin, floating.Threads, floating.Interval = false, 3, quantity.Duration(200*time.Microsecond)
	contrast := usual()
	contrast.Policy, contrast.Priority = Other, 0
	for _, p := range []Probe{usual(), one, floating, contrast} {
		var allowed unix.CPUSet
		if err := unix.SchedGetaffinity(0, &allowed); err != nil {
			t.Fatal(err)
		}
		threads := p.Threads
		if threads == 0 {
			threads = allowed.Count()
		}
		m, err := p.Run(t.Context(), short())
		if err != nil || len(m.Void) > 0 {
			t.Fatalf("%+v: void %q, %v", p, m.Void, err)
		}
		want := int64(threads) * int64(short().Window/p.Interval.Duration())
		longest := min(64, want)
		if !p.Pin { // where they were is not known
			longest = 0
		}
		all, _ := count(t, m, 0)
		if all != want || m.Samples["w"].Wanted != uint64(want) || len(m.Worst) != int(longest) {
			t.Errorf("%+v: %d samples, %d wanted, %d of the longest: expected %d", p, all, m.Samples["w"].Wanted, len(m.Worst), want)
		}
		for _, s := range m.Worst {
			if s.CPU == nil || !allowed.IsSet(*s.CPU) || s.End <= s.Begin || (s.Begin-m.Worst[0].Begin)%results.Nanoseconds(p.Interval) != 0 && threads == 1 {
				t.Errorf("%+v: %+v: expected a time on the grid of the first, %+v", p, s, m.Worst[0])
			}
		}
	}
}

// The thread has the requested properties.
func TestBecome(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	threads, err := usual().threads()
	if err != nil {
		t.Fatal(err)
	}
	last := threads[len(threads)-1]
	done := make(chan error)
	go func() { // the thread ends with it
		err := last.become()
		attr, attrErr := unix.SchedGetAttr(0, 0)
		var set unix.CPUSet
		err = errors.Join(err, attrErr, unix.SchedGetaffinity(0, &set))
		if err == nil && (attr.Policy != unix.SCHED_FIFO || attr.Priority != 80 || set.Count() != 1 || !set.IsSet(last.cpu)) {
			err = fmt.Errorf("%+v, CPUs %v", attr, set)
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A process that is frozen for a while has missed its activations, and each of them is a sample.
func TestFreeze(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "ISOLANE_WAKEUP=4s")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err = cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	if _, err = lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	for !measures(cmd.Process.Pid) {
		<-time.After(10 * time.Millisecond)
	}
	<-time.After(time.Second) // longer than its first activation takes
	stop := cmd.Process.Signal(syscall.SIGSTOP)
	// On a busy machine the thread that is to stop the others may wait for a CPU, while they measure on.
	stop = errors.Join(stop, unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WSTOPPED, nil))
	began := time.Now()
	<-time.After(500 * time.Millisecond)
	frozen := time.Since(began)
	if err = errors.Join(stop, cmd.Process.Signal(syscall.SIGCONT)); err != nil {
		t.Fatal(err)
	}
	var m results.Measurement
	if err = errors.Join(json.NewDecoder(lines).Decode(&m), cmd.Wait()); err != nil {
		t.Fatal(err)
	}
	// Of a thread that stood still for 500 ms, one activation was 499 ms late, the next 498 ms …
	all, late := count(t, m, 2*time.Millisecond)
	n := float64(all / 4000) // the threads
	_, half := count(t, m, frozen/2)
	missed := m.Values["w-missed"]
	t.Logf("frozen for %s, %g threads: %d samples, %d over 2 ms, %g missed", frozen, n, all, late, missed)
	want := n * float64(frozen.Milliseconds())
	if len(m.Void) > 0 || n == 0 || all%4000 != 0 || uint64(all) != m.Samples["w"].Wanted {
		t.Errorf("%d samples, void %q: expected all of 4000 a thread", all, m.Void)
	}
	if float64(late) < 0.95*want || float64(half) < 0.45*want || missed < 0.95*want {
		t.Errorf("%d samples over 2 ms, %d over half of the time, %g missed: expected about %g", late, half, missed, want)
	}
}

// measures reports whether a thread of a process has the priority to measure with.
func measures(pid int) bool {
	return slices.ContainsFunc(task.Threads(host.Live(), pid), func(tid int) bool {
		attr, err := unix.SchedGetAttr(tid, 0)
		return err == nil && attr.Policy == unix.SCHED_FIFO
	})
}

// Signals, such as those of Go's scheduler, to each thread, end no sleep early.
func TestSignals(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	ctx, cancel := context.WithCancel(t.Context())
	sent := make(chan int)
	go func() {
		n := 0
		for ctx.Err() == nil {
			tasks, err := os.ReadDir("/proc/self/task")
			if err != nil {
				t.Error(err)
			}
			for _, task := range tasks {
				if tid, err := strconv.Atoi(task.Name()); err == nil && unix.Tgkill(os.Getpid(), tid, syscall.SIGURG) == nil {
					n++
				}
			}
			<-time.After(time.Millisecond)
		}
		sent <- n
	}()
	m, err := usual().Run(t.Context(), short())
	cancel()
	n := <-sent
	all, _ := count(t, m, 0)
	if err != nil || len(m.Void) > 0 || uint64(all) != m.Samples["w"].Wanted || n == 0 {
		t.Errorf("%d signals: %d samples of %d, void %q, %v", n, all, m.Samples["w"].Wanted, m.Void, err)
	}
}

// A sleep that a signal interrupts is continued.
func TestInterrupted(t *testing.T) {
	threads, err := usual().threads()
	if err != nil {
		t.Fatal(err)
	}
	clock := threads[0].clock
	tid := make(chan int)
	slept := make(chan error)
	go func() { // without blocked signals
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		tid <- unix.Gettid()
		deadline := clock.Now() + int64(300*time.Millisecond)
		err := sleepUntil(deadline)
		if now := clock.Now(); err == nil && now < deadline {
			err = fmt.Errorf("woke up %s early", time.Duration(deadline-now))
		}
		slept <- err
	}()
	sleeper := <-tid
	for {
		select {
		case err := <-slept:
			if err != nil {
				t.Error(err)
			}
			return
		case <-time.After(10 * time.Millisecond):
			_ = unix.Tgkill(os.Getpid(), sleeper, syscall.SIGURG) // it may have ended
		}
	}
}

// If the machine does not grant the priority, there are no figures but a reason.
func TestNotGranted(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Program("setpriv"), hosttest.Program("prlimit"))
	for capability, want := range map[string]string{"sys_nice": "SCHED_FIFO", "ipc_lock": "mlockall"} {
		cmd := exec.Command("prlimit", "--rtprio=0", "--memlock=65536", "setpriv", "--bounding-set=-"+capability, "--inh-caps=-all", os.Args[0])
		cmd.Env = append(os.Environ(), "ISOLANE_WAKEUP=10ms")
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		var m results.Measurement
		if err = json.Unmarshal(bytes.TrimPrefix(out, []byte("begins\n")), &m); err != nil {
			t.Fatal(err)
		}
		if len(m.Void) == 0 || !strings.Contains(m.Void[0], want) || len(m.Samples) > 0 {
			t.Errorf("without %s: void %q, %d samples", capability, m.Void, len(m.Samples))
		}
	}
}

func TestTooManyThreads(t *testing.T) {
	p := usual()
	p.Threads = maxThreads
	if _, err := p.Run(t.Context(), short()); err == nil || !strings.Contains(err.Error(), "pin: false") {
		t.Error(err)
	}
}

func TestCancelled(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if m, err := usual().Run(ctx, probe.Conditions{Name: "w", Window: time.Hour}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%+v, %v", m, err)
	}
}

// The kernel says which bound on the latency of idle states is in force to whoever reads the device.
func TestHoldIdle(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	bound := func() int32 {
		f, err := os.Open("/dev/cpu_dma_latency")
		if err != nil {
			t.Skipf("skipped: needs /dev/cpu_dma_latency: %v", err)
		}
		defer f.Close()
		var value int32
		if err = binary.Read(f, binary.NativeEndian, &value); err != nil {
			t.Fatal(err)
		}
		return value
	}
	before := bound()
	if before == 0 {
		t.Skip("skipped: needs a host whose idle states nobody holds")
	}
	p := usual()
	p.HoldIdle = true
	release, err := p.holdMachine()
	if held := bound(); err != nil || held != 0 {
		t.Errorf("held at %d µs, %v", held, err)
	}
	release()
	if after := bound(); after != before {
		t.Errorf("%d µs after, %d before", after, before)
	}
}

func TestTimetable(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		interval := time.Duration(50_000 + r.IntN(1e9))
		c := probe.Conditions{Warmup: time.Duration(r.IntN(3e9)), Window: interval + time.Duration(r.IntN(3e9))}
		phase := r.Int64N(1e9)
		now := phase + r.Int64N(5e9)
		when := plan(now, phase, interval, c)
		if when.first < now || when.first >= now+int64(interval) || (when.first-phase)%int64(interval) != 0 {
			t.Fatalf("now %d, phase %d, interval %s: first %d", now, phase, interval, when.first)
		}
		var n uint64
		for due := when.first; due < when.end; due += int64(interval) {
			if due >= when.begin {
				n++
			}
		}
		if got := when.due(interval); got != n {
			t.Errorf("%+v, %s: %d activations, counted %d", when, interval, got, n)
		}
	}
}

func TestObjections(t *testing.T) {
	made := func(cut int64, early uint64) string {
		x := &thread{Probe: usual(), cpu: 1, latency: results.NewHistogram(), later: results.NewHistogram(), early: early}
		x.when = plan(0, 0, time.Millisecond, short())
		for due := x.when.begin; due < x.when.end-cut; due += int64(time.Millisecond) {
			x.activated(due, due+1000, false)
		}
		return x.objection()
	}
	if why := made(0, 0); why != "" {
		t.Error(why)
	}
	if why := made(int64(time.Millisecond), 0); !strings.Contains(why, "ended early: 199 of 200") {
		t.Error(why)
	}
	if why := made(0, 1); !strings.Contains(why, "before they were due") {
		t.Error(why)
	}
}

// An activation allocates nothing.
func TestNoAllocation(t *testing.T) {
	threads, err := usual().threads()
	if err != nil {
		t.Fatal(err)
	}
	x := threads[0]
	if n := testing.AllocsPerRun(200, func() {
		due := x.clock.Now() + 50_000
		if err := sleepUntil(due); err != nil {
			t.Fatal(err)
		}
		x.activated(due, x.clock.Now(), false)
	}); n > 0 {
		t.Errorf("%v allocations per activation", n)
	}
}

// A thread that was moved elsewhere did not measure its CPU.
func TestStayed(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.CPUs(2))
	threads, err := usual().threads()
	if err != nil {
		t.Fatal(err)
	}
	if len(threads) < 2 {
		t.Skip("skipped: needs 2 CPUs")
	}
	done := make(chan error)
	go func() { // the thread ends with it
		err := errors.Join(threads[0].become(), threads[0].stayed())
		if threads[1].stayed() == nil {
			err = errors.Join(err, errors.New("a thread of CPU 0 counts as one of CPU 1"))
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
