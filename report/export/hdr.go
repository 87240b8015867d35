package export

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"isolane.dev/isolane/report"
	"isolane.dev/isolane/results"
)

// histograms writes an interval log of HdrHistogram, version 1.3, with histograms of V2. It has an interval
// for each used run, which begins with the run and lasts as long as the measurement. The tag is CELL/METRIC,
// without blanks and commas, which a tag may not have.
func histograms(w io.Writer, d report.Document) error {
	s := d.Summary().Session
	out := hdrhistogram.NewHistogramLogWriter(w)
	err := cmp.Or(out.OutputLogFormatVersion(),
		out.OutputComment("[A tag is CELL/METRIC; Interval_Max is in millions of the metric's unit: ms of ns]"),
		out.OutputStartTime(s.Started.UnixMilli()), out.OutputLegend())
	if err != nil {
		return err
	}
	runs := slices.DeleteFunc(slices.Clone(s.Runs), func(r results.Run) bool { return !r.Used() })
	slices.SortStableFunc(runs, func(a, b results.Run) int { return a.Started.Compare(b.Started) })
	for _, r := range runs {
		for _, m := range r.Measured {
			if err = interval(out, r, m); err != nil {
				return err
			}
		}
	}
	return nil
}

// interval writes the histograms of a measurement that counts. What such a log cannot hold goes into
// comments: bounds, and what was lost.
func interval(out *hdrhistogram.HistogramLogWriter, r results.Run, m results.Measurement) error {
	late, err := m.Censored()
	if err != nil || len(m.Void) > 0 && !late {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(m.Samples)) {
		s, tag := m.Samples[name], word(r.Cell, ",/")+"/"+word(name, ",/")
		h, err := s.Histogram.Decode()
		if err != nil {
			return err
		}
		if late {
			err = out.OutputComment(fmt.Sprintf("[%s, block %d: left out, for its client was late, so it is a bound]",
				tag, r.Block))
		} else if s.Lost > 0 {
			err = out.OutputComment(fmt.Sprintf("[%s, block %d: %d of %d were lost: longer than all that follow]", tag,
				r.Block, s.Lost, s.Wanted))
		}
		if err != nil {
			return err
		}
		if late || h.TotalCount() == 0 {
			continue
		}
		h.SetTag(tag)
		h.SetStartTimeMs(r.Started.UnixMilli())
		h.SetEndTimeMs(r.Started.Add(time.Duration(m.Window)).UnixMilli())
		if err = out.OutputIntervalHistogram(h); err != nil {
			return err
		}
	}
	return nil
}
