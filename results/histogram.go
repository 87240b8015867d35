package results

import (
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// NewHistogram returns an empty histogram of the session's range and precision.
func NewHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, int64(60*time.Second), 3)
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
