package figures

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/report/format"
	"isolane.dev/isolane/report/metric"
	"isolane.dev/isolane/report/objective"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
)

// Guard is a classic error of measuring, and whether this session is free of it.
type Guard struct {
	Name  string     `json:"name"`
	State GuardState `json:"state"`
	Text  string     `json:"text"` // how, or where it is not
}

// GuardState says what is known about a guard.
type GuardState string

// The states of a guard. One that failed lowers verdicts, which then name it.
const (
	Kept    GuardState = "kept"
	Failed  GuardState = "failed"
	Unknown GuardState = "not known"
)

// guard looks for the errors, and lowers the verdicts that they affect.
func (s *Summary) guard() []Guard {
	if s.Used == 0 {
		return nil
	}
	all := []Guard{s.omission(), s.supported()}
	for _, check := range s.Metrics {
		if check.Guards != "" {
			all = s.addCheck(all, check)
		}
	}
	all = append(all, s.segments(), s.lateClients(), s.survivors(), s.crowded(), s.frequency(), s.heat(),
		s.caches(), s.asleep(), s.clock(), s.drift(), s.several(), s.confounded(), s.ofBoots(), s.early())
	return slices.DeleteFunc(all, func(g Guard) bool { return g.Name == "" })
}

// fail records where a guard fails, after earlier findings.
func (g *Guard) fail(text string) {
	if g.State == Failed {
		text = g.Text + "; " + text
	}
	g.State, g.Text = Failed, text
}

// lower makes a verdict inconclusive, and says why.
func (f *Figure) lower(why string) {
	if f.Verdict != "" && f.Verdict != stats.Inconclusive {
		f.Verdict, f.Lowered = stats.Inconclusive, why
	}
}

// doubt records a guard that failed in the cell of the figure itself.
func (f *Figure) doubt(guard string) {
	f.Doubts = append(f.Doubts, guard)
	f.lower(guard)
}

// touched calls use for the figures that a failed guard affects in a cell: those of the named metric and of
// the means that it is part of; with "" all. If the baseline lacks the figure, the ratios of all cells are
// affected.
func (s *Summary) touched(guard, name string, c *Cell, use func(metric.Metric, *Figure)) {
	for other := range s.cells() {
		if other.Name != c.Name && !c.Baseline {
			continue
		}
		for _, m := range s.Metrics {
			of := name == "" || m.Name == name || slices.Contains(m.MeanOf, name)
			if f := other.Figures[m.Name]; f != nil && of {
				if other.Name == c.Name {
					f.Doubts = append(f.Doubts, guard)
				}
				use(m, f)
			}
		}
	}
}

// addCheck handles a check whose limit was exceeded. A check on what limits a better figure makes it a lower
// bound; every other check lowers the verdict. If the limit is 0, because something must not happen at all,
// one run is enough.
func (s *Summary) addCheck(all []Guard, check metric.Metric) []Guard {
	k := slices.IndexFunc(all, func(g Guard) bool { return g.Name == check.Noun })
	if k < 0 {
		k, all = len(all), append(all, Guard{Name: check.Noun, State: Unknown, Text: "no run says, or too few"})
	}
	// Rates of two halves differ by chance more than medians do, so the whole 95% interval of their trend has to
	// be on one side of 0.
	of := s.Metric(check.Guards)
	byChance := check.Trend && of != nil && !of.Sampled
	g := &all[k]
	for c := range s.cells() {
		f := c.Figure(check)
		lo, hi, interval := f.Runs("", true)
		if len(f.Blocks) == 0 || byChance && !interval {
			continue
		}
		if g.State == Unknown {
			g.State, g.Text = Kept, fmt.Sprintf("within %s in each cell", check.Unit.Full(check.Limit))
		}
		value := f.Centre
		if check.Limit == 0 {
			value = slices.Max(append(f.Values(""), value))
		}
		if math.Abs(value) <= check.Limit || byChance && lo <= 0 && hi >= 0 {
			continue
		}
		text := fmt.Sprintf("%s in %s: %s, allowed %s", check.Guards, c.Name, check.Unit.Full(value),
			check.Unit.Full(check.Limit))
		g.fail(text)
		s.touched(check.Noun, check.Guards, c, func(m metric.Metric, f *Figure) {
			higher := m.Margin.Goal == stats.HigherIsBetter && !check.Trend && check.Limit > 0
			if higher && f == c.Figures[m.Name] {
				f.Limit = check.Noun
			}
			if higher && f.Verdict == stats.Better && !c.Baseline {
				f.Lowered = "at least: " + check.Noun
				return
			}
			f.lower(check.Noun)
		})
	}
	return all
}

// omission: a closed loop waits for each reply, and so misses what a stall would have delayed. So each cell
// needs a figure of the same quantity from an open loop.
func (s *Summary) omission() Guard {
	g := Guard{Name: omitted}
	lacks := map[string][]string{} // cells, by metric
	for c := range s.cells() {
		for _, m := range s.Metrics {
			switch closed := m.Loop == results.Closed || m.Sampled && m.Loop == ""; {
			case len(c.Figure(m).Blocks) == 0:
			case m.Loop == results.Open:
				g.State, g.Text = Kept, m.Name+" counts from the intended time; closed loops are service time"
			case closed && !s.onTime(*c, m.Quantity):
				s.touched(omitted, m.Name, c, func(_ metric.Metric, f *Figure) { f.lower(omitted) })
				lacks[m.Name] = append(lacks[m.Name], c.Name)
			}
		}
	}
	switch {
	case len(lacks) == 0 && g.State == "":
		return Guard{}
	case g.State == "":
		g.fail(missesStalls + "in an open loop")
	case len(lacks) > 0:
		var found []string
		for _, name := range slices.Sorted(maps.Keys(lacks)) {
			found = append(found, fmt.Sprintf("%s in %s", name, strings.Join(lacks[name], ", ")))
		}
		g.State, g.Text = Failed, "no open loop has a figure beside "+strings.Join(found, "; ")
	}
	return g
}

// onTime reports whether an open loop has a figure of a quantity in a cell.
func (s *Summary) onTime(c Cell, of string) bool {
	return slices.ContainsFunc(s.Metrics, func(m metric.Metric) bool {
		return m.Loop == results.Open && m.Quantity == of && len(c.Figure(m).Blocks) > 0
	})
}

// Has reports whether some cell has a figure of the metric.
func (s *Summary) Has(m metric.Metric) bool {
	return slices.ContainsFunc(s.Cells, func(c Cell) bool { return len(c.Figure(m).Blocks) > 0 })
}

const omitted = "coordinated omission"

const missesStalls = "each probe waits for its reply before it sends again, and so misses stalls: add one "

// supported: percentiles come from merged histograms, as far as the sample supports them.
func (s *Summary) supported() (g Guard) {
	for _, m := range s.Primary() {
		if !m.Sampled {
			continue
		}
		if g.Name == "" {
			g = Guard{"too short", Kept, "percentiles of merged histograms, as far as each sample goes"}
		}
		var short []string
		for _, c := range s.Sampled(m) {
			if math.IsNaN(c.Figure(m).Merged.Quantile(0.99)) {
				short = append(short, c.Name)
			}
		}
		if len(short) > 0 {
			g.fail(fmt.Sprintf("no P99 of %s in %s: it needs %s samples", m.Name, strings.Join(short, ", "),
				format.Count(stats.SamplesFor(0.99))))
		}
	}
	return g
}

// drift: blocks are random, and each is compared with its own baseline, so drift of the machine cancels. A
// reader should still know of it.
func (s *Summary) drift() Guard {
	base := s.Cell(s.Baseline)
	if base == nil {
		return Guard{}
	}
	g := Guard{"order and drift", Kept, fmt.Sprintf("random order in each block, seed %d",
		s.Session.Scenario.Seed)}
	for _, m := range s.Primary() {
		f := base.Figure(m)
		if n := len(f.Blocks); n >= objective.LeastRuns {
			early, late := median(f.Blocks[:n/2]), median(f.Blocks[n-n/2:])
			g.Text += fmt.Sprintf("; %s of the baseline: %s of its first half in the second", s.Distinct(m).Value(),
				format.Percent(late/early))
		}
	}
	return g
}

// several says in what the cells of the aims differ. If that is more than one factor, no single one is the
// cause.
func (s *Summary) several() Guard {
	aims, base := s.Session.Scenario.Aims, s.Cell(s.Baseline)
	if aims == nil || base == nil || s.Cell(aims.Cell) == nil {
		return Guard{}
	}
	var differs []string
	own := s.Cell(aims.Cell)
	for _, f := range s.Session.Factors {
		if own.Levels[f.Name] != base.Levels[f.Name] {
			differs = append(differs, f.Name)
		}
	}
	if len(differs) < 2 {
		return Guard{"several things at once", Kept, "the cell of the aims differs from the baseline in one factor"}
	}
	return Guard{"several things at once", Failed,
		fmt.Sprintf("the cell of the aims differs from the baseline in %s: "+
			"no single one of them is the cause", strings.Join(differs, ", "))}
}

// early: who looks before the end, and stops when it looks good, finds what is not there.
func (s *Summary) early() Guard {
	if s.Session.Complete {
		return Guard{"looked at before the end", Kept, quantity.Count(s.Session.Scenario.Blocks,
			"block") + ", as planned"}
	}
	for c := range s.cells() {
		for _, f := range c.Figures {
			f.doubt("not complete")
		}
	}
	return Guard{"looked at before the end", Failed, fmt.Sprintf("%d of %d runs were made",
		s.Session.Made(), s.Planned)}
}
