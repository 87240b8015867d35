package cyclictest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/results"
)

func settle(tb testing.TB, settings string) probe.Probe {
	tb.Helper()
	p, err := Driver{}.Read([]byte(settings))
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func second() probe.Conditions { return probe.Conditions{Name: "c", Window: time.Second} }

// document returns a report of one thread.
func document(thread string) []byte {
	return fmt.Appendf(nil, `{"file_version": 1, "rt_test_version:": "2.40", "return_code": 0, "num_threads": 1,
		"resolution_in_ns": 0, "thread": {"0": {%s}}}`, thread)
}

// A report of rt-tests 2.4 with idle states held, recorded as it was.
func TestParse(t *testing.T) {
	data, err := os.ReadFile("testdata/held.txt")
	if err != nil {
		t.Fatal(err)
	}
	m, err := settle(t, "{holdIdle: true}").Parse(data, second())
	if err != nil || len(m.Void) > 0 || m.Facts["version"] != "2.40" {
		t.Fatalf("%+v, %v", m, err)
	}
	h, err := m.Samples["c"].Histogram.Decode()
	if err != nil {
		t.Fatal(err)
	}
	if n := uint64(h.TotalCount()); n+m.Samples["c"].Lost != m.Samples["c"].Wanted || n < 1900 || h.Min()%1000 > 600 {
		t.Errorf("%d samples, %+v, min %d", n, m.Samples["c"], h.Min())
	}
	cut := strings.TrimSuffix(string(data), "# /dev/cpu_dma_latency set to 0us\n")
	if m, err = settle(t, "{holdIdle: true}").Parse([]byte(cut), second()); err != nil || len(m.Void) != 1 {
		t.Errorf("idle states were not held: void %q, %v", m.Void, err)
	}
	for n := range cut[:len(cut)-2] { // the last two end the object
		if _, err = settle(t, "{}").Parse([]byte(cut[:n]), second()); err == nil {
			t.Fatalf("cut off after %d of %d bytes, and taken", n, len(cut))
		}
	}
}

func TestBeyond(t *testing.T) {
	p := settle(t, "{threads: 1}")
	// Latencies of 3, 3, 4 and once 250,000 µs, with a histogram that ends at 100,000: all are known.
	m, err := p.Parse(document(`"histogram": {"3": 2, "4": 1}, "cycles": 4, "max": 250000`), second())
	if err != nil || len(m.Void) > 0 {
		t.Fatalf("%+v, %v", m, err)
	}
	h, err := m.Samples["c"].Histogram.Decode()
	if err != nil {
		t.Fatal(err)
	}
	if h.TotalCount() != 4 || h.Min() != 3500 || !h.ValuesAreEquivalent(h.Max(), 250_000_000) {
		t.Errorf("%d samples, %d to %d ns", h.TotalCount(), h.Min(), h.Max())
	}
	if s := m.Samples["c"]; s.Wanted != 1000 || s.Lost != 996 || m.Values["c-skipped"] != 996 {
		t.Errorf("%+v, %v: expected 996 of 1000 skipped", s, m.Values)
	}
	// Of two beyond the end, only the longest is known.
	m, err = p.Parse(document(`"histogram": {"3": 2, "4": 1}, "cycles": 5, "max": 250000`), second())
	if err != nil || len(m.Void) != 1 || !strings.Contains(m.Void[0], "2 samples over 100ms") {
		t.Errorf("void %q, %v", m.Void, err)
	}
	if m, err = p.Parse(document(`"histogram": {}, "cycles": 0, "max": 0`), second()); err != nil || len(m.Void) != 1 {
		t.Errorf("no samples: void %q, %v", m.Void, err)
	}
}

func TestRefused(t *testing.T) {
	overflow, err := os.ReadFile("testdata/overflow.txt") // of a histogram that ends at 20 µs
	if err != nil {
		t.Fatal(err)
	}
	for want, data := range map[string][]byte{
		"it is cut off":            overflow,
		"1 of 4 samples":           document(`"histogram": {"3": 2, "4": 1}, "cycles": 4, "max": 4`),
		"more samples than cycles": document(`"histogram": {"3": 2}, "cycles": 1, "max": 4`),
		`bin "5"`:                  document(`"histogram": {"5": 1}, "cycles": 1, "max": 4`),
		`bin "-3"`:                 document(`"histogram": {"-3": 1}, "cycles": 1, "max": 4`),
		`bin "100000"`:             document(`"histogram": {"100000": 1}, "cycles": 1, "max": 100000`),
		"at most 1728000000":       document(`"histogram": {}, "cycles": 1728000001, "max": 4`),
		"and 24h0m0s":              document(`"histogram": {}, "cycles": 1, "max": 86400000001`),
		"nothing was printed":      nil,
		"expected 1 and 0":         []byte(`{"file_version": 1, "resolution_in_ns": 1}`),
		"return_code: 1":           []byte(`{"file_version": 1, "return_code": 1}`),
		"0 of num_threads 0":       []byte(`{"file_version": 1}`),
		"invalid character 'U'":    []byte("Unable to change scheduling policy!\n"),
		"another value than -1":    document(`"histogram": {}, "cycles": -1, "max": 4`),
	} {
		if _, err := settle(t, "{}").Parse(data, second()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := settle(t, "{threads: 2}").Parse(document(`"histogram": {"3": 1}, "cycles": 1, "max": 3`), second()); err == nil {
		t.Error("one thread of two is taken")
	}
}

func TestSettings(t *testing.T) {
	c := second()
	c.Warmup = time.Millisecond
	for settings, want := range map[string]string{
		"{}": "--priority=80 --threads --affinity --interval=1000 --duration=1 --histogram=100000 --histfile=/dev/null --json=/proc/self/fd/1 --default-system",
		"{interval: 200us, priority: 7, threads: 3, holdIdle: true}": "--priority=7 --threads=3 --affinity --interval=200 --duration=1 " +
			"--histogram=100000 --histfile=/dev/null --json=/proc/self/fd/1",
	} {
		p := settle(t, settings)
		if got := strings.Join(p.Client("", c), " "); got != "cyclictest --quiet --mlockall "+want {
			t.Errorf("%s: %s", settings, got)
		}
		if err := p.Validate(c); err != nil {
			t.Error(err)
		}
	}
	for settings, field := range map[string]string{"{interval: 10us}": "interval", "{interval: 50500ns}": "interval", "{priority: 0}": "priority",
		"{threads: -1}": "threads", "{policy: other}": "policy"} {
		if _, err := (Driver{}).Read([]byte(settings)); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", settings, err)
		}
	}
	c.Window = 1500 * time.Millisecond
	if err := settle(t, "{}").Validate(c); err == nil {
		t.Error("a window of 1.5 s is taken")
	}
	if got := probe.Package(Driver{}, Program); got != "rt-tests" {
		t.Errorf("Debian package %q", got)
	}
}

// cyclictest on this host, once normally, and once frozen for 500 ms: it skips what it missed, and the report
// says so.
func TestRun(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Program(Program))
	c := second()
	c.Window = 4 * time.Second
	p := settle(t, "{threads: 1}")
	run := func(freeze time.Duration) results.Measurement {
		argv := p.Client("", c)
		cmd := exec.Command(argv[0], argv[1:]...)
		var out strings.Builder
		cmd.Stdout = &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if freeze > 0 {
			for !measures(cmd.Process.Pid) {
				<-time.After(10 * time.Millisecond)
			}
			<-time.After(time.Second) // longer than its first activation takes
			stop := cmd.Process.Signal(syscall.SIGSTOP)
			// On a busy machine the thread that is to stop the others may wait for a CPU, while they measure on.
			stop = errors.Join(stop, unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WSTOPPED, nil))
			<-time.After(freeze)
			if err := errors.Join(stop, cmd.Process.Signal(syscall.SIGCONT)); err != nil {
				t.Error(err)
			}
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		m, err := p.Parse([]byte(out.String()), c)
		if err != nil || len(m.Void) > 0 {
			t.Fatalf("%q: void %q, %v", out.String(), m.Void, err)
		}
		t.Logf("frozen for %s: %+v", freeze, m.Samples["c"].Lost)
		return m
	}
	if m := run(0); m.Samples["c"].Wanted < 4000 {
		t.Errorf("%+v", m)
	}
	m := run(500 * time.Millisecond)
	h, err := m.Samples["c"].Histogram.Decode()
	if err != nil {
		t.Fatal(err)
	}
	if s := m.Samples["c"]; s.Lost < 450 || uint64(h.TotalCount())+s.Lost != s.Wanted || h.Max() < int64(400*time.Millisecond) {
		t.Errorf("%d samples, %d of %d skipped, max %s: expected about 500 skipped", h.TotalCount(), s.Lost, s.Wanted, time.Duration(h.Max()))
	}
}

// measures reports whether a thread of a process has the priority to measure with.
func measures(pid int) bool {
	return slices.ContainsFunc(task.Threads(host.Live(), pid), func(tid int) bool {
		attr, err := unix.SchedGetAttr(tid, 0)
		return err == nil && attr.Policy == unix.SCHED_FIFO
	})
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"testdata/held.txt", "testdata/overflow.txt"} {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add(document(`"histogram": {"3": 2, "4": 1}, "cycles": 4, "max": 250000`))
	f.Add(document(`"histogram": {"3": 2}, "cycles": 4, "max": 4`))
	p := settle(f, "{}")
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := p.Parse(data, second())
		if err != nil {
			return
		}
		s := m.Samples["c"]
		h, err := s.Histogram.Decode()
		if err != nil {
			t.Fatal(err)
		}
		if n := uint64(h.TotalCount()); len(m.Void) == 0 && (n == 0 || n+s.Lost != s.Wanted) {
			t.Errorf("%d samples, %+v", n, s)
		}
	})
}
