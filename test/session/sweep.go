package session

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"isolane.dev/isolane/results"
)

// Sweep returns a session over a load: an open loop of samples, and a rate. Beyond 2000 a second the floating
// cells are overloaded; those of the lane are not.
func Sweep(tb testing.TB, mode string, blocks int) results.Session {
	tb.Helper()
	s := Made(tb, mode, blocks, nil)
	level := func(names ...string) (all []results.Level) {
		for _, n := range names {
			all = append(all, results.Level{Name: n})
		}
		return all
	}
	s.Scenario.Name, s.Scenario.Title, s.Scenario.Aims = "sweep", "How long answers take as the load grows", nil
	s.Factors = []results.Factor{
		{Name: "load", Levels: level("250", "500", "1000", "2000", "4000"), Outside: true},
		{Name: "placement", Levels: level("floating", "lane")},
		{Name: "noise", Levels: level("quiet", "noisy"), Quiet: "quiet", Outside: true}}
	s.Metrics = []results.Metric{s.Metrics[4], s.Metrics[1]}
	s.Metrics[0].Name, s.Metrics[0].Role = "reply", results.Primary
	for i, load := range []float64{250, 500, 1000, 2000, 4000} {
		for k, placement := range []string{"floating", "lane"} {
			for n, noise := range []string{"quiet", "noisy"} {
				s.Cells = append(s.Cells, results.Cell{Baseline: i+k+n == 0,
					Name:   fmt.Sprintf("%g-%s-%s", load, placement, noise),
					Levels: map[string]string{"load": fmt.Sprint(load), "placement": placement, "noise": noise}})
			}
		}
	}
	for block := range blocks + 1 {
		for i, c := range s.Cells {
			load := []float64{250, 500, 1000, 2000, 4000}[i/4]
			p50 := 20 + load/100*float64(2-i/2%2)*float64(1+i%2)*(1+0.1*float64(block%3))
			r := rand.New(rand.NewPCG(uint64(block), uint64(i)))
			m := syntheticRTT(tb, r, "rtt-udp-64-open", p50, 10*p50, int(2*load))
			trips := m.Samples["rtt-udp-64-open"]
			if load == 4000 && i/2%2 == 0 {
				trips.Histogram, trips.Lost = "", trips.Wanted/4
				m.NotCarried("overloaded: carried 3000 of 4000 requests/s")
			}
			m.Name, m.Window = "reply", results.Nanoseconds(2*time.Second)
			m.Samples = map[string]results.Samples{"reply": trips}
			run := results.Run{Block: block, Cell: c.Name, Measured: []results.Measurement{m, {Name: s.Metrics[1].Name,
				Values: map[string]float64{s.Metrics[1].Name: load * 8e5 * (1 + 0.02*float64(block))}}}}
			if block == 0 {
				run.Dropped = "warm-up block"
			}
			s.Runs = append(s.Runs, run)
		}
	}
	return s
}
