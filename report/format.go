package report

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// none stands for a figure that does not exist.
const none = "–"

// digits prints v with three significant digits, and whole from 1,000 on.
func digits(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return none
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

func count(n uint64) string { return thousands(int64(n)) }

func percent(ratio float64) string { return suffixed(digits(100*ratio), "%") }

// suffixed puts a unit behind a figure that exists.
func suffixed(figure, unit string) string {
	if figure == none {
		return none
	}
	return figure + unit
}

// step is a unit, and from where on it fits.
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
	return none
}

// rate prints bit/s, gigabits does without the unit.
func rate(v float64) string {
	return fitting(v, digits, step{1e9, "Gbit/s"}, step{1e6, "Mbit/s"}, step{1e3, "kbit/s"})
}

func gigabits(v float64) string { return digits(v / 1e9) }

// micros prints nanoseconds as microseconds, from a second on as seconds; micro does without the unit µs.
func micros(ns float64) string { return fitting(ns, digits, step{1e9, "s"}, step{1e3, "µs"}) }
func micro(ns float64) string  { return strings.TrimSuffix(micros(ns), " µs") }

// timeTick prints a round time.
func timeTick(ns float64) string {
	return fitting(ns, tickText, step{1e9, "s"}, step{1e6, "ms"}, step{1e3, "µs"})
}

// tickText prints the value of a tick, which is a round one.
func tickText(v float64) string {
	if v >= 1000 {
		return digits(v)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

func seconds(d time.Duration) string { return tickText(d.Seconds()) + " s" }

// pname is the name of a quantile: P99.9.
func pname(p float64) string { return "P" + strconv.FormatFloat(math.Round(p*1e8)/1e6, 'f', -1, 64) }

// unit prints values.
type unit struct {
	name  string               // in the head of a table
	plain func(float64) string // below such a head
	full  func(float64) string // with the unit that fits
	tick  func(float64) string // a round value of an axis, with the unit that fits
}

// rates are bit/s.
func rates() unit { return unit{name: "Gbit/s", plain: gigabits, full: rate, tick: rate} }

// times are nanoseconds.
func times() unit { return unit{name: "µs", plain: micro, full: micros, tick: timeTick} }
