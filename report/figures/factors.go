package figures

import (
	"cmp"
	"slices"
	"strings"

	"isolane.dev/isolane/results"
)

// Disturbance returns the factor that disturbs; nil for none.
func (s *Summary) Disturbance() *results.Factor {
	return first(s.Session.Factors, func(f results.Factor) bool { return f.Quiet != "" })
}

// Main returns the factor that charts show by hue: the first that changes the application, else the first
// that does not disturb; nil for none.
func (s *Summary) Main() *results.Factor { return s.MainBut("") }

// MainBut is Main, ignoring one factor.
func (s *Summary) MainBut(name string) *results.Factor {
	calm := func(f results.Factor) bool { return f.Quiet == "" && f.Name != name }
	inside := first(s.Session.Factors, func(f results.Factor) bool { return calm(f) && !f.Outside })
	return cmp.Or(inside, first(s.Session.Factors, calm))
}

// sameBut reports whether two cells differ in at most one factor.
func (s *Summary) sameBut(factor *results.Factor, a, b Cell) bool {
	return !slices.ContainsFunc(s.Session.Factors, func(f results.Factor) bool {
		return f.Name != factor.Name && a.Levels[f.Name] != b.Levels[f.Name]
	})
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
	Dashed bool // it differs from the baseline in a further factor
}

// Disturbed names the level at which the factor disturbs, or all such levels.
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

// standard returns the cell with the same disturbance (or none), the same load and the same boot that is
// otherwise like the baseline; nil if there is none.
func (s *Summary) standard(c Cell, quiet bool) *Cell {
	base := s.Cell(s.Baseline)
	if base == nil {
		return nil
	}
	return first(s.Cells, func(o Cell) bool {
		return !slices.ContainsFunc(s.Session.Factors, func(f results.Factor) bool {
			want := base.Levels[f.Name]
			if f.Outside || f.PerBoot || f.Quiet != "" {
				want = c.Levels[f.Name]
			}
			if quiet && f.Name == s.Disturbance().Name {
				want = f.Quiet
			}
			return o.Levels[f.Name] != want
		})
	})
}

// others names a cell by the factors that do not disturb: "lane-express".
func (s *Summary) others(c Cell) string {
	var levels []string
	for _, f := range s.Session.Factors {
		if l := c.Levels[f.Name]; f.Quiet == "" && l != "" {
			levels = append(levels, l)
		}
	}
	return strings.Join(levels, "-")
}
