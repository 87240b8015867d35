package report

import (
	"fmt"
	"io"
	"isolane.dev/isolane/results"
)

type Summary struct{ s results.Session }

func Summarize(s results.Session) (Summary, error) { return Summary{s}, nil }
func Text(w io.Writer, s Summary, _ int) error {
	for _, r := range s.s.Runs {
		fmt.Fprintln(w, r.Block, r.Cell, r.Void, r.Notes)
		for _, m := range r.Measured {
			if m.RTT != nil {
				h, _ := m.RTT.Latency.Decode()
				l, _ := m.RTT.SendLag.Decode()
				fmt.Fprintf(w, "   %s n=%d p50=%.1f p99=%.1f p99.9=%.1f max=%.1f mean=%.1f lag=%.1f lost=%d %v\n", m.Name, h.TotalCount(), float64(h.ValueAtQuantile(50))/1e3, float64(h.ValueAtQuantile(99))/1e3, float64(h.ValueAtQuantile(99.9))/1e3, float64(h.Max())/1e3, h.Mean()/1e3, float64(l.ValueAtQuantile(99.9))/1e3, m.RTT.Lost, m.Void)
			} else {
				fmt.Fprintf(w, "   %s %.2f Gbit/s retr=%d cpu %.0f/%.0f\n", m.Name, m.Rate.BitsPerSecond/1e9, m.Rate.Retransmits, m.Rate.ClientCPUPercent, m.Rate.ServerCPUPercent)
			}
		}
	}
	return nil
}
func Write(string) error { return nil }
