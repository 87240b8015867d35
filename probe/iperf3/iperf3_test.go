package iperf3

import (
	"os"
	"strings"
	"testing"
	"time"

	"isolane.dev/isolane/probe"
)

func settings() probe.Settings {
	return probe.Settings{Name: "up", Protocol: probe.TCP, Direction: probe.Up, WriteBytes: 128 << 10, Window: time.Second}
}

// Reports of iperf3 3.12 over loopback, recorded as they were.
func TestParse(t *testing.T) {
	data, err := os.ReadFile("testdata/up.json")
	if err != nil {
		t.Fatal(err)
	}
	m, err := Driver{}.Parse(data, settings())
	if err != nil || m.Rate == nil || m.Rate.BitsPerSecond < 1e6 || m.Rate.ClientCPUPercent <= 0 || len(m.Void) > 0 {
		t.Fatalf("%+v %+v, %v", m, m.Rate, err)
	}
	other := settings()
	other.CongestionControl = "vegas"
	if m, err = (Driver{}).Parse(data, other); err != nil || len(m.Void) != 1 {
		t.Errorf("another congestion control than asked: %v, %v", m.Void, err)
	}
	if data, err = os.ReadFile("testdata/refused.json"); err != nil {
		t.Fatal(err)
	}
	if _, err = (Driver{}).Parse(data, settings()); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("a refused connection: %v", err)
	}
}

func TestCommandLine(t *testing.T) {
	s := settings()
	s.Direction, s.Warmup, s.CongestionControl = probe.Down, time.Second, "reno"
	got := strings.Join(Driver{}.Client("", s), " ")
	if !strings.Contains(got, "--time 1 ") || !strings.HasSuffix(got, "--length 131072 --omit 1 --reverse --congestion reno") {
		t.Error(got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"end":{"sum_received":{"bits_per_second":1e9}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if m, err := (Driver{}).Parse(data, settings()); err == nil && m.Rate == nil {
			t.Error("neither figures nor an error")
		}
	})
}
