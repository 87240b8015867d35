// Package answers sets the figures of a published table beside those of sessions: what holds on this machine,
// what does not, and what cannot be seen and why. The scenarios say which cell and metric answer which row.
package answers

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"isolane.dev/isolane/claims"
	"isolane.dev/isolane/claims/rules"
	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/report/figures"
	"isolane.dev/isolane/report/format"
	"isolane.dev/isolane/report/metric"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
)

// Page is a published table, and what sessions say about it.
type Page struct {
	Table     claims.Report
	Scenarios []scenario.Scenario
	Sessions  []figures.Summary // one per scenario
}

// Stored returns the page of the table in a file, with the sessions in these directories.
func Stored(ctx context.Context, table string, of []scenario.Scenario, dirs []string) (Page, error) {
	read, err := rules.AuditFile(ctx, table)
	p := Page{Table: read, Scenarios: of}
	for _, dir := range dirs {
		s, wrong := results.Read(dir)
		if wrong == nil {
			wrong = p.Add(dir, s)
		}
		err = cmp.Or(err, wrong)
	}
	return p, err
}

// Add adds the session of a directory. It must be the only one of its scenario, because a second one would
// answer nothing.
func (p *Page) Add(dir string, s results.Session) error {
	for _, other := range p.Sessions {
		if other.Session.Scenario.Name == s.Scenario.Name {
			return fmt.Errorf("%s: a second session of scenario %s, beside that of %s: expected one of each", dir,
				s.Scenario.Name, begun(other))
		}
	}
	sum, err := figures.Summarize(s)
	if err == nil {
		p.Sessions = append(p.Sessions, sum)
	}
	return err
}

func begun(s figures.Summary) string { return s.Session.Started.UTC().Format("2006-01-02 15:04 UTC") }

// answer is what is said about some rows of the table: one figure, or the two ends of a range.
type answer struct {
	rows                     []claims.Figure
	published, ours, verdict string
	failed                   []string // the guards that leave it open
}

// answers returns the answers of a scenario to one source.
func (p Page) answers(s scenario.Scenario, from scenario.PublishedSource) (all []answer) {
	sum := p.session(s)
	for _, f := range from.Figures {
		if rows := p.rows(f.Row); len(rows) > 0 {
			a := compared(s, from, sum, f)
			a.rows, a.published = rows, printed(rows)
			all = append(all, a)
		}
	}
	for _, u := range from.Unanswered {
		if rows := p.rows(u.Row); len(rows) > 0 {
			all = append(all, answer{rows: rows, published: printed(rows), ours: format.None,
				verdict: "cannot be seen: " + u.Because})
		}
	}
	slices.SortStableFunc(all, func(a, b answer) int { return cmp.Compare(a.rows[0].Line, b.rows[0].Line) })
	return all
}

// rows returns the rows that a scenario names: SCENARIO:LINE of the source, or SCENARIO:LINE:METRIC; the line
// * is any.
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

// session returns the session of a scenario; nil for none.
func (p Page) session(s scenario.Scenario) *figures.Summary {
	k := slices.IndexFunc(p.Sessions, func(sum figures.Summary) bool {
		return sum.Session.Scenario.Name == s.Metadata.Name
	})
	if k < 0 {
		return nil
	}
	return &p.Sessions[k]
}

// printed returns what was published, with the conditions.
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

// compared returns our figure, and what it says about the published one.
func compared(s scenario.Scenario, from scenario.PublishedSource, sum *figures.Summary,
	f scenario.PublishedFigure) answer {
	none := func(why string) answer { return answer{ours: format.None, verdict: why} }
	if sum == nil {
		return none("not asked here: no session of " + s.Metadata.Name)
	}
	own, base := sum.Cell(f.Cell), sum.Cell(cmp.Or(f.Against, sum.Baseline))
	asked := sum.Metric(f.Metric)
	switch {
	case own == nil:
		return none(absent(sum, from, f.Cell))
	case base == nil:
		return none(absent(sum, from, cmp.Or(f.Against, sum.Baseline)))
	case asked == nil:
		return none("not asked here: the session has no " + f.Metric)
	}
	m := *asked
	if why := cmp.Or(own.Missing(m), base.Missing(m)); why != "" {
		return none("no figure: " + why)
	}
	alone := f.Percent == 0 || own == base && f.Value > 0
	emulated := func(c *figures.Cell) bool { return strings.HasPrefix(said(sum, c, m, "accelerator"), "tcg") }
	switch {
	case alone && emulated(own), emulated(own) != emulated(base):
		return none("cannot be seen: software emulation took the place of a machine")
	case alone:
		return absolute(sum, own, m, f)
	case own == base:
		return answer{ours: "100%", verdict: "by definition: the others are in percent of it"}
	}
	return relative(sum, own, base, m, f)
}

// absent says why a session lacks a cell.
func absent(sum *figures.Summary, from scenario.PublishedSource, cell string) string {
	for _, e := range sum.Session.Scenario.Excluded {
		if e.Cell == cell {
			return fmt.Sprintf("cannot be seen: %s: %s", e.Cell, e.Because)
		}
	}
	for _, u := range from.Unanswered {
		if u.Cell == cell {
			return fmt.Sprintf("cannot be seen: the session has no cell %s: %s", cell, u.Because)
		}
	}
	return "not asked here: the session has no cell " + cell
}

const fewBlocks = "open: too few blocks for a verdict"

// relative compares a ratio of cells, block by block.
func relative(sum *figures.Summary, own, base *figures.Cell, m metric.Metric,
	f scenario.PublishedFigure) answer {
	r := sum.Ratio(own, base, m, results.Published{Qualifier: f.Qualifier}.Qualified(results.Average))
	if !r.Known() {
		return answer{ours: format.None, verdict: "no figure: no block has both cells"}
	}
	lo, hi, interval := r.Spread()
	a := answer{ours: figures.Bound(format.Percent(r.Estimate), own.Figure(m), base.Figure(m)) + " " +
		r.SpreadWords()}
	switch {
	case !interval || !sum.Verdicts:
		a.verdict = fewBlocks
	case a.opened(sum, m, own, base):
	default:
		a.verdict = judged(lo, hi, f.Percent/100, f, m, own.Figure(m), base.Figure(m))
	}
	return a
}

// absolute compares figures of two machines, with the range of our blocks if there is one.
func absolute(sum *figures.Summary, c *figures.Cell, m metric.Metric, f scenario.PublishedFigure) answer {
	v, ok := c.Statistic(m, f.Statistic)
	if !ok {
		return answer{ours: format.None, verdict: "no figure: the sample is too small for " + f.Statistic}
	}
	lo, hi := v, v
	for _, b := range c.Figure(m).Blocks {
		if x := b.Of(f.Statistic); !math.IsNaN(x) {
			lo, hi = min(lo, x), max(hi, x)
		}
	}
	a := answer{ours: c.Figure(m).Bounded(m.Unit.Full(v))}
	if lo < hi {
		a.ours += fmt.Sprintf(" (blocks: %s to %s)", m.Unit.Full(lo), m.Unit.Full(hi))
	}
	switch {
	case !sum.Verdicts:
		a.verdict = fewBlocks
	case f.Statistic == "max":
		a.verdict = "open: a maximum grows with the time measured"
	case f.Statistic == "min":
		a.verdict = "open: a minimum falls with the time measured"
	case a.opened(sum, m, c, &figures.Cell{}):
	default:
		a.verdict = judged(lo, hi, f.Value, f, m, c.Figure(m), figures.Figure{}) + ", absolute"
	}
	return a
}

// opened reports whether a figure, or a ratio of two, is open whatever its value: its load differed from
// theirs, or a guard failed. Limits are left to judged, which handles bounds.
func (a *answer) opened(sum *figures.Summary, m metric.Metric, own, base *figures.Cell) bool {
	f, other := own.Figure(m), base.Figure(m)
	guards := slices.Concat(f.Doubts, other.Doubts)
	if base.Baseline && !strings.HasPrefix(f.Lowered, "at least: ") {
		guards = append(guards, f.Lowered)
	}
	for _, guard := range guards {
		if guard != "" && guard != f.Limit && guard != other.Limit && !slices.Contains(a.failed, guard) {
			a.failed = append(a.failed, guard)
		}
	}
	load := said(sum, own, m, "scale")
	_, load, _ = strings.Cut(load, ": ")
	ours, theirs, _ := strings.Cut(load, " for ")
	switch {
	case ours != theirs:
		a.verdict = "open: another load than theirs: " + load
	case base.Name != "" && !sum.SameLoad(*own, *base):
		a.verdict = "open: another load than of " + base.Name
	case len(a.failed) > 0:
		a.verdict = "open: a guard failed: " + strings.Join(a.failed, ", ")
	default:
		return false
	}
	return true
}

// said returns a fact of the program that measured a metric, or a part of a mean, in a cell; "" for none.
func said(sum *figures.Summary, c *figures.Cell, m metric.Metric, fact string) string {
	parts := append(slices.Clone(m.MeanOf), m.Name)
	for _, r := range sum.Session.Runs {
		for _, one := range r.Measured {
			is := func(name string) bool {
				_, value := one.Values[name]
				_, samples := one.Samples[name]
				return value || samples
			}
			if r.Cell == c.Name && r.Used() && one.Facts[fact] != "" && slices.ContainsFunc(parts, is) {
				return one.Facts[fact]
			}
		}
	}
	return ""
}

// judged says where our figure, from lo to hi, lies relative to a published one. Only a range within the
// margin at which a difference starts to matter counts as the same, so a wide range does not. A ratio is a
// bound if one of its two cells was at a limit; if both were, it bounds nothing.
func judged(lo, hi, published float64, f scenario.PublishedFigure, m metric.Metric,
	own, base figures.Figure) string {
	was := results.Published{Qualifier: f.Qualifier}
	off := published * rounding(f)
	if was.Qualified(results.About) {
		off = max(off, published*about)
	}
	least, most := published-off, published+off
	same := lo >= least/(1+m.Margin.Size) && hi <= most*(1+m.Margin.Size)
	above, below := !same && lo > most, !same && hi < least
	better, worse := above, below
	if m.Margin.Goal == stats.LowerIsBetter {
		better, worse = below, above
	}
	mean := f.Statistic == "mean" || was.Qualified(results.Average)
	switch {
	case mean && !worse && own.Merged != nil && own.Merged.Lost > 0:
		return fmt.Sprintf("open: a mean leaves out the %s that were lost", format.Count(own.Merged.Lost))
	case own.Limit != "" && base.Limit != "":
		return fmt.Sprintf("open: a ratio of two %s bounds bounds nothing, as %s in both cells",
			map[bool]string{true: "upper", false: "lower"}[own.AtMost], own.Why())
	case own.Limit != "" && !better:
		return fmt.Sprintf("open: ours is %s this, as %s", own.Side(), own.Why())
	case base.Limit != "" && !worse:
		return fmt.Sprintf("open: ours is %s this, as %s in what it is compared with", own.Over(base).Side(),
			base.Why())
	case better && was.Qualified(results.Limit):
		return "held, and more: theirs was at a limit"
	case better:
		return "better"
	case worse:
		return "not held"
	case same:
		return "held"
	}
	return "open: too wide to tell"
}

// about is how far off a figure may be that was read from a chart or rounded by its author.
const about = 0.05

// rounding returns half a unit of the last printed digit, as a share of the figure.
func rounding(f scenario.PublishedFigure) float64 {
	v := cmp.Or(f.Percent, f.Value)
	_, decimals, _ := strings.Cut(strconv.FormatFloat(v, 'f', -1, 64), ".")
	return 0.5 * math.Pow(10, -float64(len(decimals))) / v
}
