package rtla

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/probe"
)

func settle(tb testing.TB, settings string) Probe {
	tb.Helper()
	p, err := Driver{}.Read([]byte(settings))
	if err != nil {
		tb.Fatal(err)
	}
	return p.(Probe)
}

func second() probe.Conditions { return probe.Conditions{Name: "c", Window: time.Second} }

const head = "# RTLA timerlat histogram\n# Time unit is nanoseconds (ns)\n# Duration:   0 00:00:01\n"

// table returns rtla's output for CPU 1, with rows and sums of its three columns.
func table(rows, over, count, most string) string {
	return head + "Index   IRQ-001   Thr-001   Usr-001\n" + rows + "over: " + over + "\ncount: " + count +
		"\nmin: 1 1 1\navg: 1 1 1\nmax: " + most + "\n"
}

// What rtla of Linux 6.12 printed of two CPUs on Debian's real-time kernel, as it was.
func TestParse(t *testing.T) {
	data, err := os.ReadFile("testdata/two.txt")
	if err != nil {
		t.Fatal(err)
	}
	p, c := settle(t, "{interval: 5ms, holdIdle: true}"), second()
	m, err := p.parse(data, cpuset.MustParse("1-2"), c)
	if err != nil || len(m.Void) > 0 {
		t.Fatalf("%+v, %v", m, err)
	}
	last := map[string]int64{}
	for _, name := range []string{"c-irq", "c", "c-return"} {
		s := m.Samples[name]
		h, derr := s.Histogram.Decode()
		if derr != nil {
			t.Fatal(derr)
		}
		if n := uint64(h.TotalCount()); n+s.Lost != s.Wanted || n < 300 || h.Min()%1000 > 600 {
			t.Errorf("%s: %d samples, %+v, min %d", name, n, s, h.Min())
		}
		last[name] = h.ValueAtQuantile(50)
	}
	if last["c-irq"] >= last["c"] || last["c"] >= last["c-return"] {
		t.Errorf("interrupt, thread, return: %v", last)
	}
	if m, err = p.parse(data, cpuset.MustParse("1-3"), c); err != nil || len(m.Void) != 1 ||
		!strings.HasPrefix(m.Void[0], "CPUs 3: no samples") {
		t.Errorf("a thread did not run: void %q, %v", m.Void, err)
	}
	if _, err = p.parse(data, cpuset.MustParse("1"), c); err == nil {
		t.Error("a CPU that was not asked for is taken")
	}
	whole := strings.Index(string(data), "ALL:") // older versions end there
	for n, b := range data {
		for _, end := range []int{n, n + 1, n + 5} { // at each line, before its end, and in it
			if b != '\n' || end == whole || end >= len(data) {
				continue
			}
			if _, err = p.parse(data[:end], cpuset.MustParse("1-2"), c); err == nil {
				t.Fatalf("cut off after %d of %d bytes, and taken", end, len(data))
			}
		}
	}
}

func TestBeyond(t *testing.T) {
	p, on := settle(t, "{}"), cpuset.MustParse("1")
	parse := func(text string) (void []string, longest int64) {
		t.Helper()
		m, err := p.parse([]byte(text), on, second())
		if err != nil {
			t.Fatal(err)
		}
		h, err := m.Samples["c"].Histogram.Decode()
		if err != nil {
			t.Fatal(err)
		}
		if s := m.Samples["c"]; len(m.Void) == 0 && (s.Wanted != 1000 || s.Lost != 997 || m.Values["c-skipped"] != 997) {
			t.Errorf("%+v, %v: expected 997 of 1000 skipped", s, m.Values)
		}
		return m.Void, h.Max()
	}
	// A single sample beyond the end is known: it is the longest.
	void, longest := parse(table("3000 3 2 3\n", "0 1 0", "3 3 3", "3100 250000000 3900"))
	if len(void) > 0 || longest < 249_000_000 || longest > 251_000_000 {
		t.Errorf("void %q, longest %d", void, longest)
	}
	void, _ = parse(table("3000 3 1 3\n", "0 2 0", "3 3 3", "3100 250000000 3900"))
	if len(void) != 1 || !strings.Contains(void[0], "2 samples (Thr) over 100ms") {
		t.Errorf("void %q", void)
	}
	void, _ = parse(table("3000 3 3 0\n", "0 0 0", "3 3 0", "3100 3200 -"))
	if len(void) != 1 || void[0] != "CPU 1: no samples (Usr)" {
		t.Errorf("void %q", void)
	}
	void, _ = parse(table("3000 3 3 3\n", "0 0 0", "3 3 3", "3100 3200 3300") + "7 (0.10%) events missed, results might not be accurate\n")
	if len(void) != 1 || !strings.Contains(void[0], "7 (0.10%)") {
		t.Errorf("void %q", void)
	}
	// Nothing ran: rtla has no columns, and no error.
	none := head + "Index\nover: \ncount:\nmin:  \navg:  \nmax:  \nALL:        IRQ       Thr       Usr\ncount: 0 0 0\nmin: - - -\navg: - - -\nmax: - - -\n"
	if void, _ = parse(none); len(void) != 1 || !strings.HasPrefix(void[0], "CPUs 1: no samples") {
		t.Errorf("void %q", void)
	}
}

func TestRefused(t *testing.T) {
	micro, err := os.ReadFile("testdata/microseconds.txt")
	if err != nil {
		t.Fatal(err)
	}
	short, err := os.ReadFile("testdata/short.txt") // of a histogram that ends at 30 µs
	if err != nil {
		t.Fatal(err)
	}
	good := table("3000 3 3 3\n", "0 0 0", "3 3 3", "3100 3200 3300")
	for want, text := range map[string]string{
		"it is cut off":            strings.TrimSuffix(good, "\n"),
		"found the end":            good[:strings.Index(good, "max:")],
		`(ns)", found "# Time uni`: string(micro),
		"and max is 97217574 ns":   string(short),
		`histogram", found ""`:     "\n",
		"1 of 3 samples":           table("3000 2 3 3\n", "0 0 0", "3 3 3", "3100 3200 3300"),
		"more samples than count":  table("3000 3 4 3\n", "0 0 0", "3 3 3", "3100 3200 3300"),
		"and max is 3200 ns":       table("3000 3 2 3\n", "0 1 0", "3 3 3", "3100 3200 3300"),
		"none over max":            table("3000 3 3 3\n", "0 0 0", "3 3 3", "2900 3200 3300"),
		"bucket 3500":              table("3500 3 3 3\n", "0 0 0", "3 3 3", "3600 3600 3600"),
		"bucket 100000000":         table("100000000 3 3 3\n", "0 0 0", "3 3 3", "100000000 100000000 100000000"),
		"bucket 2000":              table("3000 1 1 1\n2000 2 2 2\n", "0 0 0", "3 3 3", "3100 3200 3300"),
		"expected 4 numbers":       table("3000 3 3\n", "0 0 0", "3 3 3", "3100 3200 3300"),
		`"-3"`:                     table("3000 -3 3 3\n", "0 0 0", "3 3 3", "3100 3200 3300"),
		"max: ":                    table("3000 3 3 3\n", "0 0 0", "3 3 3", "3100 3200"),
		"of at most 864":           table("3000 3 3 3\n", "0 0 0", "3 3 3", "3100 3200 86400000000001"),
		`index: "Thr-002"`:         strings.Replace(good, "Thr-001", "Thr-002", 1),
		"index: 2 columns":         strings.Replace(good, "   Usr-001", "", 1),
		"sums of the columns":      good + "ALL: IRQ Thr Usr\ncount: 3 3 4\nmin: 1 1 1\navg: 1 1 1\nmax: 1 1 1\n",
		"expected IRQ, Thr, Usr":   good + "ALL: IRQ Thr\n",
		"expected the end":         good + "and more\n",
	} {
		if _, err := settle(t, "{}").parse([]byte(text), cpuset.MustParse("1-2"), second()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestSettings(t *testing.T) {
	for settings, want := range map[string]string{
		"{}": "--cpus 1-2,5 --priority f:80 --period 1000 --duration 1s --nano --bucket-size 1000 --entries 100000 --no-aa --warm-up 2",
		"{interval: 200us, priority: 7, holdIdle: true}": "--cpus 1-2,5 --priority f:7 --period 200 --duration 1s --nano " +
			"--bucket-size 1000 --entries 100000 --no-aa --warm-up 2 --dma-latency 0",
	} {
		p, c := settle(t, settings), second()
		c.Warmup = 2 * time.Second
		if got := strings.Join(p.argv(cpuset.MustParse("1-2,5"), c), " "); got != "rtla timerlat hist --user-threads "+want {
			t.Errorf("%s: %s", settings, got)
		}
		if err := p.Validate(c); err != nil {
			t.Error(err)
		}
	}
	for settings, field := range map[string]string{"{interval: 50us}": "interval", "{interval: 100500ns}": "interval", "{priority: 0}": "priority",
		"{threads: -1}": "threads", "{policy: other}": "policy"} {
		if _, err := (Driver{}).Read([]byte(settings)); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", settings, err)
		}
	}
	for _, c := range []probe.Conditions{{Window: 1500 * time.Millisecond}, {Window: time.Second, Warmup: time.Millisecond}} {
		if err := settle(t, "{}").Validate(c); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
	if _, err := settle(t, "{threads: 1024}").cpus(); err == nil || !strings.Contains(err.Error(), "threads: 1024") {
		t.Errorf("more threads than CPUs: %v", err)
	}
}

// Each thing that can be missing is named, with a remedy.
func TestMissing(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	host := fstest.MapFS{}
	for _, step := range []struct{ add, text, want, remedy string }{
		{"proc/version", "", "not mounted at /sys/kernel/tracing", "mount -t tracefs"},
		{tracing + "/available_tracers", "osnoise nop\n", "this kernel does not have", "CONFIG_TIMERLAT_TRACER"},
		{tracing + "/available_tracers", "timerlat osnoise nop\n", "takes no threads of programs", "Linux 6.5"},
		{tracing + "/osnoise/per_cpu/cpu0/timerlat_fd", "", "", ""},
		{instance + "/trace", "", "another rtla timerlat hist runs", "rmdir /sys"},
	} {
		host[step.add] = file(step.text)
		what, remedy := missing(host)
		if !strings.Contains(what, step.want) || !strings.Contains(remedy, step.remedy) || step.want == "" && what != "" {
			t.Errorf("%q, %q: expected %q, %q", what, remedy, step.want, step.remedy)
		}
	}
	dir := t.TempDir()
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	for help, want := range map[string]string{
		"rtla timerlat hist: (version 6.1.0)\n  -k/--kernel-threads": "rtla 6.1.0 has no threads of its own",
		"what?": "rtla has no threads of its own",
		"rtla timerlat hist: (version 6.12)\n  -u/--user-threads: use": "tracefs",
	} {
		script := "#!/bin/sh\ncat >&2 <<'END'\n" + help + "\nEND\nexit 1\n"
		if err := os.WriteFile(filepath.Join(dir, Program), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		if what, remedy := settle(t, "{}").Missing(t.Context(), fstest.MapFS{}); !strings.Contains(what, want) || remedy == "" {
			t.Errorf("%q, %q: expected %q", what, remedy, want)
		}
	}
}

// rtla on this host, also when it is asked to end in the middle: it leaves nothing behind.
func TestRun(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Program(Program))
	p, c := settle(t, "{threads: 1}"), second()
	if what, remedy := p.Missing(t.Context(), os.DirFS("/")); what != "" {
		t.Skipf("skipped: %s: %s", what, remedy)
	}
	c.Window = 2 * time.Second
	m, err := p.Run(t.Context(), c)
	if err != nil || len(m.Void) > 0 || m.Samples["c"].Wanted < 2000 || m.Facts["version"] == "" {
		t.Errorf("%+v, %v", m, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	c.Window = time.Minute
	if m, err = p.Run(ctx, c); err == nil {
		t.Errorf("%+v: expected an error", m)
	}
	if _, err = os.Stat("/" + instance); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is left: %v", instance, err)
	}
	if out, err := exec.Command("pgrep", "timerlatu").Output(); err == nil {
		t.Errorf("threads are left: %s", out)
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"testdata/two.txt", "testdata/short.txt", "testdata/microseconds.txt"} {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(table("3000 3 2 3\n", "0 1 0", "3 3 3", "3100 250000000 3900")))
	p := settle(f, "{}")
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := p.parse(data, cpuset.MustParse("1-2"), second())
		if err != nil {
			return
		}
		for name, s := range m.Samples {
			h, err := s.Histogram.Decode()
			if err != nil {
				t.Fatal(err)
			}
			if n := uint64(h.TotalCount()); len(m.Void) == 0 && (n == 0 || n+s.Lost != s.Wanted) {
				t.Errorf("%s: %d samples, %+v", name, n, s)
			}
		}
	})
}
