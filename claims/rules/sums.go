package rules

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"isolane.dev/isolane/claims"
	"isolane.dev/isolane/quantity"
)

// partNames are what a total is of: conditions such as "stream 1", "vm=2". Runs are none, nor "threads=4".
const partNames = "stream flow vm queue port thread worker core cpu client connection instance pod " +
	"container tenant nic link interface node host server shard session process"

var numbered = regexp.MustCompile(`^([a-z]+) ?[=:#]? ?(\S+)$`)

// partOf reads a condition as one of several parts: "stream 1", "vm=1", "T:0".
func partOf(p part) (name, which string) {
	m := numbered.FindStringSubmatch(strings.ToLower(p.String()))
	if m == nil || !slices.Contains(strings.Fields(partNames), m[1]) || saysTotal(p) != "" {
		return "", ""
	}
	return m[1], m[2]
}

// saysTotal is the word by which a condition is that of all parts together, "" where it is not: "SUM",
// "all queues".
func saysTotal(p part) string {
	words := wordsOf(p.String())
	k := slices.IndexFunc(words, func(s string) bool {
		return slices.Contains([]string{"total", "sum", "aggregate", "all"}, s)
	})
	names := drop(words, []string{"total", "sum", "aggregate", "all", "of", "the"})
	if k < 0 || slices.ContainsFunc(names, func(s string) bool {
		return !slices.Contains(strings.Fields(partNames), strings.TrimSuffix(s, "s"))
	}) {
		return ""
	}
	return words[k]
}

// family are the figures of parts and of all of them, which differ in nothing else.
type family struct {
	total *row
	word  string
	parts map[string][]*row // by what the parts are
}

// families are those of rates and counts without a statistic.
func (t *table) families() []family {
	amounts := []dimension{count, rate, sizeRate, bitRate}
	use := func(w *row) bool {
		return w.measured() && slices.Contains(amounts, w.unit.dim) && w.stat.kind == "" && !w.isChange()
	}
	var all []family
	for _, rows := range t.groups(use, func(w *row) string { return fmt.Sprint(w.figure, w.unit.dim) }) {
		byRest := map[string][]*row{}
		for _, w := range rows {
			for _, p := range w.parts {
				if name, _ := partOf(p); name != "" {
					rest, _ := without(w.parts, func(o part) bool { return o == p })
					byRest[unordered(rest)+"\x00"+name] = append(byRest[unordered(rest)+"\x00"+name], w)
				}
			}
		}
		for _, w := range rows {
			for _, p := range w.parts {
				f := family{w, saysTotal(p), map[string][]*row{}}
				rest, _ := without(w.parts, func(o part) bool { return o == p })
				for _, name := range strings.Fields(partNames) {
					if parts := byRest[unordered(rest)+"\x00"+name]; f.word != "" && len(parts) > 1 {
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
func isNumbered(of string, rows []*row) bool {
	var numbers []int
	for _, w := range rows {
		for _, p := range w.parts {
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
func (t *table) isOfEach(f family, parts []*row) bool {
	least, most := t.extremes(parts)
	all := t.base(f.total)
	return all.meets(t.base(most)) || f.word == "all" && !all.below(t.base(least)) && !t.base(most).below(all)
}

// totals are what up and down, the shares of a CPU's time, and streams or queues do not add up to.
func (t *table) totals() []hit {
	const about = 0.01 // of what is not measured at quite the same time
	hits := t.broken("total")
	for _, f := range t.families() {
		for name, parts := range f.parts {
			if t.isOfEach(f, parts) || slices.ContainsFunc(append(slices.Clone(parts), f.total), func(w *row) bool {
				return saysAlone.MatchString(w.prose)
			}) {
				continue
			}
			total, sum := t.base(f.total), exactly(0)
			for _, w := range parts {
				sum = combine(sum, t.base(w), func(a, b float64) float64 { return a + b })
			}
			h := hit{rows: append(slices.Clone(parts), f.total), so: wrong}
			allowed := span{sum.low * (1 - about), sum.mid, sum.high * (1 + about)}
			_, most := t.extremes(parts)
			switch part := t.base(most).scaled(1 - about); {
			case total.below(part):
				h.rows = []*row{most, f.total}
				h.sum = []string{fmt.Sprintf("%s of one part > %s of all", t.printed(most), t.printed(f.total))}
			case isNumbered(name, parts) && !total.meets(allowed):
				h.sum = []string{fmt.Sprintf("%s together = %s, printed %s", quantity.Count(len(parts), "part"),
					t.like(f.total, sum.mid), t.printed(f.total))}
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
