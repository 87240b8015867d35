package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/report/figures"
)

// manyValues of one fact are counted, and one is shown.
const manyValues = 2

// factTable has what the measuring programs say of themselves, in used runs: the accelerator of a virtual machine,
// the scale of a load, why a run was overloaded.
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
	for _, key := range slices.SortedFunc(maps.Keys(all), func(a, b [2]string) int {
		return slices.Compare(a[:], b[:])
	}) {
		h := all[key]
		what := strings.Join(slices.Sorted(maps.Keys(h.values)), "; ")
		if runs := sum(h.values); len(h.values) > manyValues {
			what = fmt.Sprintf("in %s, one of them: %s", quantity.Count(runs, "run"), mostFrequent(h.values))
		}
		if len(h.cells) == 0 {
			continue
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

// spaced makes words of a name: congestionControl is congestion control.
func spaced(name string) string {
	var b strings.Builder
	for _, r := range name {
		if unicode.IsUpper(r) {
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
