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

var amount = regexp.MustCompile(`^(\d[\d.]*(?:[eE][+-]?\d{1,3})?) ?([A-Za-zµ]*)$`)

// said is what a configuration sets one of these to, as a figure: "duration=1h", "duration 1 h", "1518B
// frames". "load threads=4" is threads, too.
func (w *row) said(dim dimension, names ...string) *row {
	for _, p := range w.parts {
		name, value := strings.ToLower(strings.ReplaceAll(p.key, "_", " ")), p.value
		if fields := strings.Fields(value); name == "" && len(fields) > 1 {
			k := slices.IndexFunc(fields, func(s string) bool { return s[0] >= '0' && s[0] <= '9' })
			switch {
			case k > 0 && (dim != count || strings.HasSuffix(fields[k-1], "s")): // "core 1" is the name of one
				name, value = strings.ToLower(strings.Join(fields[:k], " ")), strings.Join(fields[k:], " ")
			case k == 0 && dim == size:
				last := len(fields) - 1
				name, value = strings.TrimSuffix(fields[last], "s"), strings.Join(fields[:last], " ")
			}
		}
		m := amount.FindStringSubmatch(value)
		if m == nil || !slices.ContainsFunc(names, func(s string) bool {
			return s != "" && (name == s || dim == count && p.key != "" && strings.HasSuffix(name, " "+s))
		}) {
			continue
		}
		u, known := unit{dim: dim, factor: 1}, dim == count || dim == size // bytes
		if m[2] != "" {
			u, known = unitOf(m[2])
		}
		v, err := parseValue(m[1], dim, 0)
		if err != nil || !known || u.dim != dim {
			continue
		}
		unitText := cmp.Or(m[2], map[dimension]string{size: "bytes"}[dim], name)
		return &row{text: m[1], unitText: unitText, unit: u, value: v, source: w.source}
	}
	return nil
}

// isEach says whether a figure is of one CPU, thread or whatever else of several: "rate per core". A rate per
// second is none.
func (w *row) isEach() bool {
	of, times := w.after("per"), []string{"s", "sec", "second", "min", "minute", "h", "hour", "day"}
	return of != "" && !slices.Contains(times, of) ||
		slices.ContainsFunc(w.parts, func(p part) bool { return p.key == "" && strings.HasPrefix(p.value, "per ") })
}
