// Package samples is what was sampled in the runs of a cell, taken together: their times, and what an open
// loop asked for and lost.
//
// Percentiles come from merged histograms and end where the sample ends; what a sample does not support is
// left out. What was lost is part of the sample and took longer than all else: a percentile among it is
// infinite.
package samples

import (
	"fmt"
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
)

// Distribution is a histogram merged over runs, and what it supports.
type Distribution struct {
	Histogram *hdrhistogram.Histogram
	Exact     *hdrhistogram.Histogram // without those of late clients, which in Histogram are upper bounds
	Lag       *hdrhistogram.Histogram // open loop: actual minus intended send time
	Sent      uint64
	Lost      uint64
	Supported float64       // the highest quantile that the sample supports and that is not lost
	Window    time.Duration // of all runs together
	Open      bool          // open loop
}

// New returns a distribution without runs.
func New() *Distribution {
	return &Distribution{Histogram: results.NewHistogram(), Exact: results.NewHistogram(),
		Lag: results.NewHistogram()}
}

// Add adds a run, and returns the run's own distribution. If its client was late, its times are upper bounds.
func (d *Distribution) Add(m results.Samples, open, late bool, window time.Duration) (*Distribution, error) {
	exact, err := m.Histogram.Decode()
	h := exact
	if late && err == nil {
		exact = results.NewHistogram()
		h, err = m.AtMost()
	}
	if err != nil {
		return nil, err
	}
	lag, err := m.Lag.Decode()
	if err != nil {
		return nil, err
	}
	if lost := d.Histogram.Merge(h) + d.Exact.Merge(exact) + d.Lag.Merge(lag); lost > 0 {
		return nil, fmt.Errorf("%d values are beyond the range of the histogram", lost)
	}
	d.Sent += m.Wanted
	d.Lost += m.Lost
	d.Window += window
	d.Supported = stats.SupportedQuantile(d.Size())
	for d.Supported > 0 && math.IsInf(d.Quantile(d.Supported), 1) {
		d.Supported = stats.SupportedQuantile(stats.SamplesFor(d.Supported) - 1)
	}
	d.Open = open
	return &Distribution{Histogram: h, Exact: exact, Lost: m.Lost}, nil
}

// N returns the size of the sample without what was lost.
func (d *Distribution) N() uint64 {
	if d == nil {
		return 0
	}
	return uint64(d.Histogram.TotalCount())
}

// Size returns the size including what was lost.
func (d *Distribution) Size() uint64 { return d.N() + d.Lost }

// Quantile returns a percentile in nanoseconds: infinite if it is among what was lost, and NaN if the sample
// is too small for it.
func (d *Distribution) Quantile(p float64) float64 {
	if d == nil || d.Size() < stats.SamplesFor(p) {
		return math.NaN()
	}
	return results.Percentile(d.Histogram, p, d.Lost)
}

// Min returns the shortest of what was not lost, in nanoseconds; like Max and Mean NaN if there is none.
func (d *Distribution) Min() float64 {
	return d.of(func(h *hdrhistogram.Histogram) float64 { return float64(h.Min()) })
}

// Max returns the longest.
func (d *Distribution) Max() float64 {
	return d.of(func(h *hdrhistogram.Histogram) float64 { return float64(h.Max()) })
}

// Mean returns the arithmetic mean.
func (d *Distribution) Mean() float64 { return d.of((*hdrhistogram.Histogram).Mean) }

func (d *Distribution) of(value func(*hdrhistogram.Histogram) float64) float64 {
	if d.N() == 0 {
		return math.NaN()
	}
	return value(d.Histogram)
}

// Quantiles returns the quantiles for tables of a distribution, which show those that its sample supports.
func Quantiles() []float64 { return []float64{0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999} }
