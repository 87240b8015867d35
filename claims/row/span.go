package row

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// Span is a value and what it may be.
type Span struct{ Low, Mid, High float64 }

// Exactly is a value that is known.
func Exactly(v float64) Span { return Span{v, v, v} }

// Combine is what an operation gives with any values of two spans.
func Combine(a, b Span, of func(a, b float64) float64) Span {
	ends := []float64{of(a.Low, b.Low), of(a.Low, b.High), of(a.High, b.Low), of(a.High, b.High)}
	return Span{slices.Min(ends), of(a.Mid, b.Mid), slices.Max(ends)}
}

// Scaled is a span in a unit that is so many times smaller.
func (s Span) Scaled(f float64) Span { return Span{s.Low * f, s.Mid * f, s.High * f} }

// Meets says whether both may be the same value, but for the error of float64.
func (s Span) Meets(o Span) bool { return !s.Below(o) && !o.Below(s) }

// Below says whether s is less for sure.
func (s Span) Below(o Span) bool {
	return o.Low-s.High > 1e-9*max(math.Abs(o.Low), math.Abs(s.High))
}

// Finite is false also where a value is none.
func (s Span) Finite() bool {
	return max(math.Abs(s.Low), math.Abs(s.Mid), math.Abs(s.High)) < math.Inf(1) // false for NaN
}

// Number prints at least three digits, and thousands apart. A zero at its end says that it is rounded.
func Number(v float64) string {
	decimals := 0
	for size := math.Abs(v); size != 0 && size < 99.5 && decimals < 9; size *= 10 {
		decimals++
	}
	s := strconv.FormatFloat(v, 'f', decimals, 64)
	if rounded, err := strconv.ParseFloat(s, 64); strings.Contains(s, ".") && err == nil && rounded == v {
		s = strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
	}
	return Thousands(s)
}

// Thousands sets the thousands of a printed number apart by commas.
func Thousands(s string) string {
	whole, rest, fraction := strings.Cut(s, ".")
	digits := strings.TrimPrefix(whole, "-")
	for k := len(digits) - 3; k > 0; k -= 3 {
		digits = digits[:k] + "," + digits[k:]
	}
	if strings.HasPrefix(whole, "-") {
		digits = "-" + digits
	}
	if fraction {
		digits += "." + rest
	}
	return digits
}

// Percent prints a ratio, with one decimal where it is not whole.
func Percent(ratio float64) string {
	v := 100 * ratio
	switch {
	case v > 99.9 && v < 100:
		return strconv.FormatFloat(math.Round(v*1e6)/1e6, 'f', -1, 64) + "%"
	case math.Abs(v) < 10 || math.Abs(v-math.Round(v)) < 1e-9:
		return Number(math.Round(v*1e9)/1e9) + "%"
	default:
		return Thousands(strconv.FormatFloat(v, 'f', 1, 64)) + "%"
	}
}

// Show prints a value in seconds, bytes a second and so on in the unit that people would use.
func Show(dim Dimension, v float64) string {
	var names string
	switch dim {
	case Share:
		return Percent(v)
	case Duration:
		names = "years days h min s ms us ns"
	case BitRate:
		names = "Tbit/s Gbit/s Mbit/s kbit/s bit/s"
	default:
		return Number(v)
	}
	for name := range strings.FieldsSeq(names) {
		least := 1.
		if name == "days" || name == "h" || name == "min" {
			least = 2
		}
		u, _ := UnitOf(name)
		if math.Abs(v) >= least*u.Factor || strings.HasSuffix(names, " "+name) {
			return Number(v/u.Factor) + " " + name
		}
	}
	return Number(v)
}

// BinaryName is a unit as it should have been printed: GiB/s for GB/s.
func BinaryName(name string) string {
	prefix, rest, _ := strings.Cut(name, "B")
	return strings.ToUpper(prefix) + "iB" + rest
}
