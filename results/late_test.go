package results

import (
	"testing"
	"time"
)

// A bound includes the lag that all but a thousandth did not exceed: of 600 messages, the worst.
func TestAtMost(t *testing.T) {
	for lagging, want := range map[int64]int64{1: 1_010_687, 0: 11_007} {
		latency, lag := NewHistogram(), NewHistogram()
		if latency.RecordValue(10_000) != nil {
			t.Fatal("beyond the range")
		}
		for n := range int64(600) {
			v := int64(1000)
			if n < lagging {
				v = int64(time.Millisecond)
			}
			if lag.RecordValue(v) != nil {
				t.Fatal("beyond the range")
			}
		}
		var m Measurement
		s := Samples{Wanted: 600}
		var err error
		if s.Histogram, err = Encode(latency); err != nil {
			t.Fatal(err)
		}
		if s.Lag, err = Encode(lag); err != nil {
			t.Fatal(err)
		}
		h, err := s.AtMost()
		if err != nil || !h.ValuesAreEquivalent(h.Max(), want) {
			t.Errorf("%d late: at most %d, want %d (%v)", lagging, h.Max(), want, err)
		}
		m.Name, m.Window, m.Samples = "trip", Nanoseconds(90*time.Millisecond), map[string]Samples{"trip": s}
		if offered, err := m.Offered(); err != nil || offered != (lagging == 0) {
			t.Errorf("%d late: the load was that asked for: %v, %v", lagging, offered, err)
		}
	}
}
