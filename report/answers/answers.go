// Package answers sets the figures of a published table beside those of sessions: what is held on this
// machine, what is not, and what cannot be seen and why. Which cell and metric answer which row stands in the
// scenarios.
package answers

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"isolane.dev/isolane/claims"
	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/report/figures"
	"isolane.dev/isolane/report/format"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
)

// Page is a published table, and what sessions say of it.
type Page struct {
	Table     claims.Report
	Scenarios []scenario.Scenario
	Sessions  []figures.Summary
}

// answer is what is said of some rows of the table: one figure, or the two ends of a range.
type answer struct {
	rows                     []claims.Figure
	published, ours, verdict string
}

// answers are those that a source of a scenario gives.
func (p Page) answers(s scenario.Scenario, from scenario.PublishedSource) (all []answer) {
	sum := p.session(s)
	for _, f := range from.Figures {
		if rows := p.rows(f.Row); len(rows) > 0 {
			ours, verdict := compared(s, sum, f)
			all = append(all, answer{rows, printed(rows), ours, verdict})
		}
	}
	for _, u := range from.Unanswered {
		if rows := p.rows(u.Row); len(rows) > 0 {
			all = append(all, answer{rows, printed(rows), format.None, "cannot be seen: " + u.Because})
		}
	}
	slices.SortStableFunc(all, func(a, b answer) int { return cmp.Compare(a.rows[0].Line, b.rows[0].Line) })
	return all
}

// rows are those that a scenario names: SCENARIO:LINE of the source, or SCENARIO:LINE:METRIC; the line * is
// any.
func (p Page) rows(name string) (found []claims.Figure) {
	parts := strings.Split(name+":", ":")
	if parts[0] == "" {
		return nil
	}
	for _, f := range p.Table.Table {
		if f.Scenario == parts[0] && (parts[1] == "*" || f.At == parts[1]) &&
			(parts[2] == "" || f.Metric == parts[2]) {
			found = append(found, f)
		}
	}
	return found
}

// session is that of a scenario, nil for none.
func (p Page) session(s scenario.Scenario) *figures.Summary {
	k := slices.IndexFunc(p.Sessions, func(sum figures.Summary) bool {
		return sum.Session.Scenario.Name == s.Metadata.Name
	})
	if k < 0 {
		return nil
	}
	return &p.Sessions[k]
}

// printed is what was published, with the conditions.
func printed(rows []claims.Figure) string {
	first := rows[0]
	if slices.ContainsFunc(rows, func(f claims.Figure) bool { return f.Config != first.Config }) {
		return fmt.Sprintf("%s of %d rows", first.Metric, len(rows))
	}
	text := first.Value
	if last := rows[len(rows)-1]; last.Value != first.Value {
		text += " to " + last.Value
	}
	switch first.Qualifier {
	case "approx":
		text = "about " + text
	case "limit":
		text += " (limit)"
	}
	return fmt.Sprintf("%s: %s %s (%s)", first.Metric, text, first.Unit, first.Config)
}

// compared is our figure, and what it says of the published one.
func compared(s scenario.Scenario, sum *figures.Summary, f scenario.PublishedFigure) (ours, verdict string) {
	if sum == nil {
		return format.None, "not asked here: no session of " + s.Metadata.Name
	}
	own, base := sum.Cell(f.Cell), sum.Cell(cmp.Or(f.Against, sum.Baseline))
	asked := sum.Metric(f.Metric)
	switch {
	case own == nil || base == nil:
		return format.None, absent(sum, f)
	case asked == nil:
		return format.None, "not asked here: the session has no " + f.Metric
	}
	m := *asked
	if why := cmp.Or(m.Missing(*own), m.Missing(*base)); why != "" {
		return format.None, "no figure: " + why
	}
	switch {
	case f.Percent == 0 || own == base && f.Value > 0:
		return absolute(sum, *own, m, f)
	case own == base:
		return "100%", "by definition: the others are in percent of it"
	}
	return relative(sum, own, base, m, f)
}

// absent says why a session has not the cell of a figure, or not the one that it is compared with.
func absent(sum *figures.Summary, f scenario.PublishedFigure) string {
	for _, e := range sum.Session.Scenario.Excluded {
		if e.Cell == f.Cell || e.Cell == f.Against {
			return fmt.Sprintf("cannot be seen: %s: %s", e.Cell, e.Because)
		}
	}
	return "not asked here: the session has no cell " + f.Cell
}

// relative compares a ratio of cells, block by block.
func relative(sum *figures.Summary, own, base *figures.Cell, m figures.Metric,
	f scenario.PublishedFigure) (ours, verdict string) {
	r := sum.Ratio(own, base, m, results.Published{Qualifier: f.Qualifier}.Qualified(results.Average))
	if !r.Known() {
		return format.None, "no figure: no block has both cells"
	}
	lo, hi, interval := r.Spread()
	ours = figures.Bound(format.Percent(r.Estimate), own.Figure(m), base.Figure(m)) + " " + r.SpreadWords()
	if !interval || !sum.Verdicts {
		return ours, "open: too few blocks for a verdict"
	}
	return ours, judged(lo, hi, f.Percent/100, f, m, own.Figure(m), base.Figure(m))
}

// absolute compares figures of two machines, with the range of our blocks where there is one.
func absolute(sum *figures.Summary, c figures.Cell, m figures.Metric,
	f scenario.PublishedFigure) (ours, verdict string) {
	v, ok := c.Statistic(m, f.Statistic)
	if !ok {
		return format.None, "no figure: the sample is too small for " + f.Statistic
	}
	lo, hi := v, v
	for _, b := range c.Figure(m).Blocks {
		if x := b.Of(f.Statistic); !math.IsNaN(x) {
			lo, hi = min(lo, x), max(hi, x)
		}
	}
	ours = c.Figure(m).Bounded(m.Unit.Full(v))
	if lo < hi {
		ours += fmt.Sprintf(" (blocks: %s to %s)", m.Unit.Full(lo), m.Unit.Full(hi))
	}
	if !sum.Verdicts {
		return ours, "open: too few blocks for a verdict"
	}
	switch f.Statistic {
	case "max":
		return ours, "open: a maximum grows with the time measured"
	case "min":
		return ours, "open: a minimum falls with the time measured"
	}
	if load := scaled(sum, c, m); load != "" && m.Margin.Goal == stats.LowerIsBetter {
		return ours, "open: another load than theirs: " + load
	}
	return ours, judged(lo, hi, f.Value, f, m, c.Figure(m), figures.Figure{}) + ", absolute"
}

// scaled says what a probe asked whose load was scaled to the client's CPUs, "" where it was not: fewer
// connections wait less.
func scaled(sum *figures.Summary, c figures.Cell, m figures.Metric) string {
	for _, r := range sum.Session.Runs {
		for _, one := range r.Measured {
			if _, has := one.Values[m.Name]; has && r.Cell == c.Name && r.Used() {
				_, load, _ := strings.Cut(one.Facts["scale"], ": ")
				if ours, theirs, _ := strings.Cut(load, " for "); ours != theirs {
					return load
				}
			}
		}
	}
	return ""
}

// judged says where ours, from lo to hi, lies beside a published figure. A ratio is a bound where one of its
// two cells was at a limit; where both were it bounds nothing.
func judged(lo, hi, published float64, f scenario.PublishedFigure, m figures.Metric,
	own, base figures.Figure) string {
	was := results.Published{Qualifier: f.Qualifier}
	off := published * rounding(f)
	if was.Qualified(results.About) {
		off = max(off, published*about)
	}
	above, below := lo > published+off, hi < published-off
	better, worse := above, below
	if m.Margin.Goal == stats.LowerIsBetter {
		better, worse = below, above
	}
	verdict := "held"
	mean := f.Statistic == "mean" || was.Qualified(results.Average)
	switch {
	case mean && !worse && own.Merged != nil && own.Merged.Lost > 0:
		return fmt.Sprintf("open: a mean leaves out the %s that were lost", format.Count(own.Merged.Lost))
	case own.Limit != "" && base.Limit != "":
		return fmt.Sprintf("open: a ratio of two lower bounds bounds nothing, as %s was at its limit in both cells",
			own.Limit)
	case below && own.Limit != "" && base.Limit == "":
		return "open: ours is at least this, as " + own.Limit + " was at its limit"
	case above && own.Limit == "" && base.Limit != "":
		return "open: ours is at most this, as " + base.Limit + " was at its limit in what it is compared with"
	case better && was.Qualified(results.Limit):
		verdict = "held, and more: theirs was at a limit"
	case better:
		verdict = "better"
	case worse:
		verdict = "not held"
	}
	return verdict
}

// about is how far a figure may be off that was read from a chart or rounded by its author.
const about = 0.05

// rounding is half a unit of the last digit that is written, as a share of the figure.
func rounding(f scenario.PublishedFigure) float64 {
	v := cmp.Or(f.Percent, f.Value)
	_, decimals, _ := strings.Cut(strconv.FormatFloat(v, 'f', -1, 64), ".")
	return 0.5 * math.Pow(10, -float64(len(decimals))) / v
}
