package rules

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"isolane.dev/isolane/claims"
	"isolane.dev/isolane/claims/cells"
	"isolane.dev/isolane/claims/formula"
	"isolane.dev/isolane/claims/row"
)

// instance is a law with the figures of one cell.
type instance struct {
	law
	t     *table
	names []string
	rows  map[string]*row.Row
	first *row.Row // of the configuration
}

// instances returns the figures of the table for which a law must hold.
func (t *table) instances(l law) []instance {
	names := slices.DeleteFunc(append(l.right.Names(), l.left.Names()...), func(name string) bool {
		return t.Roles[name] == nil
	})
	if l.each == "" && l.sign != "=" && !l.once && len(l.left.Names()) == 1 {
		l.each = string(l.left)
	}
	if l.each != "" && !slices.Contains(names, l.each) {
		names = append(names, l.each)
	}
	var all []instance
	for _, c := range t.Cells {
		each := []*row.Row{nil}
		if l.each != "" {
			each = t.Roles[l.each].Own[c[0]]
		}
		for _, w := range each {
			i := instance{l, t, names, map[string]*row.Row{}, c[0]}
			if !i.fill(c, w) {
				continue
			}
			if i.also(c); l.unless == nil || !l.unless(i) {
				i.other(c)
				all = append(all, i)
			}
		}
	}
	return all
}

// fill finds the figures, and reports whether it found all.
func (i instance) fill(c cells.Cell, each *row.Row) bool {
	own := 0
	var like []string
	if each != nil {
		like, i.rows[i.each] = i.rest(i.each, each), each
	}
	for _, name := range i.names {
		w := each
		if name != i.each {
			w = i.t.Find(c, name, func(w *row.Row) bool {
				return each == nil && like == nil || !i.stat && !i.same || i.isFree(name) ||
					(!i.stat || w.Stat == each.Stat) &&
						(!i.same || slices.Equal(i.rest(name, w), like) && i.isAlike(name, w))
			})
		}
		if w == nil {
			return false
		}
		if like == nil {
			like = i.rest(name, w)
		}
		i.rows[name] = w
		if first, ok := i.t.Of[w]; ok && first[0] == c[0] || !ok && i.once {
			own++
		}
	}
	a, b := i.rows[i.names[0]], i.rows[i.names[len(i.names)-1]]
	switch i.sign {
	case "=":
		return own >= 2
	case "whole":
		return own >= 2 && a.Quoted == b.Quoted && (a.Quoted != "" || a.IsSetup()) // of one CPU
	default:
		return own >= 1
	}
}

func (i instance) isFree(name string) bool { return slices.Contains(strings.Fields(i.free), name) }

// isAlike reports whether a figure has the unit of the others (bytes, packets), if the law leaves that open.
func (i instance) isAlike(name string, w *row.Row) bool {
	of := func(w *row.Row) string {
		if w.Unit.Dim == row.SizeRate {
			return strconv.Itoa(int(row.BitRate))
		}
		return w.Measure()
	}
	for other, o := range i.rows {
		open := len(i.t.Roles[other].Dims) > 1 && len(i.t.Roles[name].Dims) > 1 && !i.isFree(other)
		if open && of(w) != of(o) {
			return false
		}
	}
	return true
}

// other finds what the alternative right sides need beside the law's figures, and drops those that lack it.
func (i *instance) other(c cells.Cell) {
	all := i.or.Alternatives()
	i.or = ""
	for _, f := range all {
		missing := slices.ContainsFunc(f.Names(), func(name string) bool {
			if i.rows[name] == nil {
				i.rows[name] = i.t.Find(c, name, nil)
			}
			return i.rows[name] == nil
		})
		if !missing {
			i.or = formula.Formula(strings.TrimPrefix(string(i.or+" or "+f), " or "))
		}
	}
}

// also adds further parts of a law to the left side, if the configuration has them.
func (i *instance) also(c cells.Cell) {
	for name := range strings.FieldsSeq(i.plus) {
		like := i.rest(i.each, i.rows[i.each])
		w := i.t.Find(c, name, func(w *row.Row) bool { return slices.Equal(i.rest(name, w), like) })
		if w != nil {
			i.rows[name], i.left = w, i.left+" + "+formula.Formula(name)
			i.names = slices.Concat(i.names, []string{name})
		}
	}
}

// rest returns what a metric has beside the words of its role and the statistic: packet of packets_sent.
func (i instance) rest(name string, w *row.Row) []string {
	words := []string{}
	generic := append(strings.Fields(i.t.Roles[name].Words), "rate", "ratio")
	for _, word := range row.Drop(row.WordsOf(w.Stem), generic) {
		words = append(words, strings.TrimSuffix(word, "s"))
	}
	return words
}

func (i instance) get(name string) row.Span {
	switch {
	case name == "above":
		return row.Exactly(1 - i.rows[i.each].Stat.Rank/100)
	case name == "below":
		return row.Exactly(i.rows[i.each].Stat.Rank / 100)
	case name == "link":
		return row.Exactly(i.t.Base(i.rows[name]).Mid * i.times())
	case i.t.Roles[name].Nominal:
		return row.Exactly(i.t.Base(i.rows[name]).Mid)
	default:
		return i.t.Base(i.rows[name])
	}
}

// holds reports whether the figures agree within their digits and the tolerance of the law.
func (i instance) holds() bool {
	left := i.left.Value(i.get)
	for _, f := range i.or.Alternatives() {
		either := i
		if either.right, either.or = f, ""; either.holds() {
			return true
		}
	}
	if i.sign == "whole" {
		return !left.Finite() || left.Mid >= 1 && left.Mid == math.Trunc(left.Mid)
	}
	right := i.right.Value(i.get)
	if i.more != "" {
		right.High += i.more.Value(i.get).High
	}
	if i.less != "" {
		right.Low = max(0, right.Low-i.less.Value(i.get).High)
	}
	right.Low, right.High = right.Low*(1-i.about), right.High*(1+i.about)
	switch {
	case !left.Finite() || !right.Finite():
		return true
	case i.sign == "≤":
		return !right.Below(left)
	case i.sign == "≥":
		return !left.Below(right)
	default:
		return left.Meets(right)
	}
}

func (i instance) text(name string) string {
	switch name {
	case "above":
		return "(1 − " + row.Percent(i.rows[i.each].Stat.Rank/100) + ")"
	case "below":
		return row.Percent(i.rows[i.each].Stat.Rank / 100)
	case "link":
		if n := i.times(); n > 1 {
			return i.t.Printed(i.rows[name]) + " × " + row.Number(n)
		}
	}
	return i.t.Printed(i.rows[name])
}

// side prints one side of an inequality.
func (i instance) side(f formula.Formula) string {
	names, s := f.Names(), f.Text(i.text)
	value := row.Show(i.in, f.Value(i.get).Mid)
	if like := i.rows[string(i.left)]; i.in == row.Text && like != nil {
		value = i.t.Like(like, f.Value(i.get).Mid)
	}
	switch {
	case len(names) == 1 && string(f) == names[0] && i.in == row.BitRate &&
		i.rows[names[0]].Unit.Dim == row.SizeRate:
		return s + " × 8 = " + value
	case !strings.Contains(string(f), " ") && !strings.Contains(s, " × "):
		return s
	case i.in == row.Duration && f.Value(i.get).Mid > 86400:
		return s + " = " + row.Number(f.Value(i.get).Mid) + " s = " + value
	default:
		return s + " = " + value
	}
}

// sum prints what does not hold.
func (i instance) sum() string {
	switch i.sign {
	case "=":
		w := i.rows[string(i.left)]
		return i.right.Text(i.text) + " = " + i.t.Like(w, i.right.Value(i.get).Mid) + ", printed " + i.t.Printed(w)
	case "whole":
		return i.left.Text(i.text) + " = " + row.Number(i.left.Value(i.get).Mid) + ", no whole number"
	default:
		return i.side(i.left) + map[string]string{"≤": " > ", "≥": " < "}[i.sign] + i.side(i.right)
	}
}

// figures returns the rows of an instance. For a figure of a configuration that is the configuration's first
// row.
func (i instance) figures() []*row.Row {
	var rows []*row.Row
	if i.once && !i.rows[i.names[len(i.names)-1]].IsInTable() {
		rows = append(rows, i.first)
	}
	for _, name := range i.names {
		if w := i.rows[name]; w.IsInTable() && !slices.Contains(rows, w) {
			rows = append(rows, w)
		}
	}
	slices.SortFunc(rows, func(a, b *row.Row) int { return cmp.Compare(a.Line, b.Line) })
	return rows
}

// alike groups the instances of a law that have the same units and source.
func (t *table) alike(l law) [][]instance {
	return row.Grouped(t.instances(l), func(i instance) string {
		key := i.rows[i.names[0]].Source
		for _, name := range i.names {
			key += "\x00" + i.rows[name].UnitText
		}
		return key
	})
}

// reading treats units of a source as binary, and returns a function that ends that.
func (t *table) reading(source string, units []string) (undo func()) {
	was := t.Binary
	t.Binary = map[[2]string]bool{}
	for k, v := range was {
		t.Binary[k] = v && k[0] != source
	}
	for _, u := range units {
		t.Binary[[2]string{source, u}] = true
	}
	return func() { t.Binary = was }
}

// agree counts the instances that hold.
func agree(group []instance) (n int) {
	for _, i := range group {
		if i.holds() {
			n++
		}
	}
	return n
}

// binaryUnits finds units whose figures agree only if their prefixes mean powers of 1,024. The rules that
// follow read them in that way.
func (t *table) binaryUnits() []hit {
	var hits []hit
	for _, l := range slices.DeleteFunc(laws(), func(l law) bool { return l.sign != "=" }) {
		for _, group := range t.alike(l) {
			source := group[0].figures()[0].Source
			readings := [][]string{nil, nil} // as printed, all units binary, each unit alone
			for _, w := range group[0].figures() {
				if w.Unit.Binary != 0 && !slices.Contains(readings[1], w.UnitText) {
					readings[1] = append(readings[1], w.UnitText)
					readings = append(readings, []string{w.UnitText})
				}
			}
			best, counts := 0, make([]int, len(readings))
			for k, units := range readings {
				undo := t.reading(source, units)
				if counts[k] = agree(group); counts[k] > counts[best] {
					best = k
				}
				undo()
			}
			if best > 0 {
				hits = append(hits, t.asBinary(group, source, readings[best], counts[0]))
			}
		}
	}
	return hits
}

// asBinary treats units as binary from now on, and says why.
func (t *table) asBinary(group []instance, source string, units []string, printed int) (h hit) {
	was, before := group[0].sum(), t.Binary
	t.reading(source, units)
	for key, is := range before {
		t.Binary[key] = t.Binary[key] || is
	}
	var names []string
	for _, u := range units {
		known, _ := row.UnitOf(u)
		more := 100 * (known.Binary/known.Factor - 1)
		names = append(names, fmt.Sprintf("%s as %s, which is %.1f%% more", u, row.BinaryName(u), more))
	}
	for _, i := range group {
		if i.holds() {
			h.rows = append(h.rows, i.figures()...)
		}
	}
	h.sum = []string{"as printed: " + was, "as binary:  " + group[0].sum(), fmt.Sprintf(
		"%d of %d figures with these units agree as binary, %d as printed", agree(group), len(group), printed)}
	h.so = "Read " + strings.Join(names, ", and ") + "."
	return h
}

// broken returns the figures for which a law of a rule does not hold.
func (t *table) broken(rule string) []hit {
	var hits []hit
	seen := map[*row.Row]bool{} // figures of earlier laws
	for _, l := range laws() {
		if l.rule != rule {
			continue
		}
		for _, group := range t.alike(l) {
			agree := agree(group)
			for _, i := range group {
				key := i.rows[i.names[len(i.names)-1]]
				if i.holds() || seen[key] {
					continue
				}
				seen[key] = true
				hits = append(hits, i.hit(agree, len(group)))
			}
		}
	}
	return hits
}

// hit returns a finding, with how many instances of its kind hold.
func (i instance) hit(agree, all int) hit {
	h := hit{rows: i.figures(), sum: []string{i.sum()}, so: cmp.Or(i.so, wrong)}
	if i.soft != nil {
		if so := i.soft(i); so != "" {
			h.severity, h.so = claims.Suspicious, so
			return h
		}
	}
	if i.sign != "=" {
		return h
	}
	source := h.rows[0].Source
	undo := i.t.reading(source, nil)
	if i.holds() {
		h.sum = append(h.sum, "in decimal units: "+i.sum())
		h.so += " This one agrees if its prefixes are decimal, the others only if they are binary."
	}
	undo()
	if agree > 0 {
		h.so += fmt.Sprintf(" %d of %d of the kind agree.", agree, all)
	}
	return h
}
