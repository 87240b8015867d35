// Package row reads published tables: what each row measures, in which unit, under which conditions, and
// which values its printed digits allow. What rows say together is for claims/rules.
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
	// Keys of rows that belong together: by conditions in any order, and by metric, both in a group.
	Conditions, Figure string
	General            []string // words of scenario and config
	Prose              string   // all that it says in words
}

// Measured says whether a figure can be reckoned with.
func (w *Row) Measured() bool {
	return slices.Contains([]string{"", "exact", "approx", "as_written", "worded"}, w.Qualifier)
}

// Measure is the same for figures that can be compared.
func (w *Row) Measure() string {
	if w.Unit.Dim == Other {
		return w.UnitText
	}
	return strconv.Itoa(int(w.Unit.Dim))
}

// IsSetup says whether a row describes the conditions of all measurements of its source.
func (w *Row) IsSetup() bool {
	return slices.ContainsFunc(w.General, isOfSetup)
}

func isOfSetup(word string) bool {
	return slices.Contains([]string{"setup", "workload", "common", "method", "environment", "settings",
		"parameters"}, word)
}

// IsOf says whether a row names nothing that another one does not name, but for being of a setup.
func (w *Row) IsOf(o *Row) bool {
	return !slices.ContainsFunc(w.General, func(word string) bool {
		return !isOfSetup(word) && !slices.Contains(o.General, word)
	})
}

// AsFigure is what a finding shows of a row.
func (w *Row) AsFigure() claims.Figure {
	return claims.Figure{Line: w.Line, At: w.at, Source: w.Source, Scenario: w.scenario, Config: w.Config,
		Metric: w.Metric, Value: w.Text, Unit: w.UnitText, Qualifier: w.Qualifier, Setup: w.IsSetup()}
}

// IsResult is for rows with a figure of a measurement.
func (w *Row) IsResult() bool {
	return slices.Contains([]Dimension{Duration, Rate, SizeRate, BitRate, Share}, w.Unit.Dim) && !w.IsSetup()
}

// IsBound is for rows that say one end of a range.
func (w *Row) IsBound() bool {
	return strings.HasPrefix(w.Qualifier, "range_") || strings.HasSuffix(w.Qualifier, "_bound")
}

// IsLatency says whether a metric is a time that somebody waits.
func (w *Row) IsLatency() bool { return w.Has(strings.Fields(LatencyWords)...) }

// IsChange says whether a metric is a difference, which may be negative.
func (w *Row) IsChange() bool { return w.Has(strings.Fields(ChangeWords)...) }

// Has says whether a metric has one of these words.
func (w *Row) Has(words ...string) bool {
	return slices.ContainsFunc(w.Words, func(word string) bool { return slices.Contains(words, word) })
}

// Drop is words without some of them.
func Drop(words, which []string) []string {
	return slices.DeleteFunc(slices.Clone(words), func(w string) bool { return slices.Contains(which, w) })
}

// Keep are the rows for which something holds, all where nothing is asked.
func Keep(rows []*Row, which func(*Row) bool) (kept []*Row) {
	for _, w := range rows {
		if which == nil || which(w) {
			kept = append(kept, w)
		}
	}
	return kept
}

// Grouped returns items by what key says, in their order.
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

// Rank is the place of a row among the statistics of one figure, or the ends of its range.
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

// IsEach says whether a figure is of one CPU, thread or whatever else of several: "rate per core". A rate per
// second is none.
func (w *Row) IsEach() bool {
	of, times := w.After("per"), []string{"s", "sec", "second", "min", "minute", "h", "hour", "day"}
	return of != "" && !slices.Contains(times, of) ||
		slices.ContainsFunc(w.Parts, func(p Part) bool { return p.Key == "" && strings.HasPrefix(p.Value, "per ") })
}

// Of is what a figure is of each of, by its metric or its unit: packet of "cycles per packet", cycles/packet.
func (w *Row) Of() string {
	of := w.After("per")
	if k := strings.LastIndex(w.UnitText, "/"); w.Unit.Dim == Other && k > 0 && of == "" {
		of = strings.ToLower(w.UnitText[k+1:])
	}
	return of
}

// IsInTable says whether a row has a line; what a configuration says has none.
func (w *Row) IsInTable() bool { return w.Line > 0 }

// After is the word behind the last of another one, "" where it has none, or none is before it.
func (w *Row) After(word string) string {
	if k := LastOf(w.Words, word); k > 0 && k+1 < len(w.Words) {
		return w.Words[k+1]
	}
	return ""
}

// LastOf is where a word is last: requests_per_s_per_core is per core. -1: nowhere.
func LastOf(words []string, word string) int {
	for k, w := range slices.Backward(words) {
		if w == word {
			return k
		}
	}
	return -1
}

// proseOf is all that a row says in words.
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

// Links is how many links a row names, 0 where it names none.
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
