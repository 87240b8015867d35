package figures

import "isolane.dev/isolane/results"

// Overloaded is the easiest point of a search at which most trials of a cell were overloaded; nil for none.
func Overloaded(q results.Search, d results.Searched) *float64 {
	for _, p := range q.Points {
		over, counted := 0, 0
		for _, t := range d.Trials {
			if t.Point != p || t.Dropped != "" || len(t.Void)+len(t.Doubts) > 0 {
				continue
			}
			counted++
			if t.Overloaded != "" {
				over++
			}
		}
		if 2*over > counted {
			return &p
		}
	}
	return nil
}

// VoidTrials counts the trials that say nothing, or nothing for certain.
func VoidTrials(d results.Searched) (n int) {
	for _, t := range d.Trials {
		if len(t.Void)+len(t.Doubts) > 0 {
			n++
		}
	}
	return n
}
