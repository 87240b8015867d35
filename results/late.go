package results

import (
	"maps"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// ClientLate makes the measurement void because its client was late, or at its limit. Where its load was the
// one asked for all the same, see Censored, its figures are bounds.
func (m *Measurement) ClientLate(why string) {
	m.Void, m.Late = append(m.Void, why), append(m.Late, why)
}

// Censored says whether nothing but a late client speaks against the measurement, and what was due left in
// time for the load to be the one asked for. Latencies count from when a request was due, so a late client
// makes them longer: with the lag they are upper bounds (see AtMost), and what was carried is a lower bound.
func (m Measurement) Censored() (bool, error) {
	if len(m.Void) == 0 || len(m.Void) != len(m.Late) {
		return false, nil
	}
	return m.Offered()
}

// Asked are the samples that say what a probe sent, and what of it was lost: those of its own name, or where
// that is a rate, the first behind it.
func (m Measurement) Asked() Samples {
	for _, name := range slices.Sorted(maps.Keys(m.Samples)) {
		if name == m.Name || m.Samples[m.Name].Wanted == 0 {
			return m.Samples[name]
		}
	}
	return Samples{}
}

// Offered says whether messages left in time for the load to be the one asked for: all but a thousandth with
// a lag of a hundredth of the window at most. Without lags nobody knows.
func (m Measurement) Offered() (bool, error) {
	lag, err := m.Asked().Lag.Decode()
	if err != nil || lag.TotalCount() == 0 {
		return false, err
	}
	return Percentile(lag, 0.999, 0) <= float64(m.Window)/100, nil
}

// AtMost are the samples of a late client as upper bounds: each longer by the lag that all but a thousandth
// had at most. A request that leaves late makes its own latency longer, but may make that of others shorter,
// which share the application with one less meanwhile: by no more than it was late.
func (s Samples) AtMost() (*hdrhistogram.Histogram, error) {
	all, err := s.Histogram.Decode()
	if err != nil {
		return nil, err
	}
	lag, err := s.Lag.Decode()
	if err != nil {
		return nil, err
	}
	if all.TotalCount() == 0 || lag.TotalCount() == 0 {
		return all, nil
	}
	added, longer := int64(Percentile(lag, 0.999, 0)), NewHistogram()
	for _, bar := range all.Distribution() {
		if err = longer.RecordValues(min(bar.To+added, longest), bar.Count); err != nil {
			return nil, err
		}
	}
	return longer, nil
}
