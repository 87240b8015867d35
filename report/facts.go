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
)

// factTable has what the measuring programs say of themselves, in used runs: the accelerator of a virtual
// machine, the scale of a load, why a run was overloaded.
func factTable(s *figures.Summary) table {
	type heard struct {
		values map[string]int // how often
		cells  map[string]bool
	}
	all := map[[2]string]heard{} // by fact and probe
	for _, r := range s.Session.Runs {
		for _, m := range r.Measured {
			for name, value := range m.Facts {
				key := [2]string{name, m.Name}
				if all[key].values == nil {
					all[key] = heard{map[string]int{}, map[string]bool{}}
				}
				if r.Used() {
					all[key].values[value]++
					all[key].cells[r.Cell] = true
				}
			}
		}
	}
	t := table{Title: "What the measuring programs say of themselves", Columns: append(heads(2, "fact", "probe"),
		column{Name: "what", Words: true, Long: true})}
	rows := map[string]int{} // by all but the probe
	order := func(probe string) int {
		return slices.IndexFunc(s.Metrics, func(m figures.Metric) bool { return m.Name == probe })
	}
	for _, key := range slices.SortedFunc(maps.Keys(all), func(a, b [2]string) int {
		return cmp.Or(strings.Compare(a[0], b[0]), cmp.Compare(order(a[1]), order(b[1])))
	}) {
		h := all[key]
		if len(h.cells) == 0 {
			continue
		}
		what := mostFrequent(h.values)
		if runs := sum(h.values); len(h.values) > 1 {
			what = fmt.Sprintf("in %s, one of them: %s", quantity.Count(runs, "run"), what)
		}
		if len(h.cells) < len(withRuns(s).Cells) {
			what += fmt.Sprintf(" (%s)", strings.Join(slices.Sorted(maps.Keys(h.cells)), ", "))
		}
		row := []string{spaced(key[0]), key[1], what}
		if at, ok := rows[row[0]+row[2]]; ok {
			t.Rows[at][1] += ", " + key[1]
			continue
		}
		rows[row[0]+row[2]] = len(t.Rows)
		t.Rows = append(t.Rows, row)
	}
	return t
}

func sum(values map[string]int) (n int) {
	for _, k := range values {
		n += k
	}
	return n
}

// mostFrequent is the value that came most often; of equal ones the first.
func mostFrequent(values map[string]int) string {
	best := ""
	for _, v := range slices.Sorted(maps.Keys(values)) {
		if best == "" || values[v] > values[best] {
			best = v
		}
	}
	return best
}

// spaced makes words of a name: congestionControl is congestion control, virtualCPUs are virtual CPUs.
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
