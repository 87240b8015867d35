package figures

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/results"
)

// bootsOf are the boots in which the used runs of a cell were made, by their places in the session.
func bootsOf(used []results.Run) []int {
	found := map[int]bool{}
	for _, r := range used {
		found[r.Boot] = true
	}
	return slices.Sorted(maps.Keys(found))
}

// elsewhere says whether a cell was measured in other boots than the baseline. Of a session that only went on
// after a reboot this is not so: each block is of one boot.
func (s *Summary) elsewhere(c *Cell) bool {
	base := s.Cell(s.Baseline)
	if base == nil {
		return false
	}
	return slices.ContainsFunc(c.Boots, func(b int) bool { return !slices.Contains(base.Boots, b) }) &&
		slices.ContainsFunc(s.Session.Factors, func(f results.Factor) bool {
			return f.PerBoot && c.Levels[f.Name] != base.Levels[f.Name]
		})
}

// BootNote says at the figures which of them were changed by a boot, "" for none.
func (s *Summary) BootNote() string {
	var parts []string
	for _, f := range s.Session.Factors {
		if !f.PerBoot {
			continue
		}
		boots := map[string][]int{}
		for i := range s.Cells {
			c := &s.Cells[i]
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
	if !slices.ContainsFunc(s.Cells, func(c Cell) bool { return s.elsewhere(&c) }) {
		return ""
	}
	return strings.Join(parts, ", ") + ": the difference between two boots, whatever they are, is part of a " +
		"ratio between them, and their runs were not side by side."
}

// BootLines say what was booted, of a session that went on after a reboot.
func (s *Summary) BootLines() []string {
	var all []string
	for i, e := range s.Session.Boots {
		all = append(all, fmt.Sprintf("boot %d: kernel %s, command line %s", i+1, e.Kernel, e.Cmdline))
	}
	return all
}

// byBoot: a level that was booted once is one sample, however many its runs are.
func (s *Summary) byBoot() Guard {
	g := Guard{Name: "one boot a level"}
	var cells []string
	for i := range s.Cells {
		c := &s.Cells[i]
		if !s.elsewhere(c) {
			continue
		}
		cells = append(cells, c.Name)
		for _, f := range c.Figures {
			f.lower("another boot")
		}
	}
	also := strings.Join(s.alsoDiffer(), ", ")
	switch {
	case len(cells) > 0 && also != "":
		also = "; between the boots also differ: " + also
	case len(cells) == 0 && also != "":
		return Guard{"reboot", Failed, "since the machine was rebooted within the session differ: " + also}
	case len(cells) == 0:
		return Guard{}
	}
	g.State, g.Text = Failed, strings.Join(cells, ", ")+": of other boots than the baseline"+also
	return g
}

// environments are those of all boots.
func (s *Summary) environments() []results.Environment {
	if len(s.Session.Boots) == 0 {
		return []results.Environment{s.Session.Environment}
	}
	return s.Session.Boots
}

// alsoDiffer are the conditions, beside kernel and command line, that are not the same in all boots. Memory
// is left out: what a kernel takes for itself varies.
func (s *Summary) alsoDiffer() []string {
	var all []string
	first := Conditions(s.Session.Environment)
	for _, e := range s.environments() {
		now := Conditions(e)
		for name := range now {
			if first[name] != now[name] && !slices.Contains([]string{"kernel", "boot", "memory"}, name) {
				all = append(all, fmt.Sprintf("%s (%s, then %s)", name, cmp.Or(first[name], "none"),
					cmp.Or(now[name], "none")))
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Conditions are those of an environment, by their names for a reader. The command line and the versions have
// parts of their own.
func Conditions(e results.Environment) map[string]string {
	return map[string]string{"kernel": e.Kernel, "CPU model": e.CPUModel, "CPUs online": e.Online.String(),
		"clock source": e.Clocksource, "idle driver": e.IdleDriver, "idle governor": e.IdleGov, "boot": e.BootID,
		"hostname": e.Hostname, "memory": quantity.Bytes(e.MemoryBytes).String(),
		"hypervisor": map[bool]string{true: "yes", false: "not seen"}[e.Hypervisor]}
}

// Unfinished says why a session has not all of its runs, "" where it has.
func (s *Summary) Unfinished() string {
	if s.Session.Complete {
		return ""
	}
	why := "Interrupted"
	var waiting []string
	for _, a := range s.Session.Awaits {
		waiting = append(waiting, fmt.Sprintf("%s for %s", quantity.Count(len(a.Cells), "cell"), a.Boot))
	}
	if len(waiting) > 0 {
		why = "Waits for another boot (" + strings.Join(waiting, "; ") + ")"
	}
	return fmt.Sprintf("%s: %d of %d runs were made. What follows is of those.", why,
		len(s.Session.Runs)-s.Again, s.Planned)
}
