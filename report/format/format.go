// Package format prints the numbers of a report, and the units in which they are measured.
package format

import (
	"math"
	"strconv"
	"strings"
	"time"

	"isolane.dev/isolane/results"
)

// None stands for a figure that does not exist.
const None = "–"

// Digits prints v with three significant digits, and without decimals from 1,000 on.
func Digits(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return None
	case a == 0:
		return "0"
	case a >= 1e9 || a < 1e-3:
		return strconv.FormatFloat(v, 'e', 1, 64)
	case a >= 999.5:
		return thousands(int64(math.Round(v)))
	}
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 3, 64), 64) // 9.996 is 10.0
	return strconv.FormatFloat(v, 'f', 2-int(math.Floor(math.Log10(math.Abs(v)))), 64)
}

func thousands(v int64) string {
	s := strconv.FormatInt(v, 10)
	for k := len(s) - 3; k > 0 && s[k-1] != '-'; k -= 3 {
		s = s[:k] + "," + s[k:]
	}
	return s
}

// Count prints a whole number: 12,345.
func Count(n uint64) string { return thousands(int64(n)) }

// Ratio prints how many times as much something is. What was lost is infinitely many times anything else.
func Ratio(times float64) string {
	if math.IsInf(times, 1) {
		return "∞"
	}
	return Digits(times)
}

// Percent prints a ratio in percent.
func Percent(ratio float64) string { return suffixed(Ratio(100*ratio), "%") }

// suffixed appends a unit to a figure that exists.
func suffixed(figure, unit string) string {
	if figure == None {
		return None
	}
	return figure + unit
}

// step is a unit, and the value from which it fits.
type step struct {
	from float64
	unit string
}

// fitting prints v in the first unit that fits, or in the last.
func fitting(v float64, format func(float64) string, steps ...step) string {
	for i, s := range steps {
		if v >= s.from || i == len(steps)-1 {
			return suffixed(format(v/s.from), " "+s.unit)
		}
	}
	return None
}

// rate prints bit/s; gigabits leaves out the unit.
func rate(v float64) string {
	return fitting(v, Digits, step{1e9, "Gbit/s"}, step{1e6, "Mbit/s"}, step{1e3, "kbit/s"})
}

func gigabits(v float64) string { return Digits(v / 1e9) }

// micros prints nanoseconds as microseconds, from a second on as seconds; micro leaves out the unit µs.
func micros(ns float64) string { return fitting(ns, Digits, step{1e9, "s"}, step{1e3, "µs"}) }
func micro(ns float64) string  { return strings.TrimSuffix(micros(ns), " µs") }

// timeTick prints a round time.
func timeTick(ns float64) string {
	return fitting(ns, Tick, step{1e9, "s"}, step{1e6, "ms"}, step{1e3, "µs"})
}

// Tick prints the value of an axis tick, which is round.
func Tick(v float64) string {
	if v >= 1000 {
		return Digits(v)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// Seconds prints a round time in seconds.
func Seconds(d time.Duration) string { return Tick(d.Seconds()) + " s" }

// Quantile prints the name of a quantile: P99.9.
func Quantile(p float64) string { return "P" + strconv.FormatFloat(math.Round(p*1e8)/1e6, 'f', -1, 64) }

// Unit prints values.
type Unit struct {
	Name  string               // in a table's header
	Plain func(float64) string // below such a header
	Full  func(float64) string // with the unit that fits
	Tick  func(float64) string // a round value on an axis
	Axis  string               // the unit of Tick; "" if Tick prints it
}

// UnitOf returns how to print a unit of the results: ns as µs, bit/s as Gbit/s, all others unchanged.
func UnitOf(name string) Unit {
	switch name {
	case results.TimeUnit:
		return Times()
	case results.RateUnit:
		tick := func(v float64) string { return Tick(v / 1e9) }
		return Unit{Name: "Gbit/s", Plain: gigabits, Full: rate, Tick: tick, Axis: "Gbit/s"}
	}
	behind := " " + name
	if name == "%" {
		behind = name
	}
	full := func(v float64) string { return suffixed(Digits(v), behind) }
	return Unit{Name: name, Plain: Digits, Full: full, Tick: Tick, Axis: name}
}

// longest is below the last bin of a histogram, in which probes count everything of 60 s and more.
const longest = 59.99e9

// OfSamples returns the unit for values of a histogram: an infinite one is among what was lost.
func (u Unit) OfSamples() Unit {
	of := func(print func(float64) string) func(float64) string {
		return func(v float64) string {
			switch {
			case math.IsInf(v, 1):
				return "lost"
			case v >= longest && v < 60.1e9: // larger values are from no histogram
				return "≥ 60 s"
			}
			return print(v)
		}
	}
	u.Plain, u.Full = of(u.Plain), of(u.Full)
	return u
}

// Times returns the unit of times in nanoseconds.
func Times() Unit { return Unit{Name: "µs", Plain: micro, Full: micros, Tick: timeTick} }
