package search

import (
	"fmt"
	"time"

	"isolane.dev/isolane/results"
)

// The goals of a search: in which part of the trial time something may fail.
const (
	half   = 0.50
	seldom = 0.05
)

// Goals returns the goals for one figure: that it holds in at least half of the trial time, and in 95%. what
// describes the condition; sum and long are the trial time that decides about a point.
func Goals(what string, window, sum, long time.Duration) []results.SearchGoal {
	return []results.SearchGoal{
		goal("half the time", what, 0, half, window, sum),
		goal("95% of the time", what, 0, seldom, window, long),
	}
}

// LossGoals returns the three goals of searches of the kind bounds. CSIT calls the first NDR and the third
// PDR. Other tools mean other losses by these names, so reports print the definitions with the figures.
func LossGoals(window, sum, long time.Duration) []results.SearchGoal {
	return []results.SearchGoal{
		goal("noiseless", "nothing is lost", 0, half, window, sum),
		goal("deterministic", "nothing is lost", 0, seldom, window, long),
		goal("partial drop", "at most 0.5% is lost", 0.005, half, window, sum),
	}
}

func goal(name, what string, loss, exceed float64, window, sum time.Duration) results.SearchGoal {
	return results.SearchGoal{Name: name, Loss: loss, Exceed: exceed, Sum: results.Nanoseconds(sum),
		Definition: fmt.Sprintf("%s in at least %g%% of the trial time; a point is settled after %gs of trials "+
			"of %gs", what, 100*(1-exceed), sum.Seconds(), window.Seconds())}
}

// notes says what a bracket does not show.
func (t tally) notes(s results.Search, g, lo, hi, made int) []string {
	var all []string
	at := func(p int) string { return Name(s, s.Points[p]) }
	last := len(t) - 1
	if made >= s.Limit && hi-lo > 1 {
		all = append(all, fmt.Sprintf("ended after %d trials, before the bracket was as narrow as asked", made))
	}
	switch {
	case hi > last && lo == last:
		all = append(all, fmt.Sprintf("it holds at the hardest point asked for, %s", at(last)))
	case hi <= last && t.class(s, g, hi) == unjudged:
		all = append(all, fmt.Sprintf("%s could not be judged, %d of %d trials are void or in doubt: %s", at(hi),
			len(t[hi].void), t[hi].made(), t[hi].void[len(t[hi].void)-1]))
	case hi == 0:
		all = append(all, fmt.Sprintf("it does not hold at the easiest point asked for, %s", at(0)))
	}
	for p := hi + 1; p <= last; p++ {
		if t.class(s, g, p) == holds && t.class(s, g, hi) == fails {
			return append(all, fmt.Sprintf("not monotone: it holds at %s and not at %s, which counts", at(p), at(hi)))
		}
	}
	return all
}

// Name describes a point in words.
func Name(s results.Search, point float64) string {
	return fmt.Sprintf("%g%s", point, s.Unit)
}
