package rules

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// dimension is what a unit measures. Figures of one dimension can be compared.
type dimension int

const (
	text  dimension = iota // no number: a version, a date
	other                  // a number that is compared only with the same unit
	id
	count
	share // percent and ratios
	duration
	frequency
	rate // events a second
	size
	bits
	sizeRate
	bitRate
)

// unit has the factor to seconds, bytes (also for bits), or per second of them. The prefix of a size may mean
// a power of 1,000 or of 1,024: binary is the second factor, 0 where only one can be meant.
type unit struct {
	dim            dimension
	factor, binary float64
	points         bool // of percent: a difference of two shares
}

// amount says whether there is none below zero.
func (u unit) amount() bool { return u.dim != text && u.dim != other && u.dim != share }

const year = 365.25 * 86400 // seconds

// units are those with names of their own.
func units() map[string]unit {
	return map[string]unit{
		"version text string name date year model url": {dim: text},
		"id cpu_id node_id core_id prio priority nice": {dim: id, factor: 1},
		"count cores cpus vcpu vcpus threads connections requests samples packets frames loops iterations cycles " +
			"instructions pages runs errors events sockets nodes": {dim: count, factor: 1},
		"percent % pct":                 {dim: share, factor: 0.01},
		"ratio x factor times fraction": {dim: share, factor: 1},
		"ppm":                           {dim: share, factor: 1e-6},
		"pp":                            {dim: share, factor: 0.01, points: true},
		"ns nanosecond nanoseconds":     {dim: duration, factor: 1e-9},
		"us µs μs usec microsecond microseconds": {dim: duration, factor: 1e-6},
		"ms msec millisecond milliseconds":       {dim: duration, factor: 1e-3},
		"s sec second seconds":                   {dim: duration, factor: 1},
		"min minute minutes":                     {dim: duration, factor: 60},
		"h hour hours":                           {dim: duration, factor: 3600},
		"d day days":                             {dim: duration, factor: 86400},
		"years":                                  {dim: duration, factor: year},
		"Hz":                                     {dim: frequency, factor: 1}, "kHz": {dim: frequency, factor: 1e3},
		"MHz": {dim: frequency, factor: 1e6}, "GHz": {dim: frequency, factor: 1e9},
		"W kW J kJ V A C °C K dB dBm score points USD EUR lines Wh kWh rpm MT/s GT/s": {dim: other, factor: 1},
		"millicores millicore": {dim: count, factor: 0.001},
	}
}

var (
	eventRate = regexp.MustCompile(`(?i)^([kmg]?)(?:(?:1|reqs?|requests?|ops?|packets?|pkts?|frames?|tx|conn|` +
		`connections|msg|messages|events?|io|query|queries)/s(?:ec(?:ond)?)?|rps|pps|fps|qps|iops|tps|cps)$`)
	dataUnit = regexp.MustCompile(`^(?:([kKmMgGtTpP])(i?))?(B|[Bb]ytes?|b|[Bb]its?)(/s|/sec|ps)?$`)
)

// unitOf knows a unit by its name. The case matters where b is a bit and B a byte.
func unitOf(name string) (unit, bool) {
	for names, known := range units() {
		for s := range strings.FieldsSeq(names) {
			if strings.EqualFold(name, s) {
				return known, true
			}
		}
	}
	power := func(prefix string, base float64) float64 {
		if prefix == "" {
			return 1
		}
		return math.Pow(base, float64(1+strings.Index("kmgtp", strings.ToLower(prefix))))
	}
	if m := eventRate.FindStringSubmatch(name); m != nil {
		return unit{dim: rate, factor: power(m[1], 1000)}, true
	}
	m := dataUnit.FindStringSubmatch(name)
	if m == nil {
		return unit{dim: other, factor: 1}, isRatio(name)
	}
	isBytes, perSecond := m[3] == "B" || strings.EqualFold(m[3][:min(4, len(m[3]))], "byte"), m[4] != ""
	u := unit{dim: bits, factor: power(m[1], 1000) / 8}
	if m[2] != "" {
		u.factor = power(m[1], 1024) / 8
	}
	if isBytes {
		u.dim, u.factor = size, u.factor*8
	}
	if isBytes && m[1] != "" && m[2] == "" {
		u.binary = power(m[1], 1024)
	}
	if perSecond {
		u.dim += sizeRate - size
	}
	return u, true
}

// isRatio is for what is compared only with itself: EUR/core, cycles/packet, Gbps/W.
func isRatio(name string) bool {
	k := strings.LastIndex(name, "/")
	if k < 1 {
		return false
	}
	u, known := unitOf(name[:k])
	per := name[k+1:]
	return known && u.dim != text && slices.ContainsFunc([]string{per, per + "s", per + "/s"},
		func(s string) bool {
			_, is := unitOf(s)
			return is
		})
}

// span is a value and what it may be.
type span struct{ low, mid, high float64 }

func exactly(v float64) span { return span{v, v, v} }

// combine is what an operation gives with any values of two spans.
func combine(a, b span, of func(a, b float64) float64) span {
	ends := []float64{of(a.low, b.low), of(a.low, b.high), of(a.high, b.low), of(a.high, b.high)}
	return span{slices.Min(ends), of(a.mid, b.mid), slices.Max(ends)}
}

func (s span) scaled(f float64) span { return span{s.low * f, s.mid * f, s.high * f} }

// meets says whether both may be the same value, but for the error of float64.
func (s span) meets(o span) bool { return !s.below(o) && !o.below(s) }

// below says whether s is less for sure.
func (s span) below(o span) bool {
	return o.low-s.high > 1e-9*max(math.Abs(o.low), math.Abs(s.high))
}

func (s span) finite() bool {
	return max(math.Abs(s.low), math.Abs(s.mid), math.Abs(s.high)) < math.Inf(1) // false for NaN
}

// number prints at least three digits, and thousands apart. A zero at its end says that it is rounded.
func number(v float64) string {
	decimals := 0
	for size := math.Abs(v); size != 0 && size < 99.5 && decimals < 9; size *= 10 {
		decimals++
	}
	s := strconv.FormatFloat(v, 'f', decimals, 64)
	if rounded, err := strconv.ParseFloat(s, 64); strings.Contains(s, ".") && err == nil && rounded == v {
		s = strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
	}
	return thousands(s)
}

func thousands(s string) string {
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

// percent prints a ratio, with one decimal where it is not whole.
func percent(ratio float64) string {
	v := 100 * ratio
	switch {
	case v > 99.9 && v < 100:
		return strconv.FormatFloat(math.Round(v*1e6)/1e6, 'f', -1, 64) + "%"
	case math.Abs(v) < 10 || math.Abs(v-math.Round(v)) < 1e-9:
		return number(math.Round(v*1e9)/1e9) + "%"
	default:
		return thousands(strconv.FormatFloat(v, 'f', 1, 64)) + "%"
	}
}

// show prints a value in seconds, bytes a second and so on in the unit that people would use.
func show(dim dimension, v float64) string {
	var names string
	switch dim {
	case share:
		return percent(v)
	case duration:
		names = "years days h min s ms us ns"
	case bitRate:
		names = "Tbit/s Gbit/s Mbit/s kbit/s bit/s"
	default:
		return number(v)
	}
	for name := range strings.FieldsSeq(names) {
		least := 1.
		if name == "days" || name == "h" || name == "min" {
			least = 2
		}
		u, _ := unitOf(name)
		if math.Abs(v) >= least*u.factor || strings.HasSuffix(names, " "+name) {
			return number(v/u.factor) + " " + name
		}
	}
	return number(v)
}

// binaryName is a unit as it should have been printed: GiB/s for GB/s.
func binaryName(name string) string {
	prefix, rest, _ := strings.Cut(name, "B")
	return strings.ToUpper(prefix) + "iB" + rest
}
