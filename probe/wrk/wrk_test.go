package wrk

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/probe/probetest"
	"isolane.dev/isolane/probe/webserver"
	"isolane.dev/isolane/results"
)

func read(tb testing.TB, settings string) Probe {
	tb.Helper()
	p, err := Driver{}.Read([]byte(settings))
	if err != nil {
		tb.Fatal(err)
	}
	return p.(Probe)
}

func TestSettings(t *testing.T) {
	for settings, want := range map[string]string{
		"{}": `{"server":"nginx","size":"1Mi","threads":4,"connections":20}`,
		"{server: varnish, workers: 3, size: 100Ki, threads: 128, connections: 480}": `{"server":"varnish","workers":3,"size":"100Ki","threads":128,"connections":480}`,
	} {
		p := read(t, settings)
		got, err := json.Marshal(p)
		if err != nil || string(got) != want || read(t, string(got)) != p {
			t.Errorf("%s: %s, %v", settings, got, err)
		}
	}
	for settings, want := range map[string]string{
		"{threads: 21}": "threads", "{threads: 0}": "threads", "{connections: 0}": "connections", "{size: 7}": "size",
		"{server: h2o}": "server", "{clientCPUs: -1}": "clientCPUs", "{rate: 5}": "rate",
	} {
		if p, err := (Driver{}).Read([]byte(settings)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", settings, p, err)
		}
	}
	published := read(t, "{threads: 128, connections: 480, clientCPUs: 16}")
	for cpus, want := range map[int][2]int{1: {8, 30}, 16: {128, 480}, 32: {256, 960}} {
		if p := published.scaled(cpus); p.Threads != want[0] || p.Connections != want[1] {
			t.Errorf("%d CPUs: %+v", cpus, p)
		}
	}
	if p := read(t, "{threads: 4, connections: 5, clientCPUs: 16}").scaled(1); p.Threads != 1 || p.Connections != 1 {
		t.Errorf("%+v", p)
	}
	if p := read(t, "{}"); p.scaled(1) != p {
		t.Error("scaled without being asked")
	}
	if p := read(t, "{}"); p.Validate(probe.Conditions{Window: time.Second}) != nil || p.Validate(probe.Conditions{Window: 1500 * time.Millisecond}) == nil {
		t.Error("wrk takes whole seconds")
	}
}

// Reports of wrk 4.1.0 over loopback, recorded as they were.
func TestParse(t *testing.T) {
	const us, ms = 1e3, 1e6
	for name, want := range map[string]report{
		"1Mi": {requests: 1615, rate: 1486.24, transfer: 1.45 * (1 << 30), latency: [4]float64{9.82 * ms, 15.16 * ms, 25.63 * ms, 184.2 * ms}},
		"missing": {requests: 29446, rate: 26781.95, transfer: 7.87 * (1 << 20), latency: [4]float64{62 * us, 84 * us, 181 * us, 825 * us},
			status: 29446},
		"timeouts": {requests: 20, rate: 3.3, transfer: 131.81, latency: [4]float64{123 * us, 828 * us, 25.35 * ms, 25.44 * ms}, timeout: 8},
		"closed": {requests: 28981, rate: 4762.71, transfer: 186.04 * (1 << 10), latency: [4]float64{503 * us, 1.16 * ms, 3.17 * ms, 31.05 * ms},
			read: 14488},
	} {
		data, err := os.ReadFile("testdata/" + name + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		got, err := parse(data)
		if err != nil || got.String() != want.String() {
			t.Errorf("%s: %s, %v, want %s", name, got, err, want)
		}
	}
	for _, cut := range []string{"Latency Dist", "99%", "requests in", "Requests/sec", "Transfer/sec"} {
		data, err := os.ReadFile("testdata/1Mi.txt")
		if err != nil {
			t.Fatal(err)
		}
		if whole, _, found := strings.Cut(string(data), cut); !found {
			t.Error(cut)
		} else if r, err := parse([]byte(whole)); err == nil {
			t.Errorf("cut at %q: %s", cut, r)
		}
	}
}

// String has as many digits as wrk prints.
func (r report) String() string {
	return fmt.Sprintf("%d %.2f %.0f %.0f %d %d %d %d %d", r.requests, r.rate, r.transfer, r.latency, r.connect, r.read, r.write, r.timeout, r.status)
}

// What wrk could not measure is not reported.
func TestVoid(t *testing.T) {
	for name, c := range map[string]struct {
		r    report
		cpu  time.Duration
		want string
	}{
		"fine":     {report{requests: 1000, rate: 1000, timeout: 9}, 0, ""},
		"nothing":  {report{}, 0, "no replies"},
		"status":   {report{requests: 1000, status: 11}, 0, "11 requests failed"},
		"timeouts": {report{requests: 1000, timeout: 20, read: 1}, 0, "21 requests failed"},
		"client":   {report{requests: 1000}, time.Hour, "the client was at its limit"},
	} {
		m := results.Measurement{Name: "w", Window: results.Nanoseconds(time.Second)}
		read(t, "{}").fill(&m, c.r, c.cpu)
		if got := strings.Join(m.Void, "\n"); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: void %q", name, got)
		}
	}
}

func TestUnits(t *testing.T) {
	for text, want := range map[string]float64{"5.71GB": 5.71 * (1 << 30), "0.00B": 0, "606.33MB": 606.33 * (1 << 20), "1.5KB": 1536} {
		if got, err := scaled(text, sizes()); err != nil || got != want {
			t.Errorf("%s: %g, %v", text, got, err)
		}
	}
	for text, want := range map[string]float64{"635.91us": 635910, "1.50ms": 1.5e6, "0.00us": 0, "2.00s": 2e9, "1.50m": 90e9, "2.00h": 7200e9} {
		if got, err := scaled(text, times()); err != nil || math.Abs(got-want) > 1e-6 {
			t.Errorf("%s: %g, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "5", "ms", "-1ms", "nanus", "1e400s", "1e308h", "5 ms"} {
		if got, err := scaled(text, times()); err == nil {
			t.Errorf("%q: %g", text, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"1Mi", "missing", "timeouts", "closed"} {
		data, err := os.ReadFile("testdata/" + name + ".txt")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := parse(data)
		if err != nil {
			return
		}
		for _, v := range []float64{r.rate, r.transfer} {
			if !(v >= 0 && v <= math.MaxFloat64) {
				t.Errorf("%+v", r)
			}
		}
		for _, v := range r.latency {
			if v < 0 || math.IsInf(v, 0) || math.IsNaN(v) && r.requests > 0 {
				t.Errorf("%+v", r)
			}
		}
	})
}

// wrk itself, against each server.
func TestRun(t *testing.T) {
	hosttest.Need(t, hosttest.Program(Program))
	for server, program := range map[string]string{webserver.Nginx: "nginx", webserver.Varnish: "varnishd"} {
		t.Run(server, func(t *testing.T) {
			hosttest.Need(t, hosttest.Program(program))
			p := read(t, "{server: "+server+", size: 100Ki, threads: 2, connections: 4}")
			c := serve(t, p)
			m, err := p.Run(t.Context(), c)
			var printed []byte
			if err == nil {
				printed, err = json.Marshal(m)
			}
			if err == nil { // as by the program that has started the client
				c.ApplicationCPUs = 2
				m, err = p.Parse(printed, c)
			}
			if err != nil {
				t.Fatal(err)
			}
			if whole, each := m.Values["test-goodput"], m.Values["test-goodput-per-cpu"]; each != whole/2 {
				t.Errorf("%g of %g bit/s for each of two CPUs", each, whole)
			}
			t.Logf("%v void %q facts %v", m.Values, m.Void, m.Facts)
			for _, metric := range p.Metrics(c.Name) {
				v, ok := m.Values[metric.Name]
				check := strings.HasSuffix(metric.Name, "-errors") || strings.HasSuffix(metric.Name, timeouts)
				if !ok || !check && v <= 0 {
					t.Errorf("%s: %g, %t", metric.Name, v, ok)
				}
			}
			// The bodies are nearly all that is transferred; the last ones may be counted in one only.
			if body, all := m.Values["test-goodput"], m.Values["test"+transfer]; body > 1.02*all || body < 0.95*all {
				t.Errorf("goodput %g of %g bit/s", body, all)
			}
			if hits, ok := m.Values["test-hit-rate"]; ok != (server == webserver.Varnish) || ok && hits != 100 {
				t.Errorf("hit rate %g, %t", hits, ok)
			}
		})
	}
	_, err := read(t, "{}").Run(t.Context(), probe.Conditions{Address: netip.MustParseAddrPort("127.0.0.1:1"), Window: time.Second})
	if err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("nobody there: %v", err)
	}
}

// serve runs the web server until the test ends.
func serve(t *testing.T, p Probe) probe.Conditions {
	t.Helper()
	c := probe.Conditions{Name: "test", Address: probetest.FreePort(t, "127.0.0.1"), Dir: t.TempDir(),
		Warmup: time.Second, Window: time.Second}
	probetest.Serve(t, webserver.Ready, func(ctx context.Context, w io.Writer) error { return p.Serve(ctx, c, w) })
	return c
}
