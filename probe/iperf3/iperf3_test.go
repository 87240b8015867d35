package iperf3

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"isolane.dev/isolane/probe"
)

func up(tb testing.TB, settings string) probe.Probe {
	tb.Helper()
	p, err := Driver{}.Read([]byte(settings))
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func second() probe.Conditions { return probe.Conditions{Name: "up", Window: time.Second, CPUs: 2} }

// Reports of iperf3 3.12 over loopback, recorded as they were.
func TestParse(t *testing.T) {
	p := up(t, "{direction: up}")
	data, err := os.ReadFile("testdata/up.json")
	if err != nil {
		t.Fatal(err)
	}
	m, err := p.Parse(data, second())
	if err != nil || m.Values["up"] < 1e6 || m.Values["up-client-cpu"] <= 0 || len(m.Void) > 0 {
		t.Fatalf("%+v, %v", m, err)
	}
	if len(m.Values) != 4 || strings.Join(m.Conditions, " ") != "congestionControl receiveBuffer sendBuffer version" ||
		m.Facts["version"] != "iperf 3.12" || m.Facts["sendBuffer"] != "16Ki" || m.Facts["write"] != "128Ki" {
		t.Errorf("%+v: one interval has no halves", m)
	}
	// 1,448 bytes of every packet, also of those of the warm-up
	busy := second()
	busy.Busy = 2 * time.Second
	want := 2e9 * 1448 / 2_131_230_720 // the bytes of its one interval
	if m, err = p.Parse(data, busy); err != nil || math.Abs(m.Values["up-cpu-time"]-want) > 1e-6 {
		t.Errorf("CPU time a packet %g ns, want %g, %v", m.Values["up-cpu-time"], want, err)
	}
	other := second()
	other.CongestionControl = "vegas"
	if m, err = p.Parse(data, other); err != nil || len(m.Void) != 1 {
		t.Errorf("another congestion control than asked: %v, %v", m.Void, err)
	}
	if m, err = up(t, "{direction: up, write: 1Mi}").Parse(data, second()); err != nil || strings.Join(m.Void, "") != "writes of 128Ki, asked for 1Mi" {
		t.Errorf("other writes than asked: %v, %v", m.Void, err)
	}
	if data, err = os.ReadFile("testdata/refused.json"); err != nil {
		t.Fatal(err)
	}
	if _, err = p.Parse(data, second()); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("a refused connection: %v", err)
	}
}

// A report of a busy machine: intervals of half a second, one of which took longer. The first counted one
// claims a second, half of which was warm-up.
func TestTrend(t *testing.T) {
	p, c := up(t, "{direction: up}"), second()
	c.Warmup, c.Window = time.Second, 2*time.Second
	data, err := os.ReadFile("testdata/halves.json")
	if err != nil {
		t.Fatal(err)
	}
	m, err := p.Parse(data, c)
	if err != nil || len(m.Void) > 0 || math.Abs(m.Values["up-trend"]-22.5) > 0.5 { // 3.53 Gbit/s after 2.88
		t.Fatalf("%+v, %v", m, err)
	}
	rates := regexp.MustCompile(`("sum":\s*\{[^}]*"bytes":\s*)\d+`)
	n := 0
	slower := rates.ReplaceAllFunc(data, func(text []byte) []byte {
		n++ // in bytes: those of the warm-up do not count; then 1000 a second in the first half, 800 in the second
		return append(rates.FindSubmatch(text)[1], []string{"", "7", "500", "502", "472", "330"}[n]...)
	})
	m, err = p.Parse(slower, c)
	check := probe.Trend(p.Metrics("up")[0])
	if v := m.Values[check.Name]; err != nil || n != 5 || math.Abs(v+20) > 0.5 || -v < check.Limit {
		t.Errorf("%d intervals: %g%%, %v, want -20%%", n, v, err)
	}
}

// An impossible figure makes a run void, and is named.
func TestImpossible(t *testing.T) {
	p := up(t, "{direction: up}")
	data, err := os.ReadFile("testdata/up.json")
	if err != nil {
		t.Fatal(err)
	}
	_, totals, _ := strings.Cut(string(data), `"sum_received"`)
	for _, c := range []struct{ field, value, want string }{
		{"bits_per_second", "1e308", "end.sum_received.bits_per_second of the report of iperf3: expected 1.6"},
		{"bits_per_second", "-1", "end.sum_received.bits_per_second"},
		{"bits_per_second", "0", "end.sum_received.bits_per_second"},
		{"bits_per_second", "null", "end.sum_received.bits_per_second"},
		{"bits_per_second", "1e999", "end.sum_received.bits_per_second: expected another value than number 1e999"},
		{"bytes", "1", "end.sum_received.bits_per_second"},
		{"seconds", "0.001", "end.sum_received.seconds of the report of iperf3: expected 0.952"},
		{"seconds", "0", "end.sum_received.seconds"},
		{"host_total", "-0.5", "end.cpu_utilization_percent.host_total of the report of iperf3: expected 0 to 210, found -0.5"},
		{"remote_total", "211", "end.cpu_utilization_percent.remote_total of the report of iperf3: expected 0 to 210, found 211"},
	} {
		field := regexp.MustCompile(`("` + c.field + `":\s*)[^,\s}]+`)
		at := field.FindStringIndex(totals)
		changed := totals[:at[0]] + field.ReplaceAllString(totals[at[0]:at[1]], "${1}"+c.value) + totals[at[1]:]
		m, err := p.Parse([]byte(strings.Replace(string(data), totals, changed, 1)), second())
		if text := fmt.Sprint(m.Void, err); !strings.Contains(text, c.want) {
			t.Errorf("%s %s: %s, want %q", c.field, c.value, text, c.want)
		}
	}
}

func TestCommandLine(t *testing.T) {
	c := second()
	c.Warmup, c.CongestionControl = time.Second, "reno"
	got := strings.Join(up(t, "{direction: down}").Client("", c), " ")
	if !strings.Contains(got, "--time 1 --interval 0.5 ") || !strings.HasSuffix(got, "--length 131072 --omit 1 --reverse --congestion reno") {
		t.Error(got)
	}
}

// Writes are up to what iperf3 takes, and each is what iperf3 is told.
func TestWrites(t *testing.T) {
	for write, want := range map[string]string{"1": "1", "128Ki": "131072", "256Ki": "262144", "1Mi": "1048576"} {
		got := strings.Join(up(t, "{direction: up, write: "+write+"}").Client("", second()), " ")
		if !strings.Contains(got+" ", " --length "+want+" ") {
			t.Errorf("%s: %s", write, got)
		}
	}
	for write, want := range map[string]string{"0": "write: 0: expected 1 byte to 1 MiB", "1048577": "write: 1048577: expected",
		"2Mi": "write: 2Mi: expected", "-1": `write: size "-1"`, "some": `write: size "some"`} {
		if _, err := (Driver{}).Read([]byte("{direction: up, write: " + write + "}")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", write, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"end":{"sum_received":{"bits_per_second":1e9}}}`))
	p := up(f, "{direction: up}")
	f.Fuzz(func(t *testing.T, data []byte) {
		if m, err := p.Parse(data, second()); err == nil && m.Values == nil {
			t.Error("neither figures nor an error")
		}
	})
}
