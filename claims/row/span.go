package row

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// Span is a value with the least and the largest that it may be.
type Span struct{ Low, Mid, High float64 }

// Exactly returns the span of a known value.
func Exactly(v float64) Span { return Span{v, v, v} }

// Combine returns the span of what an operation gives for all values of two spans.
func Combine(a, b Span, of func(a, b float64) float64) Span {
	ends := []float64{of(a.Low, b.Low), of(a.Low, b.High), of(a.High, b.Low), of(a.High, b.High)}
	return Span{slices.Min(ends), of(a.Mid, b.Mid), slices.Max(ends)}
}

// Scaled returns a span in a unit that is f times smaller.
func (s Span) Scaled(f float64) Span { return Span{s.Low * f, s.Mid * f, s.High * f} }

// Meets reports whether both may be the same value, within the error of float64.
func (s Span) Meets(o Span) bool { return !s.Below(o) && !o.Below(s) }

// Below reports whether s is certainly less.
func (s Span) Below(o Span) bool {
	return o.Low-s.High > 1e-9*max(math.Abs(o.Low), math.Abs(s.High))
}

// Finite reports whether all values are finite numbers.
func (s Span) Finite() bool {
	return max(math.Abs(s.Low), math.Abs(s.Mid), math.Abs(s.High)) < math.Inf(1) // false for NaN
}

// Number prints at least three digits, with commas between thousands. A zero at the end means rounding.
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

// Thousands puts commas between the thousands of a printed number.
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

// Percent prints a ratio in percent, with a decimal if it is not whole.
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

// Show prints a value in base units, such as seconds or bytes a second, in the unit that people would use.
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

// BinaryName returns a unit as it should have been printed: GiB/s for GB/s.
func BinaryName(name string) string {
	prefix, rest, _ := strings.Cut(name, "B")
	return strings.ToUpper(prefix) + "iB" + rest
}
