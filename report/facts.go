package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/report/figures"
	"isolane.dev/isolane/report/metric"
)

// fact is something that a measuring program says about itself.
type fact struct{ name, probe string }

// factTable has what the measuring programs say about themselves in used runs: the accelerator of a virtual
// machine, the scale of a load, why a run was overloaded.
func factTable(s *figures.Summary) table {
	said, cells := map[fact]map[string]int{}, map[fact]map[string]bool{} // how often which value; in which cells
	for _, r := range s.Session.Runs {
		for _, m := range r.Measured {
			for name, value := range m.Facts {
				if f := (fact{name, m.Name}); r.Used() {
					if said[f] == nil {
						said[f], cells[f] = map[string]int{}, map[string]bool{}
					}
					said[f][value]++
					cells[f][r.Cell] = true
				}
			}
		}
	}
	t := table{Title: "What the measuring programs say of themselves", Columns: append(heads(2, "fact", "probe"),
		column{Name: "what", Words: true, Long: true})}
	order := func(probe string) int {
		return slices.IndexFunc(s.Metrics, func(m metric.Metric) bool { return m.Name == probe })
	}
	for _, f := range slices.SortedFunc(maps.Keys(said), func(a, b fact) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(order(a.probe), order(b.probe)))
	}) {
		what, runs := mostFrequent(said[f])
		if len(said[f]) > 1 {
			what = fmt.Sprintf("in %s, one of them: %s", quantity.Count(runs, "run"), what)
		}
		if len(cells[f]) < len(withRuns(s).Cells) {
			what += fmt.Sprintf(" (%s)", strings.Join(slices.Sorted(maps.Keys(cells[f])), ", "))
		}
		name := spaced(f.name)
		if k := slices.IndexFunc(t.Rows, func(r []string) bool { return r[0] == name && r[2] == what }); k >= 0 {
			t.Rows[k][1] += ", " + f.probe
		} else {
			t.Rows = append(t.Rows, []string{name, f.probe, what})
		}
	}
	return t
}

// mostFrequent returns the most frequent value, the first of equal ones, and the total count.
func mostFrequent(values map[string]int) (most string, all int) {
	for _, v := range slices.Sorted(maps.Keys(values)) {
		if all += values[v]; most == "" || values[v] > values[most] {
			most = v
		}
	}
	return most, all
}

// spaced turns a name into words: congestionControl is congestion control, virtualCPUs are virtual CPUs.
func spaced(name string) string {
	var b strings.Builder
	all := []rune(name)
	for i, r := range all {
		if i > 0 && unicode.IsUpper(r) && !unicode.IsUpper(all[i-1]) {
			b.WriteByte(' ')
			if i == len(all)-1 || !unicode.IsUpper(all[i+1]) {
				r = unicode.ToLower(r)
			}
		}
		b.WriteRune(r)
	}
	return b.String()
}
