package results

import (
	"fmt"
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// maxValue is the longest time that a histogram can hold, in nanoseconds.
const maxValue = int64(60 * time.Second)

// NewHistogram returns an empty histogram with the range and precision of all sessions.
func NewHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, maxValue, 3)
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

// Percentile returns the least value, at the upper end of its bin, that at least a share p of the samples
// does not exceed. The lost samples count as longer than all others; if the rank falls among them, the result
// is infinite. The histogram's own percentiles round the rank to the nearest, so that among 367 samples four
// are beyond P99.
func Percentile(h *hdrhistogram.Histogram, p float64, lost uint64) float64 {
	came := float64(h.TotalCount())
	rank := max(1, math.Ceil(p*(came+float64(lost))-1e-6)) // a product such as 0.999 × 3,000 may exceed 2,997
	if rank > came {
		return math.Inf(1)
	}
	return float64(h.ValueAtQuantile(100 * rank / came))
}
