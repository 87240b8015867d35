package row

import (
	"math"
	"regexp"
	"slices"
	"strings"
)

// Dimension is what a unit measures. Figures of one dimension can be compared.
type Dimension int

// The dimensions.
const (
	Text  Dimension = iota // no number: a version, a date
	Other                  // a number that is compared only with the same unit
	ID
	Count
	Share // percent and ratios
	Duration
	Frequency // in hertz
	Rate      // events a second
	Size
	Bits
	SizeRate
	BitRate
	Length
	Power
	Energy
	PerPower // bytes a second per watt
)

// Unit has the factor to the base unit: seconds, bytes (also for bits), either per second, metres, watts or
// joules. The prefix of a size may mean a power of 1,000 or of 1,024. Binary is the factor for 1,024, or 0 if
// the prefix has only one meaning.
type Unit struct {
	Dim            Dimension
	Factor, Binary float64
	Points         bool // percentage points: a difference of two shares
}

// amount reports whether values below zero are impossible.
func (u Unit) amount() bool { return u.Dim != Text && u.Dim != Other && u.Dim != Share }

// Year is a year in seconds.
const Year = 365.25 * 86400

// units returns the units that have names of their own.
func units() map[string]Unit {
	return map[string]Unit{
		"version text string name date year model url": {Dim: Text},
		"id cpu_id node_id core_id prio priority nice": {Dim: ID, Factor: 1},
		"count cores cpus vcpu vcpus threads connections requests samples packets frames loops iterations cycles " +
			"instructions pages runs errors events sockets nodes": {Dim: Count, Factor: 1},
		"percent % pct":                 {Dim: Share, Factor: 0.01},
		"ratio x factor times fraction": {Dim: Share, Factor: 1},
		"ppm":                           {Dim: Share, Factor: 1e-6},
		"pp":                            {Dim: Share, Factor: 0.01, Points: true},
		"ns nanosecond nanoseconds":     {Dim: Duration, Factor: 1e-9},
		"us µs μs usec microsecond microseconds": {Dim: Duration, Factor: 1e-6},
		"ms msec millisecond milliseconds":       {Dim: Duration, Factor: 1e-3},
		"s sec second seconds":                   {Dim: Duration, Factor: 1},
		"min minute minutes":                     {Dim: Duration, Factor: 60},
		"h hour hours":                           {Dim: Duration, Factor: 3600},
		"d day days":                             {Dim: Duration, Factor: 86400},
		"years":                                  {Dim: Duration, Factor: Year},
		"Hz":                                     {Dim: Frequency, Factor: 1}, "kHz": {Dim: Frequency, Factor: 1e3},
		"MHz": {Dim: Frequency, Factor: 1e6}, "GHz": {Dim: Frequency, Factor: 1e9},
		"V A C °C K dB dBm score points USD EUR lines rpm MT/s GT/s": {Dim: Other, Factor: 1},
		"m metre metres meter meters":                                {Dim: Length, Factor: 1},
		"km kilometre kilometres kilometer kilometers":               {Dim: Length, Factor: 1e3},
		"mi mile miles": {Dim: Length, Factor: 1609.344},
		"W watt watts":  {Dim: Power, Factor: 1}, "kW": {Dim: Power, Factor: 1e3},
		"J joule joules": {Dim: Energy, Factor: 1}, "kJ": {Dim: Energy, Factor: 1e3},
		"nJ": {Dim: Energy, Factor: 1e-9}, "uJ µJ": {Dim: Energy, Factor: 1e-6}, "mJ": {Dim: Energy, Factor: 1e-3},
		"Wh": {Dim: Energy, Factor: 3600}, "kWh": {Dim: Energy, Factor: 3.6e6},
		"millicores millicore": {Dim: Count, Factor: 0.001},
	}
}

var (
	eventRate = regexp.MustCompile(`(?i)^([kmg]?)(?:(?:1|reqs?|requests?|ops?|packets?|pkts?|frames?|tx|conn|` +
		`connections|msg|messages|events?|io|query|queries|trans|transactions?|records?|calls?|sessions?|flows?)` +
		`/s(?:ec(?:ond)?)?|rps|pps|fps|qps|iops|tps|cps)$`)
	dataUnit = regexp.MustCompile(`^(?:([kKmMgGtTpP])(i?))?(B|[Bb]ytes?|b|[Bb]its?)(/s|/sec|ps)?$`)
)

// UnitOf finds a unit by its name. Case matters if b is a bit and B a byte.
func UnitOf(name string) (Unit, bool) {
	const longest = 60
	if name == "M" || len(name) > longest { // a million is no metre
		return Unit{}, false
	}
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
		return Unit{Dim: Rate, Factor: power(m[1], 1000)}, true
	}
	if rest, is := strings.CutSuffix(name, "bE"); is && rest != "" { // 25 GbE
		name = rest + "bps"
	}
	m := dataUnit.FindStringSubmatch(name)
	if m == nil {
		if of, is := strings.CutSuffix(name, "/W"); is && !strings.Contains(of, "/W") {
			if u, _ := UnitOf(of); u.Dim == BitRate {
				return Unit{Dim: PerPower, Factor: u.Factor}, true
			}
		}
		return Unit{Dim: Other, Factor: 1}, isRatio(name)
	}
	isBytes, perSecond := m[3] == "B" || strings.EqualFold(m[3][:min(4, len(m[3]))], "byte"), m[4] != ""
	u := Unit{Dim: Bits, Factor: power(m[1], 1000) / 8}
	if m[2] != "" {
		u.Factor = power(m[1], 1024) / 8
	}
	if isBytes {
		u.Dim, u.Factor = Size, u.Factor*8
	}
	if isBytes && m[1] != "" && m[2] == "" {
		u.Binary = power(m[1], 1024)
	}
	if perSecond {
		u.Dim += SizeRate - Size
	}
	return u, true
}

// isRatio reports whether a unit is compared only with itself: EUR/core, cycles/packet, Gbps/W.
func isRatio(name string) bool {
	k := strings.LastIndex(name, "/")
	if k < 1 {
		return false
	}
	u, known := UnitOf(name[:k])
	per := name[k+1:]
	return known && u.Dim != Text && slices.ContainsFunc([]string{per, per + "s", per + "/s"},
		func(s string) bool {
			_, is := UnitOf(s)
			return is
		})
}
