package iperf3

import (
	"os"
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

func second() probe.Conditions { return probe.Conditions{Name: "up", Window: time.Second} }

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
	other := second()
	other.CongestionControl = "vegas"
	if m, err = p.Parse(data, other); err != nil || len(m.Void) != 1 {
		t.Errorf("another congestion control than asked: %v, %v", m.Void, err)
	}
	if data, err = os.ReadFile("testdata/refused.json"); err != nil {
		t.Fatal(err)
	}
	if _, err = p.Parse(data, second()); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("a refused connection: %v", err)
	}
}

func TestCommandLine(t *testing.T) {
	c := second()
	c.Warmup, c.CongestionControl = time.Second, "reno"
	got := strings.Join(up(t, "{direction: down}").Client("", c), " ")
	if !strings.Contains(got, "--time 1 ") || !strings.HasSuffix(got, "--length 131072 --omit 1 --reverse --congestion reno") {
		t.Error(got)
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
