package figures

import (
	"slices"
	"strings"

	"isolane.dev/isolane/results"
)

// Disturbance is the factor that disturbs, nil for none.
func (s *Summary) Disturbance() *results.Factor {
	for i, f := range s.Session.Factors {
		if f.Quiet != "" {
			return &s.Session.Factors[i]
		}
	}
	return nil
}

// Main is the first factor that does not disturb, nil for none: charts show it by hue.
func (s *Summary) Main() *results.Factor {
	for i, f := range s.Session.Factors {
		if f.Quiet == "" {
			return &s.Session.Factors[i]
		}
	}
	return nil
}

// sameBut says whether two cells differ at most in one factor.
func sameBut(factor *results.Factor, a, b Cell, factors []results.Factor) bool {
	for _, f := range factors {
		if f.Name != factor.Name && a.Levels[f.Name] != b.Levels[f.Name] {
			return false
		}
	}
	return true
}

// look says how charts show a cell.
func (s *Summary) look(c results.Cell) Look {
	l := Look{Hue: -1}
	if d := s.Disturbance(); d != nil {
		l.Pale = c.Levels[d.Name] == d.Quiet
	}
	main := s.Main()
	if main == nil {
		return l
	}
	level := c.Levels[main.Name]
	l.Hue = slices.IndexFunc(main.Levels, func(l results.Level) bool { return l.Name == level })
	for _, base := range s.Session.Cells {
		for _, f := range s.Session.Factors {
			if base.Baseline && f.Quiet == "" && f.Name != main.Name && c.Levels[f.Name] != base.Levels[f.Name] {
				l.Dashed = true
			}
		}
	}
	return l
}

// Look is how charts show a cell.
type Look struct {
	Hue    int  // the level of the main factor; -1: it has none
	Pale   bool // nothing disturbs it
	Dashed bool // another factor than these two differs from the baseline
}

// Disturbed names the level at which the factor disturbs, or all that do.
func Disturbed(f *results.Factor) string {
	var all []string
	for _, l := range f.Levels {
		if l.Name != f.Quiet {
			all = append(all, l.Name)
		}
	}
	return strings.Join(all, ", ")
}

// Others names the factors that do not disturb, as cells do: "placement-path".
func (s *Summary) Others() string {
	var all []string
	for _, f := range s.Session.Factors {
		if f.Quiet == "" {
			all = append(all, f.Name)
		}
	}
	return strings.Join(all, "-")
}

// floating is the cell with the main factor as in the baseline and the same disturbance: of the same further
// levels, if there is one. Nil: there is none.
func (s *Summary) floating(c Cell) *Cell {
	main, base := s.Main(), s.Cell(s.Baseline)
	if main == nil || base == nil {
		return nil
	}
	var found *Cell
	for i := range s.Cells {
		o := &s.Cells[i]
		if o.Levels[main.Name] != base.Levels[main.Name] || o.Pale != c.Pale {
			continue
		}
		if same := sameBut(main, c, *o, s.Session.Factors); same || found == nil {
			found = o
			if same {
				break
			}
		}
	}
	return found
}

// costs pair each disturbed cell with its own quiet one.
func (s *Summary) costs() []cost {
	noise := s.Disturbance()
	if noise == nil {
		return nil
	}
	var all []cost
	for _, n := range s.Cells {
		k := slices.IndexFunc(s.Cells, func(c Cell) bool {
			return c.Pale && sameBut(noise, c, n,
				s.Session.Factors)
		})
		if n.Pale || k < 0 {
			continue
		}
		var levels []string
		for _, f := range s.Session.Factors {
			if l := n.Levels[f.Name]; f.Quiet == "" && l != "" {
				levels = append(levels, l)
			}
		}
		c := cost{Name: strings.Join(levels, "-"), Quiet: s.Cells[k], Noisy: n}
		for _, m := range s.Primary() {
			c.Ratios = append(c.Ratios, relate(n.Figure(m), c.Quiet.Figure(m), blockValue))
		}
		all = append(all, c)
	}
	return all
}
