package export

import (
	"cmp"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"isolane.dev/isolane/report"
	"isolane.dev/isolane/results"
)

// histograms writes an interval log of HdrHistogram, version 1.3, with histograms of V2: an interval a used
// run, which begins with the run and is as long as the measurement. The tag is CELL/METRIC, without blanks
// and commas, which a tag may not have.
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
			if len(m.Void) > 0 {
				continue
			}
			for _, name := range slices.Sorted(maps.Keys(m.Samples)) {
				h, err := m.Samples[name].Histogram.Decode()
				if err != nil {
					return err
				}
				if h.TotalCount() == 0 {
					continue // all was lost
				}
				h.SetTag(word(r.Cell, ",/") + "/" + word(name, ",/"))
				h.SetStartTimeMs(r.Started.UnixMilli())
				h.SetEndTimeMs(r.Started.Add(time.Duration(m.Window)).UnixMilli())
				if err = out.OutputIntervalHistogram(h); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
