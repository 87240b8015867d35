package figures

import (
	"fmt"
	"math"
	"slices"
	"time"

	"isolane.dev/isolane/report/metric"
	"isolane.dev/isolane/report/samples"
	"isolane.dev/isolane/results"
)

// figure returns the figure of that name, a new one if there is none.
func figure(figures map[string]*Figure, name string) *Figure {
	if figures[name] == nil {
		figures[name] = &Figure{}
	}
	return figures[name]
}

func (f *Figure) add(block int, value float64) {
	none := math.NaN()
	f.Blocks = append(f.Blocks, Block{Block: block, Value: value, Mean: none, P90: none, P99: none, P999: none})
}

// take adds a measurement. Of a void one it takes only what must not happen at all, because that happened
// anyway.
func (s *Summary) take(c *Cell, m results.Measurement, block int) error {
	late, err := m.Censored()
	if err != nil {
		return err
	}
	if late {
		m.Void = nil
		s.Late++
	}
	c.addLoad(m)
	if len(m.Void) == 0 {
		return s.add(c, m, block, late)
	}
	s.VoidValues++
	c.addLack(m)
	for name, v := range m.Values {
		if of := s.Metric(name); of != nil && of.Forbidden() {
			figure(c.Figures, name).add(block, v)
		}
	}
	return nil
}

// addLoad adds what was asked, even if overload makes the latencies of a measurement meaningless.
func (c *Cell) addLoad(m results.Measurement) {
	for _, why := range m.Void {
		if !slices.Contains(m.Overloaded, why) {
			return
		}
	}
	for name, sampled := range m.Samples {
		l := c.loads[name]
		l.Add(sampled, len(m.Void) > 0, time.Duration(m.Window))
		c.loads[name] = l
	}
}

// add adds a measurement that counts. If its client was late, it is a bound of what is compared.
func (s *Summary) add(c *Cell, m results.Measurement, block int, late bool) error {
	for name, v := range m.Values {
		of := s.Metric(name)
		if of == nil {
			return fmt.Errorf("metric %s is not described", name)
		}
		f := figure(c.Figures, name)
		if f.add(block, v); late {
			f.mark(*of, block)
		}
	}
	for name, sampled := range m.Samples {
		of := s.Metric(name)
		if of == nil {
			return fmt.Errorf("metric %s is not described", name)
		}
		f := figure(c.Figures, name)
		if err := f.merge(sampled, of.Loop == results.Open, late, time.Duration(m.Window), block); err != nil {
			return err
		}
		if late {
			f.mark(*of, block)
		}
	}
	return nil
}

// addMean sets the geometric mean of the parts of a metric, over the blocks in which all of them count. If a
// part is a bound, so is the mean.
func (c *Cell) addMean(m metric.Metric) {
	if len(m.MeanOf) == 0 || c.Figures[m.MeanOf[0]] == nil {
		return
	}
blocks:
	for _, b := range c.Figures[m.MeanOf[0]].Blocks {
		product, late := 1.0, false
		for _, part := range m.MeanOf {
			value, ok := c.figure(part).At(b.Block)
			if !ok {
				continue blocks
			}
			product, late = product*value.Value, late || value.Late
		}
		f := figure(c.Figures, m.Name)
		f.add(b.Block, math.Pow(product, 1/float64(len(m.MeanOf))))
		f.Blocks[len(f.Blocks)-1].Late = late
	}
}

// merge adds a run's histograms to those of earlier runs, and its own values.
func (f *Figure) merge(m results.Samples, open, late bool, window time.Duration, block int) error {
	if f.Merged == nil {
		f.Merged = samples.New()
	}
	one, err := f.Merged.Add(m, open, late, window)
	if err == nil && one.Size() > 0 {
		f.runs = append(f.runs, one)
		f.Blocks = append(f.Blocks, Block{Block: block, Value: results.Percentile(one.Histogram, 0.5, one.Lost),
			Mean: one.Mean(), P90: one.Quantile(0.9), P99: one.Quantile(0.99), P999: one.Quantile(0.999)})
	}
	return err
}
