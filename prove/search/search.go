// Package search says at which point the next trial of a search is made, and what the trials say: the rules
// of MLRsearch (RFC 9971), without the host.
//
// A point is classified by the time of its trials: something holds there, or fails, or is undecided yet.
// Nothing assumes that what holds at a point holds at all easier ones. Where it does not, the search is
// conservative: the easiest point that fails ends the bracket, whatever holds beyond it.
//
//	for {
//		point, more := search.Next(s, trials)
//		if !more {
//			break
//		}
//		trials = append(trials, measure(point))
//	}
//	brackets := search.Judge(s, trials)
package search

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"isolane.dev/isolane/results"
)

// WarmUp is why the first trial does not count.
const WarmUp = "warm-up at the hardest point"

// maxVoid is how many void or doubtful trials at a point, if they outnumber the others, leave it unjudged.
const maxVoid = 3

// Grid returns the points from one load to another, in equal ratios of at most width, which is 0.05 for 5%.
// Between whole numbers the points are whole.
func Grid(from, to, width float64) []float64 {
	steps := max(1, int(math.Ceil(math.Log(to/from)/math.Log1p(width)-1e-9)))
	whole := from == math.Trunc(from) && to == math.Trunc(to)
	points := []float64{from}
	for k := 1; k <= steps; k++ {
		p := from * math.Pow(to/from, float64(k)/float64(steps))
		if whole {
			p = math.Round(p)
		}
		if k == steps {
			p = to
		}
		if p > points[len(points)-1] {
			points = append(points, p)
		}
	}
	return points
}

// Limit returns how many trials a cell may take at most: enough to decide each point on the way at the last
// moment, and a tenth more for void ones.
func Limit(s results.Search) int {
	each, steps := 0, bits.Len(uint(len(s.Points)))
	longest := 0
	for i, g := range s.Goals {
		trials := int((g.Sum + s.Window - 1) / s.Window)
		longest = max(longest, trials)
		if i > 0 {
			steps = bits.Len(uint(len(s.Points))) + 2 // it begins where the previous goal ended
		}
		each += steps * trials
	}
	if s.Kind == results.Smallest {
		each = len(s.Points) * longest
	}
	return 1 + each + (each+9)/10
}

// Next returns the point of a cell's next trial. more is false if all goals are settled, or the limit is
// reached.
func Next(s results.Search, trials []results.Trial) (point float64, more bool) {
	if len(trials) == 0 {
		return s.Points[len(s.Points)-1], true // warm-up
	}
	if len(trials) >= s.Limit {
		return 0, false
	}
	all := tallies(s, trials)
	if s.Kind == results.Smallest {
		return fewest(s, all)
	}
	for g := range s.Goals {
		lo, hi := all.bracket(s, g)
		switch {
		case hi-lo == 1:
		case all[hi-1].counted > 0: // an earlier goal ended here
			return s.Points[hi-1], true
		default:
			return s.Points[lo+(hi-lo)/2], true
		}
	}
	return 0, false
}

// fewest returns the undecided point with the fewest trials. All have to be settled, so it assumes no
// relation between points, and takes them in turns.
func fewest(s results.Search, all tally) (point float64, more bool) {
	least := -1
	for p := range s.Points {
		open := false
		for g := range s.Goals {
			open = open || all.class(s, g, p) == undecided
		}
		if open && (least < 0 || all[p].made() < all[least].made()) {
			least = p
		}
	}
	if least < 0 {
		return 0, false
	}
	return s.Points[least], true
}

// Judge says what the trials show for each goal.
func Judge(s results.Search, trials []results.Trial) []results.Bracket {
	all := tallies(s, trials)
	var brackets []results.Bracket
	for g := range s.Goals {
		lo, hi := all.bracket(s, g)
		b := results.Bracket{Notes: all.notes(s, g, lo, hi, len(trials))}
		if lo >= 0 {
			b.Holds = &s.Points[lo]
			if s.Kind == results.Bounds {
				v := s.Points[lo] * (1 - all[lo].quantileLoss(s.Goals[g]))
				b.Throughput = &v
			}
		}
		if hi < len(s.Points) && all.class(s, g, hi) == fails {
			b.Fails = &s.Points[hi]
		}
		brackets = append(brackets, b)
	}
	return brackets
}

// GapOf compares two brackets of loads. It returns nil if the second holds nowhere, or may hold at any load.
func GapOf(first, second results.Bracket) *results.Gap {
	if first.Holds == nil || second.Holds == nil || second.Fails == nil {
		return nil
	}
	a, b := *first.Holds, *second.Holds
	if first.Throughput != nil && second.Throughput != nil {
		a, b = *first.Throughput, *second.Throughput
	}
	if b <= 0 {
		return nil
	}
	g := &results.Gap{Estimate: a/b - 1, Low: max(0, *first.Holds / *second.Fails - 1)}
	if first.Fails != nil {
		high := *first.Fails / *second.Holds - 1
		g.High = &high
	}
	return g
}

// tally is what was found at each point.
type tally []point

type point struct {
	held, missed []results.Nanoseconds // trial time, by goal
	doubtful     results.Nanoseconds   // time of trials that may have missed, or not
	losses       []loss
	counted      int      // trials
	void         []string // reasons of void and doubtful trials
}

type loss struct {
	ratio  float64
	window results.Nanoseconds
}

// made returns how many trials were made here, including void ones.
func (p point) made() int { return p.counted + len(p.void) }

func tallies(s results.Search, trials []results.Trial) tally {
	all := make(tally, len(s.Points))
	for i := range all {
		all[i].held = make([]results.Nanoseconds, len(s.Goals))
		all[i].missed = make([]results.Nanoseconds, len(s.Goals))
	}
	for _, t := range trials {
		k := slices.Index(s.Points, t.Point)
		if k < 0 || t.Dropped != "" {
			continue
		}
		p := &all[k]
		if len(t.Void) == 0 && len(t.Doubts) > 0 {
			p.doubtful += s.Window
			p.void = append(p.void, t.Doubts[0])
			continue
		}
		if len(t.Void) > 0 || len(t.Held) != len(s.Goals) {
			p.void = append(p.void, slices.Concat(t.Void, []string{"nothing was measured"})[0])
			continue
		}
		p.counted++
		for g, held := range t.Held {
			if held {
				p.held[g] += s.Window
			} else {
				p.missed[g] += s.Window
			}
		}
		ratio := 1.0
		if t.Loss != nil && t.Overloaded == "" {
			ratio = *t.Loss
		}
		p.losses = append(p.losses, loss{ratio, s.Window})
	}
	return all
}

// class is what is known of a point.
type class int

const (
	undecided class = iota
	holds
	fails
	unjudged // too many trials were void or doubtful
)

// class classifies a point (RFC 9971, load classification, with full-length trials only). The point fails if
// too much of the time has missed, whatever comes, and holds if enough has held, whatever comes. A doubtful
// trial may be either, so it never helps to judge a point.
func (t tally) class(s results.Search, g, p int) class {
	held, missed := t[p].held[g], t[p].missed[g]
	made := held + missed + t[p].doubtful
	whole := float64(max(made, s.Goals[g].Sum))
	allowed := s.Goals[g].Exceed*whole + 1 // a nanosecond for rounding
	switch {
	case float64(missed) > allowed:
		return fails
	case whole-float64(held) <= allowed:
		return holds
	case len(t[p].void) >= maxVoid && len(t[p].void) > t[p].counted, made >= s.Goals[g].Sum:
		return unjudged
	}
	return undecided
}

// bracket returns the points between which a goal ceases to hold. lo is the hardest point that holds, or -1.
// hi is the easiest point beyond it that fails or could not be judged, or the number of points. All between
// are undecided.
func (t tally) bracket(s results.Search, g int) (lo, hi int) {
	lo, hi = -1, len(t)
	for p := range t {
		if t.class(s, g, p) == fails {
			hi = p
			break
		}
	}
	for p := range hi {
		if t.class(s, g, p) == holds {
			lo = p
		}
	}
	for p := lo + 1; p < hi; p++ {
		if t.class(s, g, p) == unjudged {
			return lo, p
		}
	}
	return lo, hi
}

// quantileLoss returns the loss that is exceeded only in the permitted part of the time (RFC 9971,
// conditional throughput). It is used only where the goal holds, so enough was measured.
func (p point) quantileLoss(g results.SearchGoal) float64 {
	var measured results.Nanoseconds
	for _, l := range p.losses {
		measured += l.window
	}
	left := float64(max(g.Sum, measured))*(1-g.Exceed) - 1 // a nanosecond for rounding
	sorted := slices.SortedFunc(slices.Values(p.losses), func(a, b loss) int {
		return cmp.Compare(a.ratio, b.ratio)
	})
	quantile := 1.0
	for _, l := range sorted {
		if left > 0 {
			quantile, left = l.ratio, left-float64(l.window)
		}
	}
	return quantile
}
