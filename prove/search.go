package prove

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/prove/schedule"
	"isolane.dev/isolane/prove/search"
	"isolane.dev/isolane/prove/testbed"
	"isolane.dev/isolane/results"
)

// newSearches returns the searches of the mode, in those of their cells that were asked for.
func newSearches(s scenario.Scenario, mode scenario.Mode, asked []string) []results.Search {
	if mode.Searches == nil {
		return nil
	}
	var all []results.Search
	for _, q := range s.Spec.Searches {
		found := newSearch(s, q, *mode.Searches)
		for _, cell := range q.Cells {
			name, cells := s.Varied(q, cell)
			wanted := !byName(asked) ||
				slices.ContainsFunc(cells, func(c results.Cell) bool { return slices.Contains(asked, c.Name) })
			if wanted {
				found.Cells = append(found.Cells, results.Searched{Name: name, Cells: cells})
			}
		}
		all = append(all, found)
	}
	return all
}

func newSearch(s scenario.Scenario, q scenario.Search, t scenario.Trials) results.Search {
	each, sum, long := t.Trial.Duration(), t.Sum.Duration(), t.Long.Duration()
	found := results.Search{Name: q.Name, Kind: q.Kind, Window: results.Nanoseconds(each),
		Varied: q.Setting + " of " + q.Probe}
	if q.Setting == "rate" {
		found.Unit = "/s"
	}
	if q.Kind == results.Bounds {
		found.Goals = search.LossGoals(each, sum, long)
	} else {
		m, _ := s.MetricOf(q) // it was checked when read
		found.Metric, found.Goals = m.Name, search.Goals(q.Goal.Text(m), each, sum, long)
	}
	if q.Kind == results.Smallest {
		found.Varied, found.Points = q.Factor, levelsOf(s, q.Factor)
	} else {
		found.Points = search.Grid(q.From, q.To, float64(q.Width))
	}
	found.Limit = search.Limit(found)
	return found
}

// levelsOf returns the levels of a factor as numbers, the hardest (the lowest) last.
func levelsOf(s scenario.Scenario, name string) (points []float64) {
	for _, f := range s.Spec.Factors {
		for _, l := range f.Levels() {
			if v, err := strconv.ParseFloat(l.Name, 64); err == nil && f.Name == name {
				points = append(points, v)
			}
		}
	}
	slices.Sort(points)
	slices.Reverse(points)
	return slices.Compact(points)
}

// dropCells removes the cells from the searches that this machine cannot have.
func dropCells(s *results.Session, impossible map[string]error) {
	for i := range s.Searches {
		q := &s.Searches[i]
		for k := range q.Cells {
			q.Cells[k].Cells = slices.DeleteFunc(q.Cells[k].Cells, func(c results.Cell) bool {
				_, out := impossible[c.Name]
				return out
			})
		}
		q.Cells = slices.DeleteFunc(q.Cells, func(d results.Searched) bool { return len(d.Cells) == 0 })
	}
	s.Searches = slices.DeleteFunc(s.Searches, func(q results.Search) bool { return len(q.Cells) == 0 })
}

// within returns the search with only the points that a cell can have.
func within(q results.Search, d results.Searched) results.Search {
	if q.Kind == results.Smallest {
		q.Points = slices.DeleteFunc(slices.Clone(q.Points), func(p float64) bool {
			_, ok := cellAt(q, d, p)
			return !ok
		})
		q.Limit = search.Limit(q)
	}
	return q
}

// cellAt returns the cell for a point.
func cellAt(q results.Search, d results.Searched, point float64) (results.Cell, bool) {
	if q.Kind != results.Smallest {
		return d.Cells[0], true
	}
	k := slices.IndexFunc(d.Cells, func(c results.Cell) bool {
		v, err := strconv.ParseFloat(c.Levels[q.Varied], 64)
		return err == nil && v == point
	})
	if k < 0 {
		return results.Cell{}, false
	}
	return d.Cells[k], true
}

// turn returns the cell of the next trial: of the unsettled cells one with the fewest trials, so that drift
// affects all alike. Each round begins with another cell.
func turn(q results.Search, b schedule.Boots) (cell int, point float64, more bool) {
	made, least := 0, -1
	for _, d := range q.Cells {
		made += len(d.Trials)
	}
	n := len(q.Cells)
	for i := range n {
		k := (made/n + i) % n
		d := q.Cells[k]
		p, open := search.Next(within(q, d), d.Trials)
		if open && b.Here(d.Cells[0]) && (least < 0 || len(d.Trials) < len(q.Cells[least].Trials)) {
			least, point = k, p
		}
	}
	return least, point, least >= 0
}

// search makes the trials of all searches, and stores each one when it is made.
func (r *runner) search(ctx context.Context, o Options, s *results.Session) error {
	for i := range s.Searches {
		q := &s.Searches[i]
		for {
			k, point, more := turn(*q, r.boots)
			if !more {
				break
			}
			d := &q.Cells[k]
			if o.Progress != nil {
				o.Progress(Progress{Cell: d.Name, Search: q.Name, Done: len(d.Trials), Runs: q.Limit,
					Point: search.Name(*q, point), Left: r.searching(*s)})
			}
			t, err := r.try(ctx, *q, *d, point)
			if err != nil {
				return interrupted(ctx, err)
			}
			if len(d.Trials) == 0 {
				t.Dropped = search.WarmUp
			}
			d.Trials = append(d.Trials, t)
			d.Brackets = search.Judge(within(*q, *d), d.Trials)
			_, more = search.Next(within(*q, *d), d.Trials)
			d.Settled = !more
			if q.Kind != results.Smallest {
				d.Gap = search.GapOf(d.Brackets[0], d.Brackets[1])
			}
			s.Ended = time.Now()
			if err = results.Write(o.Dir, *s); err != nil {
				return err
			}
		}
	}
	s.Complete = len(s.Awaits) == 0
	return results.Write(o.Dir, *s)
}

// searching returns how long the searches may still take at most.
func (r *runner) searching(s results.Session) (left time.Duration) {
	for _, all := range s.Searches {
		for _, d := range all.Cells {
			q := within(all, d)
			point, more := search.Next(q, d.Trials)
			if !more || !r.boots.Here(d.Cells[0]) {
				continue
			}
			each := testbed.Around + time.Duration(q.Window)
			if spec, err := r.specOf(q); err == nil {
				if p, err := r.Scenario.Trial(spec, d.Cells[0], point, r.Kinds); err == nil {
					each += r.Mode.Conditions(p).Warmup
				}
			}
			left += time.Duration(q.Limit-len(d.Trials)) * each
		}
	}
	return left
}

// specOf returns the search as the scenario has it.
func (r *runner) specOf(q results.Search) (scenario.Search, error) {
	all := r.Scenario.Spec.Searches
	k := slices.IndexFunc(all, func(o scenario.Search) bool { return o.Name == q.Name })
	if k < 0 {
		return scenario.Search{}, fmt.Errorf("%w: the scenario has no search %q", ErrInput, q.Name)
	}
	return all[k], nil
}

// try makes one trial.
func (r *runner) try(ctx context.Context, q results.Search, d results.Searched, point float64) (results.Trial,
	error) {
	spec, err := r.specOf(q)
	c, ok := cellAt(q, d, point)
	if err != nil || !ok {
		return results.Trial{}, errors.Join(err, fmt.Errorf("search %s: no trial at %g in %s", q.Name, point,
			d.Name))
	}
	p, err := r.Scenario.Trial(spec, c, point, r.Kinds)
	if err != nil {
		return results.Trial{}, err
	}
	p = r.Loaded(p)
	r.Draw = fmt.Sprintf("trial %d of %s", len(d.Trials)+1, q.Name)
	run, err := r.runOnly(ctx, c, p, r.Mode.Try())
	t := results.Trial{Cell: c.Name, Point: point, Started: run.Started, Duration: run.Duration,
		Boot: r.boots.Number, Void: run.Void}
	if err == nil && len(run.Measured) > 0 {
		err = r.judge(&t, q, spec, run.Measured[0])
	}
	return t, err
}
