package evidence

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"isolane.dev/isolane/results"
)

// Difference is what a run found differently from that of another cell in its block, and the metrics that it
// affects; "" is all.
type Difference struct {
	Text    string
	Metrics []string
}

// Unlike returns the first setting of the host, and the first fact of each probe, that runs of a cell found
// differently from the baseline's runs in their blocks.
func Unlike(s results.Session, used, baseline []results.Run) (all []Difference) {
	known := map[string]bool{} // by probe; "" is the host
	for _, r := range used {
		k := slices.IndexFunc(baseline, func(o results.Run) bool { return o.Block == r.Block })
		if k < 0 {
			continue
		}
		its := baseline[k]
		add := func(probe, what, own, other string, metrics ...string) {
			if own == other || known[probe] {
				return
			}
			known[probe] = true
			all = append(all, Difference{fmt.Sprintf("%s is %s in %s and %s in %s (block %d)", what,
				cmp.Or(own, "not there"), r.Cell, cmp.Or(other, "not there"), its.Cell, r.Block), metrics})
		}
		names := slices.AppendSeq(slices.Collect(maps.Keys(r.Changed)), maps.Keys(its.Changed))
		slices.Sort(names)
		for _, setting := range names {
			add("", setting, s.Setting(r, setting), s.Setting(its, setting), "")
		}
		for _, m := range r.Measured {
			k := slices.IndexFunc(its.Measured, func(o results.Measurement) bool { return o.Name == m.Name })
			for _, fact := range m.Conditions {
				if k >= 0 {
					add(m.Name, fact+" of "+m.Name, m.Facts[fact], its.Measured[k].Facts[fact],
						slices.AppendSeq(slices.Collect(maps.Keys(m.Values)), maps.Keys(m.Samples))...)
				}
			}
		}
	}
	return all
}
