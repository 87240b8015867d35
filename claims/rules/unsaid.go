package rules

import (
	"fmt"
	"slices"
	"strings"

	"isolane.dev/isolane/claims/role"
	"isolane.dev/isolane/claims/row"
	"isolane.dev/isolane/quantity"
)

// lack is something that figures need beside them and do not have.
type lack struct {
	rule string
	of   func(w *row.Row) bool          // the figures
	by   func(w *row.Row) string        // key; figures with the same key make one finding
	has  func(w *row.Row) bool          // whether a figure has what it needs; nil: never
	sum  func(rows []*row.Row) []string // what the table has, and what it lacks
	so   string
}

func bySource(w *row.Row) string     { return w.Source }
func inGroup(w *row.Row) string      { return w.Group }
func byMetric(w *row.Row) string     { return w.Figure }
func byConditions(w *row.Row) string { return w.Conditions }
func byFigure(w *row.Row) string     { return w.Conditions + w.Figure }

// byStem is the same for all statistics of a figure, and for a share of it.
func byStem(w *row.Row) string {
	stem, _, _ := strings.Cut(w.Stem, "_rel_")
	return w.Group + "\x00" + stem
}

// byUnchanged is byStem of the figure that has changed: rtt for rtt_reduction.
func byUnchanged(w *row.Row) string {
	of := *w
	of.Stem = strings.Join(row.Drop(strings.Split(w.Stem, "_"), strings.Fields(row.ChangeWords)), "_")
	return byStem(&of)
}

// beside returns a test whether a figure has another one beside it, with the same key, that `is` accepts.
func (t *table) beside(key func(*row.Row) string, is func(*row.Row) bool) func(*row.Row) bool {
	known := map[string]bool{}
	for _, w := range t.Rows {
		if is(w) {
			known[key(w)] = true
		}
	}
	return func(w *row.Row) bool { return known[key(w)] }
}

func each(line func(w *row.Row) string) func([]*row.Row) []string {
	return func(rows []*row.Row) (lines []string) {
		for _, w := range rows[:min(len(rows), mostSums)] {
			lines = append(lines, line(w))
		}
		return lines
	}
}

func (t *table) lacks() []lack { return append(t.lacksOfResults(), t.lacksOfConditions()...) }

func (t *table) lacksOfResults() []lack {
	isTail := t.beside(byStem, func(w *row.Row) bool { return w.Stat.Kind != "mean" && w.IsResult() })
	hasTail := t.beside(byUnchanged, func(w *row.Row) bool {
		return w.Stat.Kind != "mean" && w.IsResult() && !w.IsChange()
	})
	isRelative := func(w *row.Row) bool { return slices.Index(w.Words, "rel") > 0 && w.Unit.Dim == row.Share }
	return []lack{
		{rule: "no-absolute", of: isRelative, by: byMetric,
			has: t.beside(byStem, func(w *row.Row) bool { return w.IsResult() && w.Unit.Dim != row.Share }),
			sum: func(rows []*row.Row) []string {
				return []string{quantity.Count(len(rows), "figure") + " in percent of a baseline, none in a unit"}
			},
			so: "How much it was cannot be said, nor compared with others."},
		{rule: "mean-only", of: func(w *row.Row) bool {
			return w.Stat.Kind == "mean" && w.IsLatency() && w.IsResult() &&
				!confidence.MatchString(strings.Join(w.Words, " "))
		}, by: byUnchanged,
			has: func(w *row.Row) bool {
				// "99th percentile" has no stem.
				isNamed := func(o *row.Row) bool { return o.Stem == "" && o.Stat.Rank > 0 && o.Unit.Dim == row.Duration }
				return isTail(w) || w.IsChange() && hasTail(w) || slices.ContainsFunc(t.Of[w], isNamed)
			},
			sum: func(rows []*row.Row) []string {
				lines := []string{quantity.Count(len(rows), "mean") + "; no percentile, no maximum"}
				c := t.Of[rows[0]]
				if t.Find(c, "samples", nil) == nil && t.Find(c, "sampled", nil) == nil {
					lines[0] += ", no number of samples"
				}
				if run := t.Find(c, "run", nil); run != nil && run.IsInTable() {
					lines = append(lines, fmt.Sprintf("line %d: %s %s", run.Line, run.Metric, t.Printed(run)))
				}
				return lines
			},
			so: "A mean hides the tail: how late the slow ones were cannot be said."},
		{rule: "bare-maximum", of: func(w *row.Row) bool {
			return w.Stat.Kind == "max" && w.IsLatency() && w.IsResult() && w.Unit.Dim == row.Duration
		}, by: byStem, has: func(w *row.Row) bool { return t.unbounded(w) == "" },
			sum: func(rows []*row.Row) []string {
				return []string{quantity.Count(len(rows), "maximum") + ": " + t.unbounded(rows[0])}
			},
			so: "A maximum grows with the number of samples: these cannot be compared with any other."},
		{rule: "only-range", of: func(w *row.Row) bool {
			low, high := t.pair(w)
			return w.IsResult() && w.Unit.Dim != row.Share && low != nil && high != nil && t.Base(low).Mid > 0 &&
				t.Base(high).Mid > 1.1*t.Base(low).Mid
		}, by: byFigure, has: t.beside(byFigure,
			func(w *row.Row) bool { return w.IsResult() && w.Measured() }),
			sum: func(rows []*row.Row) []string {
				low, high := t.pair(rows[0])
				ratio := row.Number(t.Base(high).Mid / t.Base(low).Mid)
				return []string{t.Printed(high) + " ÷ " + t.Printed(low) + " = " + ratio}
			},
			so: "Where in between it is, the table does not say."},
	}
}

func (t *table) lacksOfConditions() []lack {
	isNoise := row.IsOne("noise", "stress", "neighbours", "noisy neighbours", "background load")
	isResult := t.beside(inGroup, (*row.Row).IsResult)
	isRate := func(w *row.Row) bool {
		return slices.Contains([]row.Dimension{row.Rate, row.SizeRate, row.BitRate, row.Share}, w.Unit.Dim)
	}
	return []lack{
		{rule: "noise-rate", of: func(w *row.Row) bool {
			_, is := row.Without(w.Parts, isNoise)
			return is && w.Unit.Dim > row.ID
		}, by: byConditions, has: t.beside(byConditions, isRate),
			sum: each(func(w *row.Row) string {
				if w.Unit.Dim == row.Duration {
					return w.Metric + " " + t.Printed(w) + ": it changes in this time"
				}
				return w.Metric + " " + t.Printed(w) + ": no rate"
			}),
			so: "How much noise there was depends on the moment and on the machine: two runs do not have the same."},
		{rule: "no-result", of: func(w *row.Row) bool {
			return w.Unit.Dim == row.Count && isResult(w) && !w.IsSetup() && len(w.Parts) > 0 &&
				!w.Has(strings.Fields(role.Counted+" for")...) &&
				!slices.ContainsFunc(w.General, func(s string) bool { return s == "each" || s == "all" || s == "both" })
		}, by: byConditions, has: func(w *row.Row) bool {
			return slices.ContainsFunc(t.Rows, func(o *row.Row) bool {
				return o.Group == w.Group && o.IsResult() && row.Covers(w.Parts, o.Parts)
			})
		}, sum: each(func(w *row.Row) string { return "only " + w.Metric + " " + t.Printed(w) }),
			so: "Other configurations have results, this one has none."},
		{rule: "no-variant", of: func(w *row.Row) bool {
			return w.IsSetup() && w.Unit.Dim == row.Text && t.variant(w) != ""
		}, by: byMetric, sum: each(t.variant),
			so: "It is part of the setup; what it does is not in the table."},
		{rule: "ambiguous-unit", of: func(w *row.Row) bool {
			return w.Unit.Dim == row.Bits && strings.HasSuffix(w.UnitText, "b") &&
				w.Has("size", "file", "object", "memory", "ram")
		}, by: byConditions, sum: each(func(w *row.Row) string {
			return fmt.Sprintf("as bits: %s = %s bytes; as bytes: %s %sB = %s bytes", t.Printed(w),
				row.Number(t.Base(w).Mid), row.Thousands(w.Text), strings.TrimSuffix(w.UnitText, "b"),
				row.Number(8*t.Base(w).Mid))
		}), so: "Sizes are in bytes as a rule: the unit may be a misprint, and what depends on it is 8 times off."},
		{rule: "wall-clock", of: func(w *row.Row) bool {
			return strings.Contains(w.Metric, "("+w.Text+"=CLOCK_REALTIME") || w.Text == "CLOCK_REALTIME"
		}, by: byConditions, sum: each(func(w *row.Row) string { return w.Metric + " is " + w.Text }),
			so: "NTP and people set this clock, and each step becomes a latency; CLOCK_MONOTONIC is not set."},
	}
}

// lacking returns the figures that lack what a rule requires.
func (t *table) lacking(rule string) []hit {
	var hits []hit
	for _, l := range t.lacks() {
		if l.rule != rule {
			continue
		}
		lacks := func(w *row.Row) bool { return l.of(w) && (l.has == nil || !l.has(w)) }
		for _, rows := range t.Groups(lacks, l.by) {
			hits = append(hits, hit{rows: rows, sum: l.sum(rows), so: l.so})
		}
	}
	return hits
}

// pair returns the two ends of the range of which a row is one end.
func (t *table) pair(w *row.Row) (low, high *row.Row) {
	for _, o := range t.Of[w] {
		switch same := slices.Equal(o.Words, w.Words) && strings.HasPrefix(w.Qualifier, "range_"); {
		case same && o.Qualifier == "range_low":
			low = o
		case same && o.Qualifier == "range_high":
			high = o
		}
	}
	return low, high
}

// unbounded says why the number of samples of a maximum is unknown, or "" if it is known.
func (t *table) unbounded(w *row.Row) string {
	c := t.Of[w]
	run, loops, interval := t.Find(c, "run", nil), t.Find(c, "loops", nil), t.Find(c, "interval", nil)
	isSaid := func(name string) bool {
		return t.Find(c, name, nil) != nil || slices.ContainsFunc(c, t.Roles[name].Fits)
	}
	switch {
	case run != nil && t.Base(run).Mid <= row.Year:
		return ""
	case loops != nil && interval != nil && t.Base(loops).Mid*t.Base(interval).Mid > row.Year:
		return fmt.Sprintf("%s × %s = %s is no duration of a run", t.Printed(loops), t.Printed(interval),
			row.Show(row.Duration, t.Base(loops).Mid*t.Base(interval).Mid))
	case !slices.ContainsFunc(strings.Fields("samples sampled transactions queries operations"), isSaid):
		return "no duration and no number of samples"
	default:
		return ""
	}
}

// variant finds a part of the setup whose name shares a word with a condition of the results, while each also
// has words that the other lacks, and that no result names: lib_fast beside "lib slow".
func (t *table) variant(w *row.Row) string {
	beside := ""
	for _, o := range t.Rows {
		if o.Source != w.Source || !o.IsResult() {
			continue
		}
		if len(row.Drop(w.Words, o.General)) == 0 {
			return ""
		}
		for _, p := range o.Parts {
			words := row.WordsOf(p.String())
			if mine := row.Drop(w.Words, words); len(mine) < len(w.Words) && len(row.Drop(words, w.Words)) > 0 {
				beside = p.String()
			}
		}
	}
	if beside == "" {
		return ""
	}
	return fmt.Sprintf("%s %s is listed; results name %s, none names %s", w.Metric, w.Text, beside, w.Metric)
}

// changesTogether finds two keys with three values or more whose values only come in fixed pairs.
func (t *table) changesTogether() []hit {
	const mostKeys = 20 // keys with more values are no factors
	var hits []hit
	for _, rows := range t.Groups((*row.Row).IsResult, inGroup) {
		var keys []string
		values := map[string][]string{} // of a key, for each row
		for k, w := range rows {
			for _, p := range w.Parts {
				if p.Key != "" && values[p.Key] == nil && len(keys) < mostKeys {
					keys, values[p.Key] = append(keys, p.Key), make([]string, len(rows))
				}
				if values[p.Key] != nil {
					values[p.Key][k] = p.Value
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

// together returns the pairs of values of two keys, with first rows, if neither changes without the other.
func together(rows []*row.Row, a, b []string) (with []*row.Row, pairs []string) {
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

// noQuiet finds results under noise whose configuration has no quiet result, although others have one.
func (t *table) noQuiet() []hit {
	var hits []hit
	for _, pair := range [][2]string{{"noisy", "quiet"}, {"noise on", "noise off"}, {"stress on", "stress off"},
		{"loaded", "idle"}} {
		quiet, groups := map[string]bool{}, map[string]bool{}
		for _, w := range t.Rows {
			if rest, is := row.Without(w.Parts, row.IsOne(pair[1])); is && w.IsResult() {
				quiet[row.Unordered(rest)+w.Figure], groups[w.Figure] = true, true
			}
		}
		lacks := func(w *row.Row) bool {
			rest, is := row.Without(w.Parts, row.IsOne(pair[0]))
			return is && w.IsResult() && groups[w.Figure] && !quiet[row.Unordered(rest)+w.Figure]
		}
		for _, rows := range t.Groups(lacks, byMetric) {
			h := hit{rows: rows, so: "What the noise does to these cannot be told from what their conditions do."}
			for _, w := range rows {
				rest, _ := row.Without(w.Parts, row.IsOne(pair[0]))
				line := fmt.Sprintf("%s, but not %s: %s", pair[0], pair[1], row.List(rest))
				h.sum = append(row.Drop(h.sum, []string{line}), line)
			}
			for _, o := range t.Rows {
				if o.Group == rows[0].Group && o.Has(pair[0]) && o.Has(pair[1]) {
					h.sum = append(h.sum, fmt.Sprintf("line %d only says %s: %s %s", o.Line, o.Metric, t.Printed(o),
						o.Qualifier))
				}
			}
			hits = append(hits, h)
		}
	}
	return hits
}
