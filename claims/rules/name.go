package rules

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// stat is which statistic of a measurement a row has.
type stat struct {
	kind string  // min, mean, max, percentile, deviation; "" where the metric has none
	rank float64 // share of the samples below it, in percent: 0 for min, 100 for max
}

var (
	separators  = regexp.MustCompile(`[\s_()\[\]=:;/,-]+`)
	percentiles = regexp.MustCompile(`^(?:p(\d{1,2}(?:\.\d+)?|100)|(\d{1,2}(?:\.\d+)?)(?:th|st|nd|rd|%))$`)
	split9s     = regexp.MustCompile(`(?i)(^|[_ -])(p\d{1,2})_(\d+)($|[_ -])`) // p99_9
	run9s       = regexp.MustCompile(`(?i)(^|[_ -])(p99)(9+)($|[_ -])`)        // p9999
)

func wordsOf(name string) []string {
	name = run9s.ReplaceAllString(split9s.ReplaceAllString(name, "$1$2.$3$4"), "$1$2.$3$4")
	return slices.DeleteFunc(separators.Split(strings.ToLower(name), -1), func(w string) bool { return w == "" })
}

// statOf splits a metric into what was measured and the statistic: latency_p99 is latency and 99.
func statOf(metric string) (stem string, s stat) {
	var rest []string
	for _, word := range wordsOf(metric) {
		switch word {
		case "min", "minimum":
			s = stat{"min", 0}
		case "max", "maximum", "p100":
			s = stat{"max", 100}
		case "avg", "average", "mean":
			s = stat{kind: "mean"}
		case "median":
			s = stat{"percentile", 50}
		case "sd", "std", "stdev", "stddev", "deviation":
			s = stat{kind: "deviation"}
		case "claimed", "percentile", "pct":
		default:
			if m := percentiles.FindStringSubmatch(word); m != nil {
				rank, _ := strconv.ParseFloat(m[1]+m[2], 64)
				s = stat{"percentile", rank}
			} else {
				rest = append(rest, word)
			}
		}
	}
	return strings.Join(rest, "_"), s
}

// rank is the place of a row among the statistics of one figure, or the ends of its range.
func (w *row) rank() float64 {
	switch {
	case w.qualifier == "range_low" || w.qualifier == "lower_bound" || w.has("first", "lower"):
		return 0
	case w.qualifier == "range_high" || w.qualifier == "upper_bound" || w.has("last", "upper"):
		return 100
	case w.stat.kind == "":
		return 50
	default:
		return w.stat.rank
	}
}

// part is one condition of a configuration: "cpus=4", or just "noisy", whose key is empty.
type part struct{ key, value string }

func (p part) String() string {
	if p.key == "" {
		return p.value
	}
	return p.key + "=" + p.value
}

// partsOf reads a configuration: conditions apart by semicolons, also several keys in one of them:
// "cache=off; load threads=4 connections=20".
func partsOf(config string) []part {
	var all []part
	for piece := range strings.SplitSeq(config, ";") {
		var parts []part
		var before []string // words before a key, or of a condition without one
		for _, word := range strings.Fields(piece) {
			key, value, ok := strings.Cut(word, "=")
			switch {
			case ok:
				parts = append(parts, part{normal(strings.Join(append(before, key), " ")), value})
				before = nil
			case len(parts) == 0:
				before = append(before, word)
			default:
				parts[len(parts)-1].value = normal(parts[len(parts)-1].value + " " + word)
			}
		}
		if before != nil {
			parts = append(parts, part{"", strings.Join(before, " ")})
		}
		all = append(all, parts...)
	}
	return all
}

func normal(s string) string { return strings.Join(strings.Fields(s), " ") }

func list(parts []part) string {
	var names []string
	for _, p := range parts {
		names = append(names, p.String())
	}
	return strings.Join(names, "; ")
}

// unordered is a text of conditions that does not depend on their order.
func unordered(parts []part) string {
	byName := func(a, b part) int { return cmp.Compare(a.String(), b.String()) }
	return list(slices.SortedFunc(slices.Values(parts), byName))
}

// is says whether a condition is what a comparison names: "off", "cache off" or "bare metal". A remark in
// parentheses does not count: pinned (by hand) is pinned.
func (p part) is(name string) bool {
	value, _, _ := strings.Cut(p.value, "(")
	value = strings.TrimSpace(value)
	return name != "" && (strings.EqualFold(value, name) || strings.EqualFold(p.String(), name) ||
		p.key != "" && strings.EqualFold(p.key+" "+value, name))
}

// isOne says whether a condition is one of these.
func isOne(names ...string) func(part) bool {
	return func(p part) bool { return slices.ContainsFunc(names, p.is) }
}

// without are the conditions but those, and whether there was one.
func without(parts []part, those func(part) bool) (rest []part, had bool) {
	rest = slices.DeleteFunc(slices.Clone(parts), those)
	return rest, len(rest) < len(parts)
}

// covers says whether a configuration has all of some conditions.
func covers(some, of []part) bool {
	return !slices.ContainsFunc(some, func(p part) bool { return !slices.Contains(of, p) })
}

// said is what a configuration sets a key to, as a figure; "load threads" is threads, too.
func (w *row) said(key string) *row {
	for _, p := range w.parts {
		name := strings.ToLower(p.key)
		v, err := parseValue(p.value, count, 0)
		if err == nil && (name == key || strings.HasSuffix(name, " "+key)) {
			return &row{text: p.value, unitText: key, unit: unit{dim: count, factor: 1}, value: v, source: w.source}
		}
	}
	return nil
}
