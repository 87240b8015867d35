package figures

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/report/format"
	"isolane.dev/isolane/report/metric"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
)

// What the machine itself may do to figures: its frequency, its heat, its idle states, its clock, its
// settings.

// maxFrequencyVariation is how much the frequency of a measured CPU may vary between the runs of a cell: the
// coefficient of variation. That two CPUs differ in each run is normal.
const maxFrequencyVariation = 0.02

func (s *Summary) frequency() Guard {
	g := Guard{"frequency", Unknown, "the kernel does not say (no cpufreq)"}
	for c := range s.cells() {
		most := c.Machine.Frequency
		if math.IsNaN(most) {
			continue
		}
		if g.State == Unknown {
			g.State, g.Text = Kept, fmt.Sprintf("within %g%% between the runs of each cell", 100*maxFrequencyVariation)
		}
		if most > maxFrequencyVariation {
			g.fail(fmt.Sprintf("it varies by %s between the runs of %s: fix the governor", format.Percent(most),
				c.Name))
			s.touched("frequency", "", c, func(_ metric.Metric, f *Figure) { f.lower("frequency") })
		}
	}
	return g
}

// quick reports whether a clock is read without leaving the processor.
func quick(source string) bool {
	return slices.Contains([]string{"tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "xen",
		"riscv_clocksource", "timebase", "stp", "tod"}, source)
}

// clock: reading a clock from a device takes microseconds, and such a clock moves in steps.
func (s *Summary) clock() Guard {
	source := s.Session.Environment.Clocksource
	for _, e := range s.Session.Environments() {
		if e.Clocksource != "" && !quick(e.Clocksource) {
			source = e.Clocksource
		}
	}
	switch {
	case source == "":
		return Guard{"clock", Unknown, "the kernel does not say"}
	case quick(source):
		return Guard{"clock", Kept, "CLOCK_MONOTONIC from " + source}
	default:
		for c := range s.cells() {
			for name, f := range c.Figures {
				if m := s.Metric(name); m != nil && m.Sampled {
					f.doubt("clock")
				}
			}
		}
		return Guard{"clock", Failed, "CLOCK_MONOTONIC comes from " + source +
			", which is slow to read: boot with another"}
	}
}

// heat: a CPU that its heat slows down shows the effect of earlier runs.
func (s *Summary) heat() Guard {
	var found []string
	for c := range s.cells() {
		if c.Machine.Throttled == 0 {
			continue
		}
		found = append(found, fmt.Sprintf("%s (%s)", c.Name, quantity.Count(c.Machine.Throttled, "run")))
		s.touched("heat", "", c, func(_ metric.Metric, f *Figure) { f.lower("heat") })
	}
	if len(found) == 0 {
		return Guard{}
	}
	return Guard{"heat", Failed, "measured CPUs were slowed down by it in " + strings.Join(found, ", ") +
		": cool the machine, or fix a lower frequency"}
}

// maxOthers is which part of the application's CPUs other programs may take in a run, as much as for steal.
const maxOthers = 0.05

// crowded: other people's programs disturb what runs where they may run too, but not what is in a lane, whose
// runs are void if they come there. A busy host makes a baseline bad, and so everything else better than it
// is. What a scenario's own commands have started does not count.
func (s *Summary) crowded() Guard {
	const name = "programs of others"
	g := Guard{name, Unknown, "no run says how long others ran on the application's CPUs"}
	for c := range s.cells() {
		all := c.Machine.Others
		if len(all) == 0 || c.Commands {
			continue
		}
		if g.State == Unknown {
			g.State, g.Text = Kept, fmt.Sprintf("at most %g%% of the application's CPUs in nine of ten runs of "+
				"each cell", 100*maxOthers)
		}
		n := len(slices.DeleteFunc(slices.Clone(all), func(share float64) bool { return share <= maxOthers }))
		if float64(n) <= maxVoid*float64(len(all)) {
			continue
		}
		g.fail(fmt.Sprintf("they took up to %s of the application's CPUs in %s, and more than %g%% in %d of %s: "+
			"measure where nothing else runs", format.Percent(all[len(all)-1]), c.Name, 100*maxOthers, n,
			quantity.Count(len(all), "run")))
		in := map[bool]stats.Verdict{false: stats.Better, true: stats.Worse}[c.Baseline] // in spite of others
		s.touched(name, "", c, func(_ metric.Metric, f *Figure) {
			if f.Verdict != in {
				f.lower(name)
			}
		})
	}
	return g
}

// asleep: neighbours keep CPUs from sleeping deeply, so a disturbed cell may answer sooner than a quiet one
// for that reason alone. A lane that keeps them awake does so in its quiet cell too.
func (s *Summary) asleep() Guard {
	const name = "idle states"
	base, noise := s.Cell(s.Baseline), s.Disturbance()
	if base == nil {
		return Guard{}
	}
	if !slices.ContainsFunc(s.Session.Runs, func(r results.Run) bool {
		return slices.ContainsFunc(r.Witness.CPUs, func(cpu results.CPU) bool { return cpu.IdleExits > 0 })
	}) {
		return Guard{name, Unknown, "no run says how long the application's CPUs took to leave them"}
	}
	g := Guard{name, Kept, fmt.Sprintf("leaving them takes %s in %s, as their driver says",
		nanoseconds(base.Machine.IdleExit), base.Name)}
	for c := range s.cells() {
		if noise == nil || c.Levels[noise.Name] == noise.Quiet {
			continue
		}
		quiet := first(s.Cells, func(o Cell) bool { return o.Pale && s.sameBut(noise, o, *c) })
		if quiet == nil {
			quiet = base
		}
		with, without := quiet.Machine.IdleExit, c.Machine.IdleExit
		for _, m := range s.Ordered() {
			f := c.Figures[m.Name]
			if f == nil || !m.Sampled || !(with-without > m.Metric.Margin*base.Figure(m).Centre) {
				continue
			}
			g.fail(fmt.Sprintf("CPUs of %s are kept awake, those of %s take %s to leave idle states: hold them in "+
				"all cells to compare %s", c.Name, quiet.Name, nanoseconds(with), m.Name))
			if f.Doubts = append(f.Doubts, name); f.Verdict == stats.Better {
				f.lower(name)
			}
		}
	}
	return g
}

func nanoseconds(v float64) string { return format.UnitOf(results.TimeUnit).Full(v) }
