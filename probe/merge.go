package probe

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"isolane.dev/isolane/results"
)

// Merge makes one measurement of those that were made at several instances of the application at the same
// time. It has the samples of all, and for each value what the function value makes of those of the
// instances. If something is wrong with an instance, Merge says so with its number.
func Merge(name string, each []results.Measurement, value func(metric string, all []float64) float64) (
	m results.Measurement, err error) {
	if len(each) == 1 {
		return each[0], nil
	}
	m = results.Measurement{Name: name, Window: each[0].Window, Values: map[string]float64{},
		Samples: map[string]results.Samples{}, Facts: map[string]string{}}
	objections(&m, each)
	asOne(&m, each)
	var longest Longest
	values, samples := map[string][]float64{}, map[string][]results.Samples{}
	for i, one := range each {
		for metric, v := range one.Values {
			values[metric] = append(values[metric], v)
		}
		for metric, s := range one.Samples {
			samples[metric] = append(samples[metric], s)
		}
		m.Conditions = append(m.Conditions, one.Conditions...)
		for fact, text := range one.Facts {
			if each[0].Facts[fact] != text {
				fact = fmt.Sprintf("%s of instance %d", fact, i+1)
			}
			m.Facts[fact] = text
		}
		for _, s := range one.Worst {
			longest.CPU = s.CPU
			longest.Add(int64(s.Begin), int64(s.End))
		}
	}
	slices.Sort(m.Conditions)
	m.Conditions = slices.Compact(m.Conditions)
	for metric, all := range values {
		m.Values[metric] = value(metric, all)
	}
	for _, metric := range slices.Sorted(maps.Keys(samples)) {
		if m.Samples[metric], err = together(samples[metric], len(m.Overloaded) > 0); err != nil {
			return m, fmt.Errorf("%s: %w", metric, err)
		}
	}
	if len(m.Overloaded) == 0 {
		m.Worst = longest.Samples()
	}
	return m, nil
}

// together merges the samples. If an instance was overloaded, latencies are left out: those of the other
// instances would show only the lucky ones.
func together(each []results.Samples, overloaded bool) (all results.Samples, err error) {
	latency, lag := NewHistogram(), NewHistogram()
	for _, s := range each {
		all.Wanted, all.Lost = all.Wanted+s.Wanted, all.Lost+s.Lost
		h, derr := s.Histogram.Decode()
		if derr != nil {
			return all, derr
		}
		latency.Merge(h)
		if h, err = s.Lag.Decode(); err != nil {
			return all, err
		}
		lag.Merge(h)
	}
	if overloaded {
		return all, nil
	}
	if all.Histogram, err = results.Encode(latency); err == nil && lag.TotalCount() > 0 {
		all.Lag, err = results.Encode(lag)
	}
	return all, err
}

// minCommonPercent is the percentage of the window that all instances must have in common.
const minCommonPercent = 95

// asOne sets when the window had begun for all instances. It objects if they did not measure at the same
// time: what was carried one after the other must not be added.
func asOne(m *results.Measurement, each []results.Measurement) {
	byBegin := func(a, b results.Measurement) int { return cmp.Compare(a.Begin, b.Begin) }
	first, last := slices.MinFunc(each, byBegin).Begin, slices.MaxFunc(each, byBegin).Begin
	if first == 0 {
		return
	}
	m.Begin = last
	if common := 100 * (m.Window - (last - first)); common < minCommonPercent*m.Window {
		m.Void = append(m.Void, fmt.Sprintf("the instances did not measure together: their windows have %d%% in "+
			"common, expected %d%%", max(0, common/m.Window), minCommonPercent))
	}
}

// objections collects what is wrong with the measurement: the first objection of each sort, with how many
// instances have it.
func objections(m *results.Measurement, each []results.Measurement) {
	sorts := []struct {
		of  func(results.Measurement) []string
		add func(string)
	}{
		{func(o results.Measurement) []string { return o.Overloaded }, m.NotCarried},
		{func(o results.Measurement) []string { return o.Late }, m.ClientLate},
		{func(o results.Measurement) []string {
			return slices.DeleteFunc(slices.Clone(o.Void), func(why string) bool {
				return slices.Contains(o.Overloaded, why) || slices.Contains(o.Late, why)
			})
		}, func(why string) { m.Void = append(m.Void, why) }},
	}
	for _, sort := range sorts {
		first, count := "", 0
		for i, one := range each {
			if why := sort.of(one); len(why) > 0 {
				first, count = cmp.Or(first, fmt.Sprintf("instance %d: %s", i+1, why[0])), count+1
			}
		}
		if count > 1 {
			first += fmt.Sprintf(" (%d of %d instances are so)", count, len(each))
		}
		if count > 0 {
			sort.add(first)
		}
	}
}
