package row

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// PartNames are what a total is the sum of: conditions such as "stream 1", "vm=2". Runs are none of these,
// and "threads=4" is no part. StageNames are what a time is the sum of.
const (
	PartNames = "stream flow vm queue port thread worker core cpu client connection instance pod " +
		"container tenant nic link interface node host server shard session process"
	StageNames = "stage phase step hop segment component"
)

var numbered = regexp.MustCompile(`^([a-z]+) ?[=:#]? ?(\S+)$`)

// Numbered parses a condition that is one of several parts: "stream 1", "vm=1", "T:0".
func (p Part) Numbered() (name, which string) {
	if m := numbered.FindStringSubmatch(strings.ToLower(p.String())); m != nil {
		name, which = m[1], m[2]
	}
	return name, which
}

// SaysTotal returns the word by which a condition stands for all parts together: "SUM", "all queues". It
// returns "" for other conditions.
func (p Part) SaysTotal() string {
	words := WordsOf(p.String())
	k := slices.IndexFunc(words, func(s string) bool {
		return slices.Contains([]string{"total", "sum", "aggregate", "all"}, s)
	})
	names := Drop(words, []string{"total", "sum", "aggregate", "all", "of", "the"})
	if k < 0 || slices.ContainsFunc(names, func(s string) bool {
		return !slices.Contains(strings.Fields(PartNames+" "+StageNames), strings.TrimSuffix(s, "s"))
	}) {
		return ""
	}
	return words[k]
}

// ByPart groups rows that have one of these names as a condition, by their other conditions and that name.
func ByPart(rows []*Row, names string) map[string][]*Row {
	all := map[string][]*Row{}
	for _, w := range rows {
		for _, p := range w.Parts {
			if name, _ := p.Numbered(); slices.Contains(strings.Fields(names), name) && p.SaysTotal() == "" {
				rest, _ := Without(w.Parts, func(o Part) bool { return o == p })
				key := Unordered(rest) + "\x00" + name
				all[key] = append(all[key], w)
			}
		}
	}
	return all
}

// IsNumbered reports whether the parts are numbered 0 or 1 to n, each once.
func IsNumbered(of string, rows []*Row) bool {
	var numbers []int
	for _, w := range rows {
		for _, p := range w.Parts {
			if name, which := p.Numbered(); name == of {
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
