package rules

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"isolane.dev/isolane/claims"
	"isolane.dev/isolane/claims/row"
	"isolane.dev/isolane/quantity"
)

// partNames are what a total is of: conditions such as "stream 1", "vm=2". Runs are none, nor "threads=4".
const partNames = "stream flow vm queue port thread worker core cpu client connection instance pod " +
	"container tenant nic link interface node host server shard session process"

var numbered = regexp.MustCompile(`^([a-z]+) ?[=:#]? ?(\S+)$`)

// partOf reads a condition as one of several parts: "stream 1", "vm=1", "T:0".
func partOf(p row.Part) (name, which string) {
	m := numbered.FindStringSubmatch(strings.ToLower(p.String()))
	if m == nil || !slices.Contains(strings.Fields(partNames), m[1]) || saysTotal(p) != "" {
		return "", ""
	}
	return m[1], m[2]
}

// saysTotal is the word by which a condition is that of all parts together, "" where it is not: "SUM",
// "all queues".
func saysTotal(p row.Part) string {
	words := row.WordsOf(p.String())
	k := slices.IndexFunc(words, func(s string) bool {
		return slices.Contains([]string{"total", "sum", "aggregate", "all"}, s)
	})
	names := row.Drop(words, []string{"total", "sum", "aggregate", "all", "of", "the"})
	if k < 0 || slices.ContainsFunc(names, func(s string) bool {
		return !slices.Contains(strings.Fields(partNames), strings.TrimSuffix(s, "s"))
	}) {
		return ""
	}
	return words[k]
}

// family are the figures of parts and of all of them, which differ in nothing else.
type family struct {
	total *row.Row
	word  string
	parts map[string][]*row.Row // by what the parts are
}

// families are those of rates and counts without a statistic.
func (t *table) families() []family {
	amounts := []row.Dimension{row.Count, row.Rate, row.SizeRate, row.BitRate}
	use := func(w *row.Row) bool {
		return w.Measured() && slices.Contains(amounts, w.Unit.Dim) && w.Stat.Kind == "" && !w.IsChange()
	}
	var all []family
	for _, rows := range t.groups(use, func(w *row.Row) string { return fmt.Sprint(w.Figure, w.Unit.Dim) }) {
		byRest := map[string][]*row.Row{}
		for _, w := range rows {
			for _, p := range w.Parts {
				if name, _ := partOf(p); name != "" {
					rest, _ := row.Without(w.Parts, func(o row.Part) bool { return o == p })
					byRest[row.Unordered(rest)+"\x00"+name] = append(byRest[row.Unordered(rest)+"\x00"+name], w)
				}
			}
		}
		for _, w := range rows {
			for _, p := range w.Parts {
				f := family{w, saysTotal(p), map[string][]*row.Row{}}
				rest, _ := row.Without(w.Parts, func(o row.Part) bool { return o == p })
				for _, name := range strings.Fields(partNames) {
					if parts := byRest[row.Unordered(rest)+"\x00"+name]; f.word != "" && len(parts) > 1 {
						f.parts[name] = parts
					}
				}
				if len(f.parts) == 1 {
					all = append(all, f)
				}
			}
		}
	}
	return all
}

// isNumbered says whether parts are 0 or 1 to n, each once.
func isNumbered(of string, rows []*row.Row) bool {
	var numbers []int
	for _, w := range rows {
		for _, p := range w.Parts {
			if name, which := partOf(p); name == of {
				n, err := strconv.Atoi(which)
				if err != nil {
					return false
				}
				numbers = append(numbers, n)
			}
		}
	}
	slices.Sort(numbers)
	for k, n := range numbers {
		if n != numbers[0]+k || numbers[0] > 1 || numbers[0] < 0 {
			return false
		}
	}
	return len(numbers) == len(rows)
}

// isOfEach says whether the figure of all may be that of each: a mean, or the rate of a chain.
func (t *table) isOfEach(f family, parts []*row.Row) bool {
	least, most := t.extremes(parts)
	all := t.base(f.total)
	return all.Meets(t.base(most)) || f.word == "all" && !all.Below(t.base(least)) && !t.base(most).Below(all)
}

// sum is what figures are together.
func (t *table) sum(rows []*row.Row) row.Span {
	sum := row.Exactly(0)
	for _, w := range rows {
		sum = row.Combine(sum, t.base(w), func(a, b float64) float64 { return a + b })
	}
	return sum
}

// totals are what up and down, the shares of a CPU's time, and streams or queues do not add up to.
func (t *table) totals() []hit {
	const about = 0.01 // of what is not measured at quite the same time
	hits := t.broken("total")
	for _, f := range t.families() {
		for name, parts := range f.parts {
			alone := func(w *row.Row) bool { return saysAlone.MatchString(w.Prose) }
			if t.isOfEach(f, parts) || slices.ContainsFunc(append(slices.Clone(parts), f.total), alone) {
				continue
			}
			total, sum := t.base(f.total), t.sum(parts)
			h := hit{rows: append(slices.Clone(parts), f.total), so: wrong}
			allowed := row.Span{Low: sum.Low * (1 - about), Mid: sum.Mid, High: sum.High * (1 + about)}
			_, most := t.extremes(parts)
			switch part := t.base(most).Scaled(1 - about); {
			case total.Below(part):
				h.rows = []*row.Row{most, f.total}
				h.sum = []string{fmt.Sprintf("%s of one part > %s of all", t.printed(most), t.printed(f.total))}
			case isNumbered(name, parts) && !total.Meets(allowed):
				h.sum = []string{fmt.Sprintf("%s together = %s, printed %s", quantity.Count(len(parts), "part"),
					t.like(f.total, sum.Mid), t.printed(f.total))}
			default:
				continue
			}
			if f.word == "all" {
				h.severity, h.so = claims.Suspicious, "Unless each was measured alone, one of the figures is wrong."
			}
			hits = append(hits, h)
		}
	}
	return hits
}
