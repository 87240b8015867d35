package probe

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"isolane.dev/isolane/results"
)

// longestRecorded is the upper end of a session's histograms, in nanoseconds.
const longestRecorded = int64(60 * time.Second)

// NewHistogram returns an empty histogram of the session's range. Its counters have all been touched, so that
// recording takes no page faults.
func NewHistogram() *hdrhistogram.Histogram {
	h := results.NewHistogram()
	for v := int64(1); v < longestRecorded; v += 1 + v/4 { // a page of counters spans half of a power of two
		_ = h.RecordValue(v)
	}
	h.Reset()
	return h
}

// Record counts a value. Values above the histogram's range count as 60 s.
func Record(h *hdrhistogram.Histogram, v int64) {
	_ = h.RecordValue(min(max(v, 1), longestRecorded))
}
