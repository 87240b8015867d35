package row

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Stat is the statistic of a measurement that a row has.
type Stat struct {
	// Kind is min, mean, max, percentile or deviation; "" if the metric names none; averaged for a mean of such
	// statistics; and several for any other two, such as the minimum of maxima.
	Kind string
	Rank float64 // percentage of the samples below it: 0 for min, 100 for max
}

var (
	separators  = regexp.MustCompile(`^%|[\s_()\[\]=:;/,-]+%?`) // %usr
	percentiles = regexp.MustCompile(`^(?:p(\d{1,2}(?:\.\d+)?|100)|(\d{1,2}(?:\.\d+)?)(?:th|st|nd|rd|%))$`)
	split9s     = regexp.MustCompile(`(?i)(^|[_ -])(p\d{1,2})_(\d+)($|[_ -])`)                // p99_9
	joined      = regexp.MustCompile(`([a-z]{2})([A-Z][a-z])`)                                // AverageLatency
	ranked      = regexp.MustCompile(`(?i)\bpercentile[ _=-]?(\d\d?(?:\.\d+)?|100)($|[_ -])`) // percentile 99
	run9s       = regexp.MustCompile(`(?i)(^|[_ -])(p99)(9+)($|[_ -])`)                       // p9999
)

// WordsOf splits a name into words, in lower case.
func WordsOf(name string) []string {
	name = run9s.ReplaceAllString(split9s.ReplaceAllString(name, "$1$2.$3$4"), "$1$2.$3$4")
	words := separators.Split(strings.ToLower(name), -1)
	return slices.DeleteFunc(words, func(w string) bool { return w == "" })
}

// StatOf splits a metric into what was measured and its statistic: latency_p99 is latency and 99.
func StatOf(metric string) (stem string, s Stat) {
	var rest []string
	for _, word := range WordsOf(metric) {
		switch word {
		case "min", "minimum":
			s = s.with(Stat{"min", 0})
		case "max", "maximum", "p100":
			s = s.with(Stat{"max", 100})
		case "avg", "average", "mean":
			s = s.with(Stat{Kind: "mean"})
		case "median":
			s = s.with(Stat{"percentile", 50})
		case "sd", "std", "stdev", "stddev", "mdev", "sigma", "deviation":
			s = s.with(Stat{Kind: "deviation"})
		case "claimed", "percentile", "pct":
		default:
			if m := percentiles.FindStringSubmatch(word); m != nil {
				rank, _ := strconv.ParseFloat(m[1]+m[2], 64)
				s = s.with(Stat{"percentile", rank})
			} else {
				rest = append(rest, word)
			}
		}
	}
	if s.Kind == "deviation" {
		rest = Drop(rest, []string{"standard", "dev"})
	}
	return strings.Join(rest, "_"), s
}

// with combines a statistic with the next one that a metric names.
func (s Stat) with(o Stat) Stat {
	switch kinds := []string{s.Kind, o.Kind}; {
	case s.Kind == "" || s == o:
		return o
	case slices.Contains(kinds, "deviation") && slices.Contains(kinds, "mean"): // the mean deviation
		return Stat{Kind: "deviation"}
	case slices.Contains(kinds, "mean") && !slices.Contains(kinds, "several"):
		return Stat{"averaged", max(s.Rank, o.Rank)}
	default:
		return Stat{Kind: "several"}
	}
}

// Part is one condition of a configuration: "cpus=4", or just "noisy", with an empty key.
type Part struct{ Key, Value string }

func (p Part) String() string {
	if p.Key == "" {
		return p.Value
	}
	return p.Key + "=" + p.Value
}

// partsOf parses a configuration: conditions separated by semicolons, each with one or more keys: "cache=off;
// load threads=4 connections=20".
func partsOf(config string) []Part {
	var all []Part
	for piece := range strings.SplitSeq(config, ";") {
		var parts []Part
		var before []string // words before a key, or of a condition without one
		for _, word := range strings.Fields(piece) {
			key, value, ok := strings.Cut(word, "=")
			switch {
			case ok:
				parts = append(parts, Part{normal(strings.Join(append(before, key), " ")), value})
				before = nil
			case len(parts) == 0:
				before = append(before, word)
			default:
				parts[len(parts)-1].Value = normal(parts[len(parts)-1].Value + " " + word)
			}
		}
		if before != nil {
			parts = append(parts, Part{"", strings.Join(before, " ")})
		}
		all = append(all, parts...)
	}
	return all
}

func normal(s string) string { return strings.Join(strings.Fields(s), " ") }

// List prints conditions in one line.
func List(parts []Part) string {
	var names []string
	for _, p := range parts {
		names = append(names, p.String())
	}
	return strings.Join(names, "; ")
}

// Unordered returns a text of conditions that is independent of their order.
func Unordered(parts []Part) string {
	byName := func(a, b Part) int { return cmp.Compare(a.String(), b.String()) }
	return List(slices.SortedFunc(slices.Values(parts), byName))
}

// is reports whether a condition is the one that a comparison names: "off", "cache off" or "bare metal". A
// remark in parentheses does not count: pinned (by hand) is pinned.
func (p Part) is(name string) bool {
	value, _, _ := strings.Cut(p.Value, "(")
	value = strings.TrimSpace(value)
	return name != "" && (strings.EqualFold(value, name) || strings.EqualFold(p.String(), name) ||
		p.Key != "" && strings.EqualFold(p.Key+" "+value, name))
}

var (
	sides = regexp.MustCompile(`^(.+?) (vs\.?|versus|minus|over|against|relative to|compared (?:to|with)) (.+)$`)
	slash = regexp.MustCompile(`^(.+?) ?(/) ?(.+)$`)
)

// Sides returns the possible names of the two sides of a comparison, "on vs off" or "host / guest" (nil: it
// is none), and the conditions that hold for both. minus means that it is a difference.
func (w *Row) Sides() (a, b []string, fixed []Part, minus bool) {
	for _, what := range []*regexp.Regexp{sides, slash} {
		k := slices.IndexFunc(w.Parts, func(p Part) bool { return p.Key == "" && what.MatchString(p.Value) })
		if k < 0 {
			continue
		}
		// "cache on vs off": the factor may stand before the first side only.
		m := what.FindStringSubmatch(w.Parts[k].Value)
		a, b = []string{m[1]}, []string{m[3]}
		if last := strings.LastIndex(m[1], " "); last > 0 {
			a, b = append(a, m[1][last+1:]), append(b, m[1][:last]+" "+m[3])
		}
		return a, b, slices.Delete(slices.Clone(w.Parts), k, k+1), m[2] == "minus"
	}
	return nil, nil, w.Parts, false
}

// IsOne returns a test whether a condition is one of these.
func IsOne(names ...string) func(Part) bool {
	return func(p Part) bool { return slices.ContainsFunc(names, p.is) }
}

// Without returns the conditions without those, and reports whether there was one of them.
func Without(parts []Part, those func(Part) bool) (rest []Part, had bool) {
	rest = slices.DeleteFunc(slices.Clone(parts), those)
	return rest, len(rest) < len(parts)
}

// Covers reports whether a configuration has all of some conditions.
func Covers(some, of []Part) bool {
	return !slices.ContainsFunc(some, func(p Part) bool { return !slices.Contains(of, p) })
}

var amount = regexp.MustCompile(`^(\d[\d.]*(?:[eE][+-]?\d{1,3})?) ?([A-Za-zµ]*)$`)

// kindsOf returns words that may stand between a number and what it counts: "4 worker cores".
func kindsOf() []string {
	return []string{"worker", "physical", "logical", "concurrent", "parallel", "open", "tcp", "http"}
}

// Said returns, as a figure, the value that a configuration gives one of these names: "duration=1h",
// "duration 1 h", "1518B frames", "4 cores". "load threads=4" gives threads, too.
func (w *Row) Said(dim Dimension, names ...string) *Row {
	for _, p := range w.Parts {
		name, value := strings.ToLower(strings.ReplaceAll(p.Key, "_", " ")), p.Value
		if fields := strings.Fields(value); name == "" && len(fields) > 1 {
			k := slices.IndexFunc(fields, func(s string) bool { return s[0] >= '0' && s[0] <= '9' })
			last := len(fields) - 1
			switch {
			case k == 0 && dim == Count && (last == 1 || last == 2 && slices.Contains(kindsOf(), fields[1])):
				name, value = strings.TrimSuffix(strings.ToLower(fields[last]), "s")+"s", fields[0] // "4 cores"
			case k > 0 && (dim != Count || strings.HasSuffix(fields[k-1], "s")): // "core 1" names one core
				name, value = strings.ToLower(strings.Join(fields[:k], " ")), strings.Join(fields[k:], " ")
			case k == 0 && dim == Size:
				name, value = strings.TrimSuffix(fields[last], "s"), strings.Join(fields[:last], " ")
			}
		}
		m := amount.FindStringSubmatch(value)
		if m == nil || !slices.ContainsFunc(names, func(s string) bool {
			return s != "" && (name == s || dim == Count && p.Key != "" && strings.HasSuffix(name, " "+s))
		}) {
			continue
		}
		u, known := Unit{Dim: dim, Factor: 1}, dim == Count || dim == Size // bytes
		if m[2] != "" {
			u, known = UnitOf(m[2])
		}
		v, err := parseValue(m[1], u, 0)
		if err != nil || !known || u.Dim != dim {
			continue
		}
		unitText := cmp.Or(m[2], map[Dimension]string{Size: "bytes"}[dim], name)
		return &Row{Text: m[1], UnitText: unitText, Unit: u, Value: v, Source: w.Source}
	}
	return nil
}
