package rules

import (
	"fmt"
	"slices"
	"strings"

	"isolane.dev/isolane/quantity"
)

// lack is what some figures need beside them, and do not have.
type lack struct {
	rule string
	of   func(w *row) bool          // the figures
	by   func(w *row) string        // those with the same are one finding
	has  func(w *row) bool          // the figure has what it needs, which nil never has
	sum  func(rows []*row) []string // what is there, and what not
	so   string
}

func inGroup(w *row) string { return w.group }

func byMetric(w *row) string { return w.figure }

func byConditions(w *row) string { return w.conditions }

func byFigure(w *row) string { return w.conditions + w.figure }

// byStem does not tell the statistics of a figure apart, nor a share of it from itself.
func byStem(w *row) string {
	stem, _, _ := strings.Cut(w.stem, "_rel_")
	return w.group + "\x00" + stem
}

// beside says whether a figure has another one of its group by a key.
func (t *table) beside(key func(*row) string, is func(*row) bool) func(*row) bool {
	known := map[string]bool{}
	for _, w := range t.rows {
		if is(w) {
			known[key(w)] = true
		}
	}
	return func(w *row) bool { return known[key(w)] }
}

func each(line func(w *row) string) func([]*row) []string {
	return func(rows []*row) (lines []string) {
		for _, w := range rows[:min(len(rows), mostSums)] {
			lines = append(lines, line(w))
		}
		return lines
	}
}

func (t *table) lacks() []lack { return append(t.lacksOfResults(), t.lacksOfConditions()...) }

func (t *table) lacksOfResults() []lack {
	isRelative := func(w *row) bool { return slices.Index(w.words, "rel") > 0 && w.unit.dim == share }
	return []lack{
		{rule: "no-absolute", of: isRelative, by: byMetric,
			has: t.beside(byStem, func(w *row) bool { return w.isResult() && w.unit.dim != share }),
			sum: func(rows []*row) []string {
				return []string{quantity.Count(len(rows), "figure") + " in percent of a baseline, none in a unit"}
			},
			so: "How much it was cannot be said, nor compared with others."},
		{rule: "mean-only", of: func(w *row) bool { return w.stat.kind == "mean" && w.isLatency() && w.isResult() },
			by: byStem, has: t.beside(byStem, func(w *row) bool { return w.stat.kind != "mean" && w.isResult() }),
			sum: func(rows []*row) []string {
				lines := []string{quantity.Count(len(rows), "mean") + "; no percentile, no maximum"}
				c := t.of[rows[0]]
				if t.find(c, "samples", nil) == nil && t.find(c, "sampled", nil) == nil {
					lines[0] += ", no number of samples"
				}
				if run := t.find(c, "run", nil); run != nil && run.isInTable() {
					lines = append(lines, fmt.Sprintf("line %d: %s %s", run.line, run.metric, t.printed(run)))
				}
				return lines
			},
			so: "A mean hides the tail: how late the slow ones were cannot be said."},
		{rule: "bare-maximum", of: func(w *row) bool {
			return w.stat.kind == "max" && w.isLatency() && w.isResult() && w.unit.dim == duration
		}, by: byStem, has: func(w *row) bool { return t.unbounded(w) == "" },
			sum: func(rows []*row) []string {
				return []string{quantity.Count(len(rows), "maximum") + ": " + t.unbounded(rows[0])}
			},
			so: "A maximum grows with the number of samples: these cannot be compared with any other."},
		{rule: "only-range", of: func(w *row) bool {
			low, high := t.pair(w)
			return w.isResult() && w.unit.dim != share && low != nil && high != nil && t.base(low).mid > 0 &&
				t.base(high).mid > 1.1*t.base(low).mid
		}, by: byFigure, has: t.beside(byFigure,
			func(w *row) bool { return w.isResult() && w.measured() }),
			sum: func(rows []*row) []string {
				low, high := t.pair(rows[0])
				ratio := number(t.base(high).mid / t.base(low).mid)
				return []string{t.printed(high) + " ÷ " + t.printed(low) + " = " + ratio}
			},
			so: "Where in between it is, the table does not say."},
	}
}

func (t *table) lacksOfConditions() []lack {
	isResult := t.beside(inGroup, (*row).isResult)
	isRate := func(w *row) bool {
		return slices.Contains([]dimension{rate, sizeRate, bitRate, share}, w.unit.dim)
	}
	return []lack{
		{rule: "noise-rate", of: func(w *row) bool {
			_, is := without(w.parts, isOne("noise", "stress", "neighbours", "noisy neighbours", "background load"))
			return is && w.unit.dim > id
		}, by: byConditions, has: t.beside(byConditions, isRate),
			sum: each(func(w *row) string {
				if w.unit.dim == duration {
					return w.metric + " " + t.printed(w) + ": it changes in this time"
				}
				return w.metric + " " + t.printed(w) + ": no rate"
			}),
			so: "How much noise there was depends on the moment and on the machine: two runs do not have the same."},
		{rule: "no-result", of: func(w *row) bool {
			return w.unit.dim == count && isResult(w) && !w.isSetup() && !w.has("for") && len(w.parts) > 0 &&
				!slices.ContainsFunc(w.general, func(s string) bool { return s == "each" || s == "all" || s == "both" })
		}, by: byConditions, has: func(w *row) bool {
			return slices.ContainsFunc(t.rows, func(o *row) bool {
				return o.group == w.group && o.isResult() && covers(w.parts, o.parts)
			})
		}, sum: each(func(w *row) string { return "only " + w.metric + " " + t.printed(w) }),
			so: "Other configurations have results, this one has none."},
		{rule: "no-variant", of: func(w *row) bool {
			return w.isSetup() && w.unit.dim == text && t.variant(w) != ""
		}, by: byMetric, sum: each(t.variant),
			so: "It is part of the setup; what it does is not in the table."},
		{rule: "ambiguous-unit", of: func(w *row) bool {
			return w.unit.dim == bits && strings.HasSuffix(w.unitText, "b") &&
				w.has("size", "file", "object", "memory", "ram")
		}, by: byConditions, sum: each(func(w *row) string {
			return fmt.Sprintf("as bits: %s = %s bytes; as bytes: %s %sB = %s bytes", t.printed(w),
				number(t.base(w).mid), thousands(w.text), strings.TrimSuffix(w.unitText, "b"), number(8*t.base(w).mid))
		}), so: "Sizes are in bytes as a rule: the unit may be a misprint, and what depends on it is 8 times off."},
		{rule: "wall-clock", of: func(w *row) bool {
			return strings.Contains(w.metric, "("+w.text+"=CLOCK_REALTIME") || w.text == "CLOCK_REALTIME"
		}, by: byConditions, sum: each(func(w *row) string { return w.metric + " is " + w.text }),
			so: "NTP and people set this clock, and each step becomes a latency; CLOCK_MONOTONIC is not set."},
	}
}

// lacking are the figures that lack what a rule asks for.
func (t *table) lacking(rule string) []hit {
	var hits []hit
	for _, l := range t.lacks() {
		if l.rule != rule {
			continue
		}
		for _, rows := range t.groups(func(w *row) bool { return l.of(w) && (l.has == nil || !l.has(w)) }, l.by) {
			hits = append(hits, hit{rows: rows, sum: l.sum(rows), so: l.so})
		}
	}
	return hits
}

// pair are the ends of the range that a row is an end of.
func (t *table) pair(w *row) (low, high *row) {
	for _, o := range t.of[w] {
		switch same := slices.Equal(o.words, w.words) && strings.HasPrefix(w.qualifier, "range_"); {
		case same && o.qualifier == "range_low":
			low = o
		case same && o.qualifier == "range_high":
			high = o
		}
	}
	return low, high
}

// unbounded says why nobody knows of how many samples a maximum is, "" where somebody does.
func (t *table) unbounded(w *row) string {
	c := t.of[w]
	run, samples := t.find(c, "run", nil), t.find(c, "samples", nil)
	loops, interval := t.find(c, "loops", nil), t.find(c, "interval", nil)
	switch {
	case run != nil && t.base(run).mid <= year:
		return ""
	case loops != nil && interval != nil && t.base(loops).mid*t.base(interval).mid > year:
		return fmt.Sprintf("%s × %s = %s is no duration of a run", t.printed(loops), t.printed(interval),
			show(duration, t.base(loops).mid*t.base(interval).mid))
	case samples == nil && t.find(c, "sampled", nil) == nil:
		return "no duration and no number of samples"
	default:
		return ""
	}
}

// variant finds a part of the setup whose name shares a word with a condition of the results, each with words
// that the other lacks, and that no result names: lib_fast beside "lib slow".
func (t *table) variant(w *row) string {
	beside := ""
	for _, o := range t.rows {
		if o.source != w.source || !o.isResult() {
			continue
		}
		if len(drop(w.words, o.general)) == 0 {
			return ""
		}
		for _, p := range o.parts {
			words := wordsOf(p.String())
			if mine := drop(w.words, words); len(mine) < len(w.words) && len(drop(words, w.words)) > 0 {
				beside = p.String()
			}
		}
	}
	if beside == "" {
		return ""
	}
	return fmt.Sprintf("%s %s is listed; results name %s, none names %s", w.metric, w.text, beside, w.metric)
}

// changesTogether finds two keys of which each value of one goes with one value of the other, three at least.
func (t *table) changesTogether() []hit {
	const mostKeys = 20 // with more, they are no factors
	var hits []hit
	for _, rows := range t.groups((*row).isResult, inGroup) {
		var keys []string
		values := map[string][]string{} // of a key, for each row
		for k, w := range rows {
			for _, p := range w.parts {
				if p.key != "" && values[p.key] == nil && len(keys) < mostKeys {
					keys, values[p.key] = append(keys, p.key), make([]string, len(rows))
				}
				if values[p.key] != nil {
					values[p.key][k] = p.value
				}
			}
		}
		done := map[string]bool{}
		for k, a := range keys {
			h := hit{so: "Which of them causes a difference cannot be said."}
			for _, b := range keys[k+1:] {
				if with, pairs := together(rows, values[a], values[b]); with != nil && !done[b] {
					h.rows, done[b] = with, true
					h.sum = append(h.sum, a+" and "+b+": "+strings.Join(pairs[:min(len(pairs), mostSums)], ", "))
				}
			}
			if h.rows != nil {
				hits = append(hits, h)
			}
		}
	}
	return hits
}

// together are the pairs of values of two keys and their first rows, if neither changes without the other.
func together(rows []*row, a, b []string) (with []*row, pairs []string) {
	known, ofA, ofB := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for k, w := range rows {
		if pair := a[k] + " and " + b[k]; a[k] != "" && b[k] != "" && !known[pair] {
			with, pairs = append(with, w), append(pairs, pair)
			known[pair], ofA[a[k]], ofB[b[k]] = true, true, true
		}
	}
	if len(pairs) < 3 || len(ofA) < len(pairs) || len(ofB) < len(pairs) {
		return nil, nil
	}
	return with, pairs
}

// noQuiet looks for results under noise whose configuration has no quiet result, where others have one.
func (t *table) noQuiet() []hit {
	var hits []hit
	for _, pair := range [][2]string{{"noisy", "quiet"}, {"noise on", "noise off"}, {"stress on", "stress off"},
		{"loaded", "idle"}} {
		quiet, groups := map[string]bool{}, map[string]bool{}
		for _, w := range t.rows {
			if rest, is := without(w.parts, isOne(pair[1])); is && w.isResult() {
				quiet[unordered(rest)+w.figure], groups[w.figure] = true, true
			}
		}
		lacks := func(w *row) bool {
			rest, is := without(w.parts, isOne(pair[0]))
			return is && w.isResult() && groups[w.figure] && !quiet[unordered(rest)+w.figure]
		}
		for _, rows := range t.groups(lacks, byMetric) {
			h := hit{rows: rows, so: "What the noise does to these cannot be told from what their conditions do."}
			for _, w := range rows {
				rest, _ := without(w.parts, isOne(pair[0]))
				line := fmt.Sprintf("%s, but not %s: %s", pair[0], pair[1], list(rest))
				h.sum = append(drop(h.sum, []string{line}), line)
			}
			for _, o := range t.rows {
				if o.group == rows[0].group && o.has(pair[0]) && o.has(pair[1]) {
					h.sum = append(h.sum, fmt.Sprintf("line %d only says %s: %s %s", o.line, o.metric, t.printed(o),
						o.qualifier))
				}
			}
			hits = append(hits, h)
		}
	}
	return hits
}
