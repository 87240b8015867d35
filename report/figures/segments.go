package figures

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"isolane.dev/isolane/report/format"
	"isolane.dev/isolane/report/metric"
)

// unaccounted is the guard on segments of TCP that are lost without anybody saying where.
const unaccounted = "segments lost, nobody says where"

// segments: what one end has sent arrived at the other, or whoever dropped it says so. Otherwise something on
// the way is unknown, whatever the run has found.
func (s *Summary) segments() Guard {
	var found []string
	var sent, lost uint64
	for c := range s.cells() {
		unnamed, metrics := map[string]uint64{}, map[string]bool{}
		for _, r := range c.used {
			for _, m := range r.Measured {
				for _, way := range m.Segments {
					sent, lost = sent+way.Sent, lost+way.Sent-min(way.Sent, way.Got)
					if n := way.Unnamed(); n > 0 {
						unnamed[m.Name] += n
						for name := range m.Values {
							metrics[name] = true
						}
						for name := range m.Samples {
							metrics[name] = true
						}
					}
				}
			}
		}
		for _, name := range slices.Sorted(maps.Keys(unnamed)) {
			found = append(found, fmt.Sprintf("%s of %s in %s", format.Count(unnamed[name]), name, c.Name))
		}
		for name := range metrics {
			s.touched(unaccounted, name, c, func(_ metric.Metric, f *Figure) { f.lower(unaccounted) })
		}
	}
	switch {
	case sent == 0:
		return Guard{}
	case len(found) > 0:
		return Guard{unaccounted, Failed, strings.Join(found, "; ")}
	}
	text := fmt.Sprintf("all %s of TCP came", format.Count(sent))
	if lost > 0 {
		text = fmt.Sprintf("of %s of TCP %s did not come, and who dropped packets says so", format.Count(sent),
			format.Count(lost))
	}
	return Guard{unaccounted, Kept, text}
}
