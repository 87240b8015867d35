package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/probe/http"
	"isolane.dev/isolane/probe/webserver"
	"isolane.dev/isolane/probe/wrk"
	"isolane.dev/isolane/results"
)

const (
	httpPairs   = 9
	httpWindow  = 2 * time.Second
	httpAddress = "127.0.0.1:17080"
)

// load is what one run of either generator found.
type load struct {
	Rate   float64 `json:"rate"`   // requests/s
	PerCPU float64 `json:"perCPU"` // requests per second of CPU time of its process
}

// probeHTTP makes this binary the server and the client of `isolane probe http` and `isolane probe wrk`: in the
// arguments stand the role, the settings and the directory of the server.
func probeHTTP() (bool, error) {
	if os.Getenv("ISOLANE_BENCH") != "http" {
		return false, nil
	}
	role, settings := os.Args[1], []byte(os.Args[2])
	var d probe.Driver = http.Driver{}
	if role == "wrk" {
		d = wrk.Driver{}
	}
	p, err := d.Read(settings)
	if err != nil {
		return true, err
	}
	c := probe.Conditions{Name: "load", Address: netip.MustParseAddrPort(httpAddress), Dir: os.Args[3], Window: httpWindow}
	if role == "server" {
		return true, p.(http.Probe).Serve(context.Background(), c, os.Stdout)
	}
	who := unix.RUSAGE_SELF
	if role == "wrk" {
		who = unix.RUSAGE_CHILDREN
	}
	from := cpuTime(who)
	m, err := p.(interface {
		Run(context.Context, probe.Conditions) (results.Measurement, error)
	}).Run(context.Background(), c)
	if err != nil {
		return true, err
	}
	rate, ok := m.Values["load"+webserver.Requests]
	if !ok {
		rate = m.Values["load"]
	}
	return true, json.NewEncoder(os.Stdout).Encode(load{rate, rate * httpWindow.Seconds() / (cpuTime(who) - from)})
}

// cpuTime is that of this process, or of its children that ended, in seconds.
func cpuTime(who int) float64 {
	var u unix.Rusage
	if err := unix.Getrusage(who, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// BenchmarkHTTP measures what our HTTP generator and wrk can ask for: both as closed loops of as many connections,
// of 1 KiB from nginx, one thread on one CPU, the server on another,
// both with real-time priority, in pairs of random order. It reports the medians,
// and those of the ratios within the pairs.
func BenchmarkHTTP(b *testing.B) {
	hosttest.Need(b, hosttest.Root, hosttest.CPUs(2), hosttest.Program("nginx"), hosttest.Program("wrk"), hosttest.Program("chrt"))
	h, err := host.Read(host.Live())
	if err != nil {
		b.Fatal(err)
	}
	cpus := []string{fmt.Sprint(h.Usable().First()), fmt.Sprint(h.Usable().Last())}
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	start := func(cpu, role, settings string) *exec.Cmd {
		c := exec.CommandContext(b.Context(), "taskset", "-c", cpu, "chrt", "-f", "50", self, role, settings, dir)
		c.Env = append(os.Environ(), "ISOLANE_BENCH=http")
		c.Stderr = os.Stderr
		return c
	}
	serveHTTP(b, start(cpus[1], "server", "{server: nginx}"))
	for _, connections := range []int{1, 20, 100} {
		b.Run(fmt.Sprintf("connections=%d", connections), func(b *testing.B) {
			ours := fmt.Sprintf("{size: 1Ki, rate: max, connections: %d}", connections)
			theirs := fmt.Sprintf("{size: 1Ki, threads: 1, connections: %d}", connections)
			for b.Loop() {
				compare(b, func() load { return oneLoad(b, start(cpus[0], "http", ours)) },
					func() load { return oneLoad(b, start(cpus[0], "wrk", theirs)) })
			}
		})
	}
}

// compare reports the medians of both, and of the ratios.
func compare(b *testing.B, ours, theirs func() load) {
	b.Helper()
	values := map[string][]float64{}
	for range httpPairs {
		var o, t load
		if rand.N(2) == 0 {
			o, t = ours(), theirs()
		} else {
			t, o = theirs(), ours()
		}
		b.Logf("ours %.0f requests/s, %.0f per CPU second  wrk %.0f, %.0f", o.Rate, o.PerCPU, t.Rate, t.PerCPU)
		for name, value := range map[string]float64{"ours/s": o.Rate, "wrk/s": t.Rate, "ours/CPUs": o.PerCPU,
			"wrk/CPUs": t.PerCPU, "rate-ours/wrk": o.Rate / t.Rate, "perCPU-ours/wrk": o.PerCPU / t.PerCPU} {
			values[name] = append(values[name], value)
		}
	}
	for name, of := range values {
		slices.Sort(of)
		b.ReportMetric(of[len(of)/2], name)
	}
}

// serveHTTP runs the server until the benchmark ends.
func serveHTTP(b *testing.B, s *exec.Cmd) {
	b.Helper()
	s.Cancel = func() error { return s.Process.Signal(os.Interrupt) }
	out, err := s.StdoutPipe()
	if err == nil {
		err = s.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Process.Kill(); err != nil { // nginx then gets SIGTERM
			b.Error(err)
		}
		_ = s.Wait() // it was killed
	})
	line := make([]byte, 64)
	if n, err := out.Read(line); err != nil {
		b.Fatalf("server: %q, %v", line[:n], err)
	}
}

func oneLoad(b *testing.B, c *exec.Cmd) load {
	b.Helper()
	out, err := c.Output()
	var l load
	if err == nil {
		err = json.Unmarshal(out, &l)
	}
	if err != nil {
		b.Fatalf("%q: %v", out, err)
	}
	return l
}
