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

// confounded: a run must find the host, and its probes their programs, as the run of the baseline in its
// block did, else the ratio of the two holds what else differs. Cells of different boots are compared by what
// was booted, see ofBoots.
func (s *Summary) confounded() Guard {
	const name = "confounded"
	base, settings := s.Cell(s.Baseline), s.Session.Environment.Settings
	var found []string
	changed := map[string]string{}
	for c := range s.cells() {
		for _, r := range c.used {
			maps.Copy(changed, r.Changed)
		}
		if base == nil || c.Baseline || s.apart(c, base) {
			continue
		}
		for _, o := range s.differs(c, base) {
			found = append(found, o.text)
			for _, metric := range o.metrics {
				s.touched(name, metric, c, func(_ Metric, f *Figure) { f.lower(name) })
			}
		}
	}
	switch {
	case len(found) > 0:
		return Guard{name, Failed, "runs of a block found other settings: " + strings.Join(found, "; ")}
	case base == nil || settings == nil:
		return Guard{name, Unknown, "the session does not say what each run found on the host"}
	case len(changed) > 0:
		return Guard{name, Kept, "all runs of a block found the same settings; within the session changed " +
			strings.Join(slices.Sorted(maps.Keys(changed)), ", ")}
	}
	return Guard{name, Kept, quantity.Count(len(settings), "setting") +
		" of the host are the same before each run"}
}

// unlike is what a run found otherwise than the baseline's, and the metrics that it is about; "" is all.
type unlike struct {
	text    string
	metrics []string
}

// differs is the first setting of the host, and the first fact of each probe, that runs of a cell found
// otherwise than the baseline's of their blocks.
func (s *Summary) differs(c, base *Cell) (all []unlike) {
	known := map[string]bool{} // by probe; "" is the host
	for _, r := range c.used {
		its := first(base.used, func(o results.Run) bool { return o.Block == r.Block })
		if its == nil {
			continue
		}
		add := func(probe, what, own, other string, metrics ...string) {
			if own == other || known[probe] {
				return
			}
			known[probe] = true
			all = append(all, unlike{fmt.Sprintf("%s is %s in %s and %s in %s (block %d)", what,
				cmp.Or(own, "not there"), c.Name, cmp.Or(other, "not there"), base.Name, r.Block), metrics})
		}
		names := slices.AppendSeq(slices.Collect(maps.Keys(r.Changed)), maps.Keys(its.Changed))
		slices.Sort(names)
		for _, setting := range names {
			add("", setting, s.Session.Setting(r, setting), s.Session.Setting(*its, setting), "")
		}
		for _, m := range r.Measured {
			o := first(its.Measured, func(o results.Measurement) bool { return o.Name == m.Name })
			for _, fact := range m.Conditions {
				if o != nil {
					add(m.Name, fact+" of "+m.Name, m.Facts[fact], o.Facts[fact],
						slices.AppendSeq(slices.Collect(maps.Keys(m.Values)), maps.Keys(m.Samples))...)
				}
			}
		}
	}
	return all
}
