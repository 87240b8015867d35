package results

import (
	"maps"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// ClientLate makes the measurement void because its client was late, or at its limit. If the load was
// nevertheless the requested one, see Censored, its figures are bounds.
func (m *Measurement) ClientLate(why string) {
	m.Void, m.Late = append(m.Void, why), append(m.Late, why)
}

// Censored reports whether a late client is the only reason against the measurement, and messages left in
// time for the load to be the requested one. Latencies count from when a request was due, so a late client
// makes them longer: with the lag they are upper bounds (see AtMost), and what was carried is a lower bound.
func (m Measurement) Censored() (bool, error) {
	if len(m.Void) == 0 || len(m.Void) != len(m.Late) {
		return false, nil
	}
	return m.Offered()
}

// Asked returns the samples that say what a probe sent and what of it was lost: those of its own name or, if
// that is a rate, the first in the order of names.
func (m Measurement) Asked() Samples {
	for _, name := range slices.Sorted(maps.Keys(m.Samples)) {
		if name == m.Name || m.Samples[m.Name].Wanted == 0 {
			return m.Samples[name]
		}
	}
	return Samples{}
}

// Offered reports whether messages left in time for the load to be the requested one: all but a thousandth
// with a lag of at most a hundredth of the window. Without lags it is false.
func (m Measurement) Offered() (bool, error) {
	lag, err := m.Asked().Lag.Decode()
	if err != nil || lag.TotalCount() == 0 {
		return false, err
	}
	return Percentile(lag, 0.999, 0) <= float64(m.Window)/100, nil
}

// AtMost returns the samples of a late client as upper bounds: each is made longer by the lag that all but a
// thousandth did not exceed. A request that leaves late has a longer latency itself, but may shorten that of
// others, which share the application with one request less for that time. It shortens theirs by no more than
// its own lag.
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
		if err = longer.RecordValues(min(bar.To+added, maxValue), bar.Count); err != nil {
			return nil, err
		}
	}
	return longer, nil
}
