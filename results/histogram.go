package results

import (
	"fmt"
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// longest is what a histogram can hold.
const longest = int64(60 * time.Second)

// NewHistogram returns an empty histogram of the session's range and precision.
func NewHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, longest, 3)
}

// Encode packs h for storage.
func Encode(h *hdrhistogram.Histogram) (Histogram, error) {
	if h.TotalCount() == 0 {
		return "", nil
	}
	b, err := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	return Histogram(b), err
}

// Decode unpacks a stored histogram.
func (h Histogram) Decode() (*hdrhistogram.Histogram, error) {
	if h == "" {
		return NewHistogram(), nil
	}
	d, err := hdrhistogram.Decode([]byte(h))
	if err != nil {
		return nil, fmt.Errorf("histogram: %w", err)
	}
	return d, nil
}

// Percentile is the least value that at least a share p of the samples does not exceed, at the upper end of
// its bin; lost are samples that took longer than all others, and may be it: then it is infinite. The
// histogram's own percentiles round the rank to the nearest, so that of 367 samples P99 has four beyond it.
func Percentile(h *hdrhistogram.Histogram, p float64, lost uint64) float64 {
	came := float64(h.TotalCount())
	rank := max(1, math.Ceil(p*(came+float64(lost))-1e-6)) // a product such as 0.999 × 3,000 may be above 2,997
	if rank > came {
		return math.Inf(1)
	}
	return float64(h.ValueAtQuantile(100 * rank / came))
}
