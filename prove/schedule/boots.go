package schedule

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/results"
)

// AwaitsError says that cells of a session are measured in another boot.
type AwaitsError struct {
	Dir    string // of the results; "": there are none, because no cell can be measured in this boot
	Cells  int    // of the session
	Awaits []results.Await
}

func (e *AwaitsError) Error() string {
	var parts []string
	waiting := 0
	for _, a := range e.Awaits {
		waiting += len(a.Cells)
		parts = append(parts, fmt.Sprintf("%d for %s", len(a.Cells), a))
	}
	return fmt.Sprintf("%d of %d cells wait for another boot: %s", waiting, e.Cells, strings.Join(parts, "; "))
}

// Hint says how the session goes on. The shell after the reboot is in another directory.
func (e *AwaitsError) Hint() string {
	if e.Dir == "" {
		return "boot so, then the same again"
	}
	dir, _ := filepath.Abs(e.Dir)
	return "boot so, then: isolane prove --resume " + cmp.Or(dir, e.Dir)
}

// Boots are a scenario's factors that only a boot changes, and what is booted now. Cells that need the same
// boot are a group.
type Boots struct {
	first   results.Environment // in which the session began
	Number  int                 // of this boot, among the session's
	factors []bootFactor
}

type bootFactor struct {
	factor.PerBoot
	name       string
	began, now string // the levels that were booted when the session began, and are now
}

// NewBoots returns the Boots of a session that began in the environment first, for the environment now.
func NewBoots(s scenario.Scenario, first, now results.Environment) (Boots, error) {
	b := Boots{first: first}
	for _, f := range s.Spec.Factors {
		p, ok := f.Factor.(factor.PerBoot)
		if !ok {
			continue
		}
		began, err := p.Booted(first)
		if err == nil {
			var level string
			if level, err = p.Booted(now); err == nil {
				b.factors = append(b.factors, bootFactor{p, f.Name, began, level})
				continue
			}
		}
		return b, fmt.Errorf("factor %s: %w", f.Name, err)
	}
	return b, nil
}

// wants returns the level that has to be booted for a cell. A cell that asks for nothing, or has no level, is
// measured with what the session began with.
func (f bootFactor) wants(c results.Cell) string {
	if level := c.Levels[f.name]; level != "" && level != f.First() {
		return level
	}
	return f.began
}

// Here reports whether a cell can be measured in this boot.
func (b Boots) Here(c results.Cell) bool {
	return !slices.ContainsFunc(b.factors, func(f bootFactor) bool { return f.wants(c) != f.now })
}

// booted returns the group of what is booted now.
func (b Boots) booted() string {
	var levels []string
	for _, f := range b.factors {
		levels = append(levels, f.now)
	}
	return strings.Join(levels, " ")
}

// group describes what has to be booted for a cell.
func (b Boots) group(c results.Cell) string {
	var levels []string
	for _, f := range b.factors {
		levels = append(levels, f.wants(c))
	}
	return strings.Join(levels, " ")
}

// want says what to boot for a cell.
func (b Boots) want(c results.Cell) string {
	var asked, as []string
	for _, f := range b.factors {
		if level := f.wants(c); level != "" && level != f.First() {
			asked = append(asked, f.Want(level))
		} else {
			as = append(as, f.name+" as when the session began")
		}
	}
	if len(asked) == 0 {
		return fmt.Sprintf("what the session began with (kernel %s, command line %q)", b.first.Kernel,
			b.first.Cmdline)
	}
	return strings.Join(append(asked, as...), ", ")
}

// Awaits returns the cells of the slots, and of searches, that wait for another boot, by what to boot. What
// has to be booted most often comes first, because its turn comes first.
func (b Boots) Awaits(s results.Session, later []Slot) []results.Await {
	var all []results.Await
	for _, q := range s.Searches {
		for _, d := range q.Cells {
			if !d.Settled && !b.Here(d.Cells[0]) {
				later = append(later, Slot{Cell: d.Cells[0].Name})
			}
		}
	}
	shares := map[string]map[int]bool{} // by cell
	for _, k := range later {
		if shares[k.Cell] == nil {
			shares[k.Cell] = map[int]bool{}
		}
		shares[k.Cell][k.share] = true
	}
	for _, c := range results.EveryCell(&s) {
		boots := len(shares[c.Name])
		if boots == 0 {
			continue
		}
		delete(shares, c.Name) // a search may have it too
		want := "the same again"
		if !b.Here(*c) {
			want = b.want(*c)
		}
		k := slices.IndexFunc(all, func(a results.Await) bool { return a.Boot == want })
		if k < 0 {
			k, all = len(all), append(all, results.Await{Boot: want})
		}
		all[k].Cells = append(all[k].Cells, c.Name)
		all[k].Boots = max(all[k].Boots, boots)
	}
	slices.SortStableFunc(all, func(a, b results.Await) int { return b.Boots - a.Boots })
	return all
}

// TakeUp continues a stored session in this boot. What it has of the cells that come now must have been
// measured with the same kernel and command line.
func (b Boots) TakeUp(dir string, s *results.Session, now results.Environment) error {
	rebooted := false
	cells := results.EveryCell(s)
	for _, r := range results.EveryRun(s) {
		k := slices.IndexFunc(cells, func(c *results.Cell) bool { return c.Name == r.Cell })
		if k < 0 || !b.Here(*cells[k]) {
			continue
		}
		was := s.BootOf(r)
		rebooted = rebooted || was.BootID != now.BootID
		if r.Dropped != Cut && (was.Kernel != now.Kernel || was.Online != now.Online ||
			!sameLine(was.Cmdline, now.Cmdline)) {
			return fmt.Errorf("%s: %s was measured with another kernel, command line or CPUs: boot kernel %s with %q "+
				"and CPUs %s to go on", dir, r.Cell, was.Kernel, was.Cmdline, was.Online)
		}
	}
	const note = "The machine was rebooted within the session; each block was measured in one boot."
	if rebooted && s.Scenario.Boots < 2 && !slices.Contains(s.Notes, note) {
		s.Notes = append(s.Notes, note)
	}
	return nil
}

// sameLine compares command lines, ignoring where the kernel lies.
func sameLine(a, b string) bool {
	words := func(line string) []string {
		return slices.DeleteFunc(strings.Fields(line), func(w string) bool {
			return strings.HasPrefix(w, "BOOT_IMAGE=") || strings.HasPrefix(w, "initrd=")
		})
	}
	return slices.Equal(words(a), words(b))
}

// Alike returns further notes, on levels that are the same in this session.
func (b Boots) Alike(there []string) []string {
	var all []string
	for _, f := range b.factors {
		note := fmt.Sprintf("%s: the session began with %s, so %s is the same here.", f.name, f.began, f.First())
		if f.First() != "" && f.began != f.First() && !slices.Contains(there, note) {
			all = append(all, note)
		}
	}
	return all
}

// PlaceOf returns the index of this boot among those of the session.
func PlaceOf(s *results.Session, now results.Environment) int {
	if now.BootID == s.Environment.BootID {
		return 0
	}
	if len(s.Boots) == 0 {
		s.Boots = []results.Environment{s.Environment}
	}
	k := slices.IndexFunc(s.Boots, func(e results.Environment) bool { return e.BootID == now.BootID })
	if k < 0 {
		k, s.Boots = len(s.Boots), append(s.Boots, now)
	}
	return k
}
