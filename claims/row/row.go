// Package row reads published tables: what each row measures, in which unit, under which conditions, and
// which values its printed digits allow. Package claims/rules checks what rows say together.
package row

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"isolane.dev/isolane/claims"
)

// Words of metrics, separated by spaces.
const (
	LatencyWords = "latency rtt delay response jitter wakeup ping"
	ChangeWords  = "loss gain diff difference delta change offset skew drift increase decrease reduction " +
		"improvement drop saving savings speedup slowdown overhead"
)

// Row is one published figure.
type Row struct {
	Line                                                    int // in the CSV file
	at, Source, scenario, Config, Metric, Qualifier, Quoted string
	Unit                                                    Unit
	UnitText,
	Text string // as printed; the unit without a remark in parentheses
	Group string // source and scenario
	Value Span   // what the digits allow, in the printed unit
	Words []string
	Stem  string // the metric without its statistic
	Stat  Stat
	Parts []Part // of the config
	// Keys of rows that belong together in a group: by conditions in any order, and by metric.
	Conditions, Figure string
	General            []string // words of scenario and config
	Prose              string   // everything that it says in words
}

// Measured reports whether a figure can be used in arithmetic.
func (w *Row) Measured() bool {
	return slices.Contains([]string{"", "exact", "approx", "as_written", "worded"}, w.Qualifier)
}

// Measure returns the same text for figures that can be compared.
func (w *Row) Measure() string {
	if w.Unit.Dim == Other {
		return w.UnitText
	}
	return strconv.Itoa(int(w.Unit.Dim))
}

// IsSetup reports whether a row describes the conditions of all measurements of its source.
func (w *Row) IsSetup() bool {
	return slices.ContainsFunc(w.General, isOfSetup)
}

func isOfSetup(word string) bool {
	return slices.Contains([]string{"setup", "workload", "common", "method", "environment", "settings",
		"parameters"}, word)
}

// IsOf reports whether another row names everything that this one names, except for its being of a setup.
func (w *Row) IsOf(o *Row) bool {
	return !slices.ContainsFunc(w.General, func(word string) bool {
		return !isOfSetup(word) && !slices.Contains(o.General, word)
	})
}

// AsFigure returns what a finding shows of a row.
func (w *Row) AsFigure() claims.Figure {
	return claims.Figure{Line: w.Line, At: w.at, Source: w.Source, Scenario: w.scenario, Config: w.Config,
		Metric: w.Metric, Value: w.Text, Unit: w.UnitText, Qualifier: w.Qualifier, Setup: w.IsSetup()}
}

// IsResult reports whether a row has the figure of a measurement.
func (w *Row) IsResult() bool {
	return slices.Contains([]Dimension{Duration, Rate, SizeRate, BitRate, Share}, w.Unit.Dim) && !w.IsSetup()
}

// IsBound reports whether a row gives one end of a range.
func (w *Row) IsBound() bool {
	return strings.HasPrefix(w.Qualifier, "range_") || strings.HasSuffix(w.Qualifier, "_bound")
}

// IsLatency reports whether a metric is a time that somebody waits.
func (w *Row) IsLatency() bool { return w.Has(strings.Fields(LatencyWords)...) }

// IsChange reports whether a metric is a difference, which may be negative.
func (w *Row) IsChange() bool { return w.Has(strings.Fields(ChangeWords)...) }

// Has reports whether a metric has one of these words.
func (w *Row) Has(words ...string) bool {
	return slices.ContainsFunc(w.Words, func(word string) bool { return slices.Contains(words, word) })
}

// Drop returns words without some of them.
func Drop(words, which []string) []string {
	return slices.DeleteFunc(slices.Clone(words), func(w string) bool { return slices.Contains(which, w) })
}

// Keep returns the rows that which accepts; all rows if it is nil.
func Keep(rows []*Row, which func(*Row) bool) (kept []*Row) {
	for _, w := range rows {
		if which == nil || which(w) {
			kept = append(kept, w)
		}
	}
	return kept
}

// Grouped groups items by key, in their order.
func Grouped[S ~[]E, E any](items S, key func(E) string) []S {
	at := map[string]int{}
	var groups []S
	for _, item := range items {
		k, known := at[key(item)]
		if !known {
			k = len(groups)
			at[key(item)], groups = k, append(groups, nil)
		}
		groups[k] = append(groups[k], item)
	}
	return groups
}

// Rank returns the place of a row among the statistics of one figure, or of the ends of its range.
func (w *Row) Rank() float64 {
	switch {
	case w.Qualifier == "range_low" || w.Qualifier == "lower_bound" || w.Has("first", "lower"):
		return 0
	case w.Qualifier == "range_high" || w.Qualifier == "upper_bound" || w.Has("last", "upper"):
		return 100
	case w.Stat.Kind == "":
		return 50
	default:
		return w.Stat.Rank
	}
}

// IsEach reports whether a figure is per CPU, thread or another of several things: "rate per core". A rate
// per second is not.
func (w *Row) IsEach() bool {
	of, times := w.After("per"), []string{"s", "sec", "second", "min", "minute", "h", "hour", "day"}
	return of != "" && !slices.Contains(times, of) ||
		slices.ContainsFunc(w.Parts, func(p Part) bool { return p.Key == "" && strings.HasPrefix(p.Value, "per ") })
}

// Of returns what a figure is per, by its metric or unit: packet for "cycles per packet", cycles/packet.
func (w *Row) Of() string {
	of := w.After("per")
	if k := strings.LastIndex(w.UnitText, "/"); w.Unit.Dim == Other && k > 0 && of == "" {
		of = strings.ToLower(w.UnitText[k+1:])
	}
	return of
}

// IsInTable reports whether a row has a line of its own. A figure that a configuration gives has none.
func (w *Row) IsInTable() bool { return w.Line > 0 }

// After returns the word after the last occurrence of another one; "": none, or that word is the first.
func (w *Row) After(word string) string {
	if k := LastOf(w.Words, word); k > 0 && k+1 < len(w.Words) {
		return w.Words[k+1]
	}
	return ""
}

// LastOf returns the index of the last occurrence of a word: requests_per_s_per_core is per core. -1: none.
func LastOf(words []string, word string) int {
	for k, w := range slices.Backward(words) {
		if w == word {
			return k
		}
	}
	return -1
}

// proseOf returns everything that a row says in words.
func (w *Row) proseOf() string {
	words := slices.Concat(w.General, w.Words, WordsOf(w.Quoted))
	if w.Unit.Dim == Text {
		words = append(words, WordsOf(w.Text)...)
	}
	return strings.Join(words, " ")
}

var (
	saysLinks = regexp.MustCompile(`\b(?:(\d{1,3}|two|both|three|four|six|eight|dual|quad) ?` +
		`(?:[x×] ?(?:\S+ ){0,4}\d+ ?g(?:b|be|bps|bit)?|(?:links?|ports?|nics?|interfaces|uplinks|homed)))\b`)
	saysLinksAre = regexp.MustCompile(`\b(?:(?:links|ports|nics|interfaces|uplinks) (\d{1,3}))\b`)
)

// Links returns how many links a row names; 0: it names none.
func (w *Row) Links() float64 {
	most := 0.
	for _, m := range slices.Concat(saysLinks.FindAllStringSubmatch(w.Prose, -1),
		saysLinksAre.FindAllStringSubmatch(w.Prose, -1)) {
		n, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			n = map[string]float64{"two": 2, "both": 2, "dual": 2, "three": 3, "four": 4, "quad": 4, "six": 6,
				"eight": 8}[m[1]]
		}
		most = max(most, n)
	}
	return most
}
