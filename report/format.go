package report

import (
	"fmt"
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
	case a >= 1e9 || a > 0 && a < 1e-3:
		return strconv.FormatFloat(v, 'e', 1, 64)
	case a >= 999.5:
		return thousands(int64(math.Round(v)))
	}
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 3, 64), 64)
	if err != nil {
		return none
	}
	switch a := math.Abs(rounded); {
	case a >= 100 || a == 0:
		return strconv.FormatFloat(rounded, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(rounded, 'f', 1, 64)
	case a >= 1:
		return strconv.FormatFloat(rounded, 'f', 2, 64)
	}
	return strconv.FormatFloat(rounded, 'f', 2-int(math.Floor(math.Log10(math.Abs(rounded)))), 64)
}

func thousands(v int64) string {
	s := strconv.FormatInt(v, 10)
	sign := ""
	if v < 0 {
		sign, s = "-", s[1:]
	}
	var parts []string
	for len(s) > 3 {
		parts = append([]string{s[len(s)-3:]}, parts...)
		s = s[:len(s)-3]
	}
	return sign + strings.Join(append([]string{s}, parts...), ",")
}

func count(n uint64) string { return thousands(int64(n)) }

func percent(ratio float64) string {
	if s := digits(100 * ratio); s != none {
		return s + "%"
	}
	return none
}

// gigabits prints bit/s as Gbit/s, without the unit.
func gigabits(v float64) string { return digits(v / 1e9) }

// rate prints bit/s with the unit that fits.
func rate(v float64) string {
	switch {
	case v >= 1e9:
		return digits(v/1e9) + " Gbit/s"
	case v >= 1e6:
		return digits(v/1e6) + " Mbit/s"
	}
	return digits(v/1e3) + " kbit/s"
}

// micro prints nanoseconds as microseconds, without the unit; from a second on as seconds.
func micro(ns float64) string {
	if ns >= 1e9 && !math.IsInf(ns, 0) {
		return digits(ns/1e9) + " s"
	}
	return digits(ns / 1e3)
}

func micros(ns float64) string {
	if text := micro(ns); strings.HasSuffix(text, " s") {
		return text
	}
	return micro(ns) + " µs"
}

func seconds(d time.Duration) string { return tickText(d.Seconds()) + " s" }

// spread prints the whisker of a ratio in percent: an interval in brackets, the range of the blocks
// without.
func spread(c Comparison) string {
	lo, hi, interval := c.Spread()
	switch {
	case !c.Known() || c.N == 1:
		return none
	case interval:
		return fmt.Sprintf("[%s, %s]", digits(100*lo), digits(100*hi))
	}
	return fmt.Sprintf("%s to %s", digits(100*lo), digits(100*hi))
}

// spreadWords is the same for a sentence.
func spreadWords(c Comparison) string {
	_, _, interval := c.Spread()
	switch {
	case !c.Known():
		return ""
	case interval:
		return fmt.Sprintf("%s (%d blocks)", spread(c), c.N)
	}
	if c.N == 1 {
		return "(1 block)"
	}
	return fmt.Sprintf("(%d blocks, range: %s)", c.N, spread(c))
}

// pname is the name of a quantile: P99.9.
func pname(p float64) string { return "P" + strconv.FormatFloat(math.Round(p*1e8)/1e6, 'f', -1, 64) }

func capital(s string) string { return strings.ToUpper(s[:min(1, len(s))]) + s[min(1, len(s)):] }

// timeTick prints a round time.
func timeTick(ns float64) string {
	switch {
	case ns >= 1e9:
		return tickText(ns/1e9) + " s"
	case ns >= 1e6:
		return tickText(ns/1e6) + " ms"
	}
	return tickText(ns/1e3) + " µs"
}

// tickText prints the value of a tick, which is a round one.
func tickText(v float64) string {
	if v >= 1000 {
		return digits(v)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
