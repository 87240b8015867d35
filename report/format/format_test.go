package format

import (
	"math"
	"testing"
)

func TestDigits(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 1: "1.00", 99.96: "100", 9.996: "10.0", 999.4: "999",
		999.6: "1,000", 0.0123: "0.0123", 0.29: "0.290", 12345.6: "12,346",
		3e-4: "3.0e-04", 5e9: "5.0e+09", math.Inf(1): "–", -4567: "-4,567"} {
		if got := Digits(v); got != want {
			t.Errorf("digits(%v) = %q, want %q", v, got, want)
		}
	}
}

// Samples are of a histogram: what was lost is longer than all of it, and its last bin has no end.
func TestOfSamples(t *testing.T) {
	for v, want := range map[float64]string{math.Inf(1): "lost", 60_028_878_847: "≥ 60 s", 59_900_000_000: "59.9 s", 20_000: "20.0 µs",
		math.NaN(): "–"} {
		if got := UnitOf("ns").OfSamples().Full(v); got != want {
			t.Errorf("%v is %q, want %q", v, got, want)
		}
	}
}
