// Package bench compares Isolane's own measuring programs with the plainest possible ones.
package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/probe/echo"
)

const (
	pairs  = 10
	window = time.Second
	server = "198.18.1.2"
	client = "198.18.1.1"
)

// floor is what one run of either program found, in nanoseconds.
type floor struct {
	N    int64 `json:"n"`
	Min  int64 `json:"min"`
	P50  int64 `json:"p50"`
	P99  int64 `json:"p99"`
	P999 int64 `json:"p999"`
	Max  int64 `json:"max"`
}

func TestMain(m *testing.M) {
	hosttest.Main(m, probeEcho, probeWakeup, probeHTTP, readEpoll, probeFrames)
}

// probeEcho makes this binary the Go side: the same code as `isolane probe echo`.
func probeEcho() (bool, error) {
	addr := netip.MustParseAddrPort(server + ":7007")
	switch os.Getenv("ISOLANE_BENCH") {
	case "server":
		return true, echo.Serve(context.Background(), addr, cmp.Or(os.Getenv("ISOLANE_BENCH_WAIT"), echo.Spin), os.Stdout)
	case "client":
		return true, goClient(addr)
	}
	return false, nil
}

func goClient(addr netip.AddrPort) error {
	p := echo.Probe{Protocol: echo.UDP, Mode: echo.PingPong, Payload: 64, Wait: echo.Spin}
	if settings := os.Getenv("ISOLANE_BENCH_ECHO"); settings != "" {
		read, err := echo.Driver{}.Read([]byte(settings))
		if err != nil {
			return err
		}
		p = read.(echo.Probe)
	}
	m, err := p.Run(context.Background(), probe.Conditions{Name: "floor", Address: addr, Warmup: 100 * time.Millisecond, Window: window})
	if err != nil {
		return err
	}
	h, err := m.Samples[m.Name].Histogram.Decode()
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(floor{h.TotalCount(), h.Min(), h.ValueAtQuantile(50), h.ValueAtQuantile(99), h.ValueAtQuantile(99.9), h.Max()})
}

// BenchmarkFloor measures the round trip over one veth pair, both ends spinning on CPUs of their
// own: Isolane's echo client and server against the same in C, in pairs of random order. It
// reports the medians, and those of the ratios within the pairs.
func BenchmarkFloor(b *testing.B) {
	hosttest.Need(b, hosttest.Root, hosttest.CPUs(2), hosttest.Program("gcc"), hosttest.Program("ip"))
	c := inPlainC(b)
	cpus, self := ends(b)
	network(b)
	inGo := func() floor {
		return run(b, cpus, fifo(), []string{"env", "ISOLANE_BENCH=server", self}, []string{"env", "ISOLANE_BENCH=client", self}, readFloor)
	}
	inC := func() floor {
		return run(b, cpus, fifo(), []string{c, "server", server, "7007", "spin"},
			[]string{c, "client", server, "7007", "64", fmt.Sprint(window.Seconds())}, readFloor)
	}
	for b.Loop() {
		var p50, p999, goP50, cP50, goP999, cP999 []float64
		for range pairs {
			var g, p floor
			if rand.N(2) == 0 {
				g, p = inGo(), inC()
			} else {
				p, g = inC(), inGo()
			}
			b.Logf("Go P50 %d P99.9 %d max %d (%d)  C P50 %d P99.9 %d max %d (%d)", g.P50, g.P999, g.Max, g.N, p.P50, p.P999, p.Max, p.N)
			p50, p999 = append(p50, float64(g.P50)/float64(p.P50)), append(p999, float64(g.P999)/float64(p.P999))
			goP50, cP50 = append(goP50, float64(g.P50)), append(cP50, float64(p.P50))
			goP999, cP999 = append(goP999, float64(g.P999)), append(cP999, float64(p.P999))
		}
		for name, values := range map[string][]float64{"P50-Go/C": p50, "P99.9-Go/C": p999, "P50-Go-ns": goP50, "P50-C-ns": cP50,
			"P99.9-Go-ns": goP999, "P99.9-C-ns": cP999} {
			slices.Sort(values)
			b.ReportMetric((values[(pairs-1)/2]+values[pairs/2])/2, name)
		}
	}
}

// inPlainC builds the floor.
func inPlainC(b *testing.B) string {
	b.Helper()
	c := filepath.Join(b.TempDir(), "floor")
	if out, err := exec.Command("gcc", "-O2", "-Wall", "-Werror", "-o", c, "testdata/floor.c").CombinedOutput(); err != nil {
		b.Fatalf("%s%v", out, err)
	}
	return c
}

// BenchmarkServer measures the round trip with Isolane's echo client to its own server and to one in C, in pairs of random
// order: what the Go runtime of the server adds, where it sleeps between messages and where it does not.
func BenchmarkServer(b *testing.B) {
	hosttest.Need(b, hosttest.Root, hosttest.CPUs(2), hosttest.Program("gcc"), hosttest.Program("ip"))
	c := inPlainC(b)
	cpus, self := ends(b)
	for _, wait := range []string{echo.Spin, echo.Block} {
		for _, gap := range []string{"0s", "200us"} { // scenario edge has the latter
			b.Run(wait+"-"+gap, func(b *testing.B) {
				network(b)
				to := func(server ...string) func() map[string]float64 {
					return func() map[string]float64 {
						// As in a scenario: the client has real-time priority, the server has not.
						f := run(b, cpus, nil, server,
							append(fifo(), "env", "ISOLANE_BENCH=client", "ISOLANE_BENCH_ECHO={gap: "+gap+", wait: spin}", self), readFloor)
						return map[string]float64{"P50-ns": float64(f.P50), "P99-ns": float64(f.P99), "P99.9-ns": float64(f.P999)}
					}
				}
				for b.Loop() {
					comparePairs(b, [2]string{"Go", "C"}, to("env", "ISOLANE_BENCH=server", "ISOLANE_BENCH_WAIT="+wait, self),
						to(c, "server", server, "7007", wait))
				}
			})
		}
	}
}

// ends are the CPUs of the client and the server, and the program that can be both.
func ends(b *testing.B) (cpus []string, self string) {
	b.Helper()
	h, err := host.Read(host.Live())
	if err == nil {
		self, err = os.Executable()
	}
	if err != nil {
		b.Fatal(err)
	}
	return []string{fmt.Sprint(h.Usable().First()), fmt.Sprint(h.Usable().Last())}, self
}

// network makes the veth pair and takes it away.
func network(b *testing.B) {
	b.Helper()
	ip := func(args string) {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			b.Fatalf("ip %s: %s", args, out)
		}
	}
	for _, ns := range []string{"isolane-bench-a", "isolane-bench-b"} {
		ip("netns add " + ns)
		b.Cleanup(func() { ip("netns del " + ns) })
	}
	ip("-n isolane-bench-a link add eth0 type veth peer name eth0 netns isolane-bench-b")
	for ns, addr := range map[string]string{"a": client, "b": server} {
		ip("-n isolane-bench-" + ns + " addr add " + addr + "/24 dev eth0")
		ip("-n isolane-bench-" + ns + " link set eth0 up")
	}
}

// fifo gives a program real-time priority.
func fifo() []string { return []string{"chrt", "-f", "50"} }

func readFloor(out []byte) (f floor, err error) { return f, json.Unmarshal(out, &f) }

// run starts a server and a client under a policy, and returns what the client says.
func run(b *testing.B, cpus, policy, serve, measure []string, read func([]byte) (floor, error)) floor {
	b.Helper()
	start := func(netns, cpu string, argv []string) *exec.Cmd {
		args := append([]string{"netns", "exec", netns, "taskset", "-c", cpu}, policy...)
		return exec.CommandContext(b.Context(), "ip", append(args, argv...)...)
	}
	s := start("isolane-bench-b", cpus[1], serve)
	if err := s.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := s.Process.Kill(); err != nil {
			b.Error(err)
		}
		_ = s.Wait() // it was killed
	}()
	<-time.After(200 * time.Millisecond) // until it listens
	c := start("isolane-bench-a", cpus[0], measure)
	c.Stderr = os.Stderr
	out, err := c.Output()
	var f floor
	if err == nil {
		f, err = read(out)
	}
	if err != nil {
		b.Fatalf("%q: %v", out, err)
	}
	return f
}
