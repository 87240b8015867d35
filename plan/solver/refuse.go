package solver

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/search"
	"isolane.dev/isolane/plan/stock"
	"isolane.dev/isolane/quantity"
)

func newRefusal(name string, blocking ...string) *plan.Refusal {
	return &plan.Refusal{APIVersion: plan.APIVersion, Kind: plan.KindOfRefusal, Lane: name, Blocking: blocking}
}

// refused is a refusal that is not explained yet.
type refused struct {
	lane   lane.Lane
	reason error          // what makes it impossible on this machine
	on     *stock.Machine // the machine on which it does not fit; nil: each lane fits alone
	proven bool           // it is certainly impossible
}

// Error names the lane.
func (r *refused) Error() string { return r.lane.Metadata.Name + ": does not fit" }

// explained turns a refused into a Refusal, and passes on all other errors.
func explained(err error, h host.Host, placed plan.Placement, lanes []lane.Lane) error {
	var r *refused
	if !errors.As(err, &r) {
		return err
	}
	out := newRefusal(r.lane.Metadata.Name)
	out.Searched = true
	switch {
	case r.reason != nil:
		out.Blocking = []string{r.reason.Error()}
	case r.on != nil:
		out.Blocking = blocking(r.on, r.lane)
	default:
		out.Blocking = []string{"each lane fits alone, but not all together"}
	}
	if !r.proven {
		out.Blocking = append(out.Blocking,
			fmt.Sprintf("no way was found in %d steps, which does not prove that there is none", Limit))
	}
	out.Cheapest = cheapest(h, placed, lanes, r.lane.Metadata.Name)
	return out
}

// constraint is something that may keep a lane out.
type constraint struct {
	text string // "": the balance says it
	drop func(*trial)
}

// trial is a lane without some of its constraints.
type trial struct {
	search.Relaxed
	spec *lane.Spec
	on   *stock.Machine
}

// blocking finds the fewest constraints that by themselves keep out a lane that does not fit.
func blocking(m *stock.Machine, l lane.Lane) []string {
	if len(m.Cores) == 0 {
		return []string{fmt.Sprintf("asks for %s; none is usable", quantity.Count(l.Spec.CPUs.Count, "CPU"))}
	}
	texts := []string{balance(m, l)}
	all := constraints(m, l)
	found := false
	for size := 0; size <= len(all) && !found; size++ {
		stock.Subsets(len(all), size, func(set stock.NodeSet) {
			if found || fitsWith(m, l, all, set) {
				return
			}
			found = true
			for i, c := range all {
				if set&(1<<i) != 0 && c.text != "" {
					texts = append(texts, c.text)
				}
			}
		})
	}
	return texts
}

// balance says who has the usable CPUs; the numbers add up.
func balance(m *stock.Machine, l lane.Lane) string {
	usable := m.Host.Usable()
	var taken cpuset.Set
	var names []string
	for _, o := range m.Lanes {
		taken, names = taken.Union(o.Owned()), append(names, o.Name)
	}
	taken = taken.Intersection(usable)
	named, by := m.Claimed(l.Metadata.Name)
	named = named.Intersection(usable).Difference(taken)
	boot := m.BootCore().Difference(taken)
	text := fmt.Sprintf("asks for %s; of %d usable", quantity.Count(l.Spec.CPUs.Count, "CPU"), usable.Len())
	if closed := m.Host.Online().Difference(usable); !closed.IsEmpty() {
		text += fmt.Sprintf(" (%s not allowed by the cpuset or affinity in force)", closed)
	}
	if !taken.IsEmpty() {
		text += fmt.Sprintf(", %d %s to lanes placed before it (%s)",
			taken.Len(), inflect(taken.Len(), "belongs", "belong"), firstFew(names))
	}
	free := usable.Difference(taken).Difference(named)
	switch {
	case free.IsEmpty():
	case l.Spec.CPUs.Boot || boot.IsEmpty():
		text += ", 1 has to stay housekeeping's"
		free = free.Difference(cpuset.Of(free.First()))
	default:
		text += fmt.Sprintf(", %d %s housekeeping's (the boot core, CPUs %s)",
			boot.Len(), inflect(boot.Len(), "stays", "stay"), boot)
		free = free.Difference(boot)
	}
	if !named.IsEmpty() {
		text += fmt.Sprintf(", %d %s named by %s", named.Len(), inflect(named.Len(), "is", "are"), firstFew(by))
	}
	return text + fmt.Sprintf(", %d %s free", free.Len(), inflect(free.Len(), "is", "are"))
}

// inflect returns the form of a word for a number.
func inflect(n int, single, several string) string {
	if n == 1 {
		return single
	}
	return several
}

// firstFew lists up to four names, and says how many more there are.
func firstFew(names []string) string {
	if len(names) > 4 {
		return strings.Join(names[:4], ", ") + fmt.Sprintf(" and %d more", len(names)-4)
	}
	return strings.Join(names, ", ")
}

// constraints returns what a lane asks for beyond a number of CPUs, and what limits all lanes.
func constraints(m *stock.Machine, l lane.Lane) []constraint {
	s := l.Spec
	all := []constraint{{"", func(t *trial) { t.NoHousekeeping = true }}}
	if named, _ := m.Claimed(l.Metadata.Name); len(m.Lanes) > 0 || !named.IsEmpty() {
		all = append(all, constraint{"", func(t *trial) { t.on = stock.New(m.Host, nil) }})
	}
	if !s.CPUs.Boot {
		all = append(all, constraint{"", func(t *trial) { t.Boot = true }})
	}
	if s.Memory.Size > 0 {
		text := fmt.Sprintf("spec.memory.size: %s (%s)", s.Memory.Size, memoryText(m))
		all = append(all, constraint{text, func(t *trial) { t.spec.Memory.Size = 0 }})
	}
	if len(s.Memory.Hugepages) > 0 {
		all = append(all, constraint{pagesText(m, s), func(t *trial) { t.spec.Memory.Hugepages = nil }})
	}
	var apart, others []string
	for _, o := range m.Lanes {
		others = append(others, o.Name)
		if slices.Contains(o.Spec.Apart.Lanes, l.Metadata.Name) && o.Spec.Preferred["apart"] == 0 {
			apart = append(apart, o.Name)
		}
	}
	if len(apart) > 0 {
		all = append(all, constraint{"spec.apart of " + firstFew(apart) + ": not beside this lane",
			func(t *trial) { t.Others = others }})
	}
	wish := func(name, text string) {
		all = append(all, constraint{text, func(t *trial) { t.Wishes = append(t.Wishes, name) }})
	}
	if !s.CPUs.List.IsEmpty() {
		wish("list", listText(m, s))
	}
	texts := map[string]string{
		"smt":   "spec.cpus.smt: " + s.CPUs.SMT + " wants whole cores",
		"kind":  "spec.cpus.kind: " + s.CPUs.Kind,
		"l3":    "spec.cpus.l3: all below one L3",
		"numa":  "spec.cpus.numa: all on one node",
		"near":  "spec.near: " + nearText(s.Near),
		"apart": fmt.Sprintf("spec.apart: not beside %s", firstFew(s.Apart.Lanes)),
	}
	for _, w := range s.Wishes() {
		if _, soft := s.Preferred[w]; !soft {
			wish(w, texts[w])
		}
	}
	return all
}

// listText says what keeps a lane from the CPUs that it names.
func listText(m *stock.Machine, s lane.Spec) string {
	list, boot := s.CPUs.List, m.BootCore()
	var why []string
	if gone := list.Difference(m.Host.Usable()); !gone.IsEmpty() {
		why = append(why, fmt.Sprintf("%s are offline or not allowed", gone))
	}
	for _, o := range m.Lanes {
		if taken := o.Owned().Intersection(list); !taken.IsEmpty() {
			why = append(why, fmt.Sprintf("%s are lane %s's", taken, o.Name))
		}
	}
	if list.Intersects(boot) && !s.CPUs.Boot {
		why = append(why, fmt.Sprintf("%s are of the boot core (spec.cpus.boot)", list.Intersection(boot)))
	}
	for c := range m.Cores {
		core := cpuset.Of(m.Cores[c].CPUs...)
		switch mine := core.Intersection(list); {
		case mine.IsEmpty():
		case s.CPUs.SMT == lane.Pack && mine != core:
			why = append(why, fmt.Sprintf("smt: pack wants all of core %s", core))
		case s.CPUs.SMT == lane.Isolate && mine.Len() > 1:
			why = append(why, fmt.Sprintf("smt: isolate wants one of core %s", core))
		}
	}
	text := fmt.Sprintf("spec.cpus.list: %s", list)
	if len(why) > 0 {
		text += " (" + strings.Join(why, "; ") + ")"
	}
	return text
}

// memoryText says how much memory lanes could have.
func memoryText(m *stock.Machine) string {
	return fmt.Sprintf("%s are free, of which %s stay housekeeping's",
		quantity.Bytes(m.AllFreeMemory()), quantity.Bytes(m.HousekeepingBytes))
}

// pagesText says how much of pools and memory hugepages could have.
func pagesText(m *stock.Machine, s lane.Spec) string {
	text := "spec.memory.hugepages"
	for i, size := range slices.Sorted(maps.Keys(s.Memory.Hugepages)) {
		page, _ := quantity.ParseBytes(size)
		free := uint64(0)
		for n := range m.Nodes {
			_, pool := m.FreeMemory(n)
			free = stock.PlusCapped(free, stock.TimesCapped(pool[uint64(page)], uint64(page)))
		}
		text += fmt.Sprintf("%s %s of %s, where pools have %s", []string{":", ","}[min(i, 1)],
			s.Memory.Hugepages[size], size, quantity.Bytes(free))
	}
	return text + " (" + memoryText(m) + ")"
}

func nearText(n lane.Near) string {
	switch {
	case n.NUMANode != nil:
		return fmt.Sprintf("node %d", *n.NUMANode)
	case n.Lane != "":
		return "lane " + search.Shorten(n.Lane)
	}
	return search.Shorten(n.Device)
}

// fitsWith reports whether a lane fits with only some of its constraints.
func fitsWith(m *stock.Machine, l lane.Lane, all []constraint, set stock.NodeSet) bool {
	t := trial{spec: &l.Spec, on: m}
	for i, c := range all {
		if set&(1<<i) == 0 {
			c.drop(&t)
		}
	}
	_, ok, err := search.Best(t.on, l, t.Relaxed)
	return ok && err == nil
}
