package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
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
	frozenPairs = 5
	httpWindow  = 2 * time.Second
	httpPort    = "17080"
	httpAddress = "127.0.0.1:" + httpPort
)

// load is what one run of either generator found.
type load struct {
	Rate   float64 `json:"rate"`   // requests/s
	PerCPU float64 `json:"perCPU"` // requests per second of CPU time of its process
	P99    float64 `json:"p99"`    // nanoseconds
}

// probeHTTP makes this binary the server and the client of `isolane probe http` and `isolane probe wrk`: in the
// arguments stand the role, the settings, the directory of the server and the window.
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
	c := probe.Conditions{Name: "load", Address: netip.MustParseAddrPort(httpAddress), Dir: os.Args[3]}
	if c.Window, err = time.ParseDuration(os.Args[4]); err != nil {
		return true, err
	}
	if role == "server" {
		return true, p.(http.Probe).Serve(context.Background(), c, os.Stdout)
	}
	who := unix.RUSAGE_SELF
	if role == "wrk" {
		who = unix.RUSAGE_CHILDREN
	}
	from, began := cpuTime(who), time.Now()
	m, err := p.(interface {
		Run(context.Context, probe.Conditions) (results.Measurement, error)
	}).Run(context.Background(), c)
	if err != nil {
		return true, err
	}
	l := load{Rate: m.Values["load"], P99: m.Values["load-p99"]}
	if role == "http" {
		h, err := m.Samples["load"].Histogram.Decode()
		if err != nil {
			return true, err
		}
		l = load{Rate: m.Values["load"+webserver.Requests], P99: float64(h.ValueAtQuantile(99))}
	}
	l.PerCPU = l.Rate * time.Since(began).Seconds() / (cpuTime(who) - from)
	return true, json.NewEncoder(os.Stdout).Encode(l)
}

// cpuTime is that of this process, or of its children that ended, in seconds.
func cpuTime(who int) float64 {
	var u unix.Rusage
	if err := unix.Getrusage(who, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// generators is what the HTTP benchmarks share: a server on the last CPU, and a client on the first, both with
// real-time priority (round robin: as wrk's main thread, which ends the run, must get the CPU, too).
type generators struct {
	self, dir      string
	client, server string // CPUs
	window         time.Duration
}

func newGenerators(b *testing.B) generators {
	b.Helper()
	hosttest.Need(b, hosttest.Root, hosttest.CPUs(2), hosttest.Program("nginx"), hosttest.Program("wrk"), hosttest.Program("chrt"),
		hosttest.Program("gcc"))
	h, err := host.Read(host.Live())
	if err != nil {
		b.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	return generators{self, b.TempDir(), fmt.Sprint(h.Usable().First()), fmt.Sprint(h.Usable().Last()), httpWindow}
}

func (g generators) start(b *testing.B, cpu string, argv ...string) *exec.Cmd {
	b.Helper()
	c := exec.CommandContext(b.Context(), "taskset", append([]string{"-c", cpu, "chrt", "-r", "50"}, argv...)...)
	c.Env = append(os.Environ(), "ISOLANE_BENCH=http")
	c.Stderr = os.Stderr
	return c
}

// measure runs a client; its kind is http or wrk.
func (g generators) measure(b *testing.B, kind, settings string) load {
	b.Helper()
	out, err := g.start(b, g.client, g.self, kind, settings, g.dir, g.window.String()).Output()
	var l load
	if err == nil {
		err = json.Unmarshal(out, &l)
	}
	if err != nil {
		b.Fatalf("%q: %v", out, err)
	}
	return l
}

func (g generators) nginx(b *testing.B) {
	b.Helper()
	serveHTTP(b, g.start(b, g.server, g.self, "server", "{server: nginx, workers: 1}", g.dir, g.window.String()))
}

// BenchmarkHTTP measures what our HTTP generator and wrk can ask for: both as closed loops of as many connections and
// one thread, of 1 KiB, in pairs of random order. nginx is mostly slower than they are; beside it stands a plain C
// program that sends the same bytes to whatever comes. It reports the medians, and those of the ratios within the
// pairs.
func BenchmarkHTTP(b *testing.B) {
	g := newGenerators(b)
	responder := filepath.Join(g.dir, "responder")
	if out, err := exec.Command("gcc", "-O2", "-Wall", "-Werror", "-o", responder, "testdata/responder.c").CombinedOutput(); err != nil {
		b.Fatalf("%s%v", out, err)
	}
	for _, server := range []string{"nginx", "responder"} {
		for _, connections := range []int{1, 20, 100} {
			b.Run(fmt.Sprintf("server=%s/connections=%d", server, connections), func(b *testing.B) {
				if server == "nginx" {
					g.nginx(b)
				} else {
					serveHTTP(b, g.start(b, g.server, responder, httpPort))
				}
				ours := fmt.Sprintf("{size: 1Ki, rate: max, connections: %d}", connections)
				theirs := fmt.Sprintf("{size: 1Ki, threads: 1, connections: %d}", connections)
				for b.Loop() {
					compare(b, func() load { return g.measure(b, "http", ours) }, func() load { return g.measure(b, "wrk", theirs) })
				}
			})
		}
	}
}

// BenchmarkFrozen stops nginx's worker in the middle of each run, and reports what P99 both tell: wrk adds samples of
// its own for a stall, and leaves out all replies that take longer than its 2 s.
func BenchmarkFrozen(b *testing.B) {
	g := newGenerators(b)
	g.nginx(b)
	for _, stall := range []time.Duration{500 * time.Millisecond, 2500 * time.Millisecond} {
		g.window = 4 * stall
		frozen := func(kind, settings string) load {
			// With real-time priority as the others, else it would come late; and it is gone before the next run.
			freeze := g.start(b, g.server, "sh", "-c", `w=$(pgrep -P $(cat "$1/nginx/nginx.pid")) && sleep $2 && kill -STOP $w && sleep $3; kill -CONT $w`,
				"sh", g.dir, fmt.Sprint(g.window.Seconds()*3/8), fmt.Sprint(stall.Seconds()))
			if err := freeze.Start(); err != nil {
				b.Fatal(err)
			}
			l := g.measure(b, kind, settings)
			if err := freeze.Wait(); err != nil {
				b.Error(err)
			}
			return l
		}
		b.Run("stall="+stall.String(), func(b *testing.B) {
			for b.Loop() {
				var ours, theirs []float64
				for range frozenPairs {
					o := frozen("http", "{size: 1Mi, rate: 500, connections: 20}")
					t := frozen("wrk", "{size: 1Mi, threads: 4, connections: 20}")
					b.Logf("P99 ours %.1f ms at %.0f requests/s  wrk %.1f ms at %.0f requests/s", o.P99/1e6, o.Rate, t.P99/1e6, t.Rate)
					ours, theirs = append(ours, o.P99/1e6), append(theirs, t.P99/1e6)
				}
				slices.Sort(ours)
				slices.Sort(theirs)
				b.ReportMetric(ours[frozenPairs/2], "P99-ours-ms")
				b.ReportMetric(theirs[frozenPairs/2], "P99-wrk-ms")
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
