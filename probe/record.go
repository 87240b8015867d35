package probe

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"isolane.dev/isolane/results"
)

// longestRecorded is the end of a session's histograms.
const longestRecorded = int64(60 * time.Second)

// NewHistogram returns an empty histogram of the session's range whose counters have all been touched: to
// record does not meet a page for the first time.
func NewHistogram() *hdrhistogram.Histogram {
	h := results.NewHistogram()
	for v := int64(1); v < longestRecorded; v += 1 + v/4 { // a page of counters spans half of a power of two
		_ = h.RecordValue(v)
	}
	h.Reset()
	return h
}

// Record counts a value; those over the histogram's range of 60 s count as 60 s.
func Record(h *hdrhistogram.Histogram, v int64) {
	_ = h.RecordValue(min(max(v, 1), longestRecorded))
}
