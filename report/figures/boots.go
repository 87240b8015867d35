package figures

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/report/evidence"
	"isolane.dev/isolane/report/format"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
)

// bootsOf returns the boots in which the used runs of a cell were made, by their index in the session.
func bootsOf(used []results.Run) []int {
	found := map[int]bool{}
	for _, r := range used {
		found[r.Boot] = true
	}
	return slices.Sorted(maps.Keys(found))
}

// apart reports whether two cells differ in what was booted, and were measured in different boots. For a
// session that only went on after a reboot it returns false: each block is of one boot.
func (s *Summary) apart(a, b *Cell) bool {
	return slices.ContainsFunc(a.Boots, func(n int) bool { return !slices.Contains(b.Boots, n) }) &&
		slices.ContainsFunc(s.Session.Factors, func(f results.Factor) bool {
			return f.PerBoot && a.Levels[f.Name] != b.Levels[f.Name]
		})
}

// elsewhere returns the cells that were measured in other boots than the baseline.
func (s *Summary) elsewhere() (all []*Cell) {
	for c := range s.cells() {
		if base := s.Cell(s.Baseline); base != nil && s.apart(c, base) {
			all = append(all, c)
		}
	}
	return all
}

// verdictBoots is the least number of boots of each level for an interval between boots, and so for a
// verdict.
const verdictBoots = 4

// relate compares a metric of two cells block by block. If they are of different boots it compares the boots
// instead, unpaired: one boot is one sample, whatever its number of blocks, and as the levels alternated,
// drift affects them alike. For display it adds the ratios of the first boots of each, of the second and so
// on.
func (s *Summary) relate(own, base *Cell, metric, statistic string) Comparison {
	a, b := own.figure(metric), base.figure(metric)
	if !s.apart(own, base) {
		return relate(a, b, statistic)
	}
	a, b = s.byBoot(a), s.byBoot(b)
	blocks, x, y := sides(a, b, statistic)
	c := Comparison{Comparison: stats.CompareUnpaired(x, y, confidence), Blocks: blocks, Boots: true}
	unlost(&c.Comparison)
	c.N = len(x)
	return c
}

// byBoot returns a figure with one block per boot: the geometric means of its blocks.
func (s *Summary) byBoot(f Figure) Figure {
	var boots Figure
	for number := range max(1, s.Session.Scenario.Boots) {
		mean := func(statistic string) float64 {
			sum, n := 0.0, 0.0
			for _, b := range f.Blocks {
				if v := b.Of(statistic); s.Session.Scenario.Share(b.Block) == number && v > 0 {
					sum, n = sum+math.Log(v), n+1
				}
			}
			return math.Exp(sum / n) // NaN for none
		}
		boots.Blocks = append(boots.Blocks, Block{Block: number + 1, Value: mean(""), Mean: mean("mean"),
			P90: math.NaN(), P99: mean("p99"), P999: mean("p99.9")})
	}
	return boots
}

// BootNote says which figures compare different boots; "" for none.
func (s *Summary) BootNote() string {
	var parts []string
	for _, f := range s.Session.Factors {
		if !f.PerBoot {
			continue
		}
		boots := map[string][]int{}
		for c := range s.cells() {
			boots[c.Levels[f.Name]] = append(boots[c.Levels[f.Name]], c.Boots...)
		}
		var levels []string
		for _, l := range f.Levels {
			slices.Sort(boots[l.Name])
			if n := len(slices.Compact(boots[l.Name])); n > 0 {
				levels = append(levels, l.Name+" "+quantity.Count(n, "boot"))
			}
		}
		parts = append(parts, fmt.Sprintf("%s is changed by a boot (%s)", f.Name, strings.Join(levels, ", ")))
	}
	if len(s.elsewhere()) == 0 {
		return ""
	}
	note := strings.Join(parts, ", ") + ": ratios between its levels are over boots, each with the geometric " +
		"mean of its blocks"
	if s.Session.Scenario.Boots < verdictBoots {
		note += fmt.Sprintf("; with fewer than %d boots a level they have no interval, and the difference between "+
			"two boots, whatever they are, is part of them", verdictBoots)
	}
	return note + "."
}

const fewBoots = "few boots"

// ofBoots: a level that was booted once is one sample, however many runs it has.
func (s *Summary) ofBoots() Guard {
	g := Guard{"boots", Kept, fmt.Sprintf("%d of each level, in turns", s.Session.Scenario.Boots)}
	var cells []string
	for _, c := range s.elsewhere() {
		cells = append(cells, c.Name)
		for _, f := range c.Figures {
			if f.Verdict != "" && f.Ratio.Confidence == 0 {
				f.Verdict, f.Lowered = stats.Inconclusive, fewBoots
			}
		}
	}
	also := strings.Join(evidence.BootsDiffer(s.Session), ", ")
	switch {
	case len(cells) > 0 && s.Session.Scenario.Boots < verdictBoots:
		g = Guard{fewBoots, Failed, fmt.Sprintf("%s: of other boots than the baseline, and a verdict needs %d "+
			"boots a level at least", strings.Join(cells, ", "), verdictBoots)}
	case len(cells) == 0 && also != "":
		return Guard{"reboot", Failed, "since the machine was rebooted within the session differ: " + also}
	case len(cells) == 0 && s.Session.Scenario.Boots < 2:
		return Guard{}
	}
	if also != "" {
		g.State, g.Text = Failed, g.Text+"; between the boots also differ: "+also
	}
	g.Text += s.ownEffects()
	return g
}

// ownEffects says how far boots of the same level differ: what a boot does by itself.
func (s *Summary) ownEffects() (text string) {
	for _, m := range s.Primary() {
		most, in := 0.0, ""
		for _, c := range s.Cells {
			values := s.byBoot(c.Figure(m)).Values("")
			if len(values) < 2 {
				continue
			}
			if apart := slices.Max(values)/slices.Min(values) - 1; apart > most && !math.IsInf(apart, 1) {
				most, in = apart, c.Name
			}
		}
		if in != "" {
			text += fmt.Sprintf("; boots of one level are up to %s apart in %s (%s)", format.Percent(most),
				m.Value(), in)
		}
	}
	return text
}

// Unfinished says why a session lacks some of its runs; "" if it has all.
func (s *Summary) Unfinished() string {
	if s.Session.Complete {
		return ""
	}
	why := "CUT OFF (it was ended without a word, as by SIGKILL or a reboot, or it runs still)"
	if stop := s.Session.Stopped; stop != nil {
		why = map[bool]string{true: "INTERRUPTED", false: "FAILED"}[stop.Interrupted] + " (" + stop.Why + ")"
	}
	var waiting []string
	for _, a := range s.Session.Awaits {
		waiting = append(waiting, fmt.Sprintf("%s for %s", quantity.Count(len(a.Cells), "cell"), a))
	}
	if len(waiting) > 0 && s.Session.Stopped == nil {
		why = "Waits for another boot (" + strings.Join(waiting, "; ") + ")"
	}
	return fmt.Sprintf("%s: %d of %d runs were made. What follows is of those.", why,
		s.Session.Made(), s.Planned)
}
