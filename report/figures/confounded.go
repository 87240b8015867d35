package figures

import (
	"maps"
	"slices"
	"strings"

	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/report/evidence"
	"isolane.dev/isolane/report/metric"
)

// confounded: a run must find the host, and its probes must find their programs, as the baseline's run in its
// block did. Otherwise the ratio of the two contains that difference. Cells of different boots are compared
// by what was booted, see ofBoots.
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
		for _, o := range evidence.Unlike(s.Session, c.used, base.used) {
			found = append(found, o.Text)
			for _, of := range o.Metrics {
				s.touched(name, of, c, func(_ metric.Metric, f *Figure) { f.lower(name) })
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
