package plan

import (
	"fmt"
	"maps"
	"slices"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/quantity"
)

// changes looks for a change that makes all lanes fit, by trying.
type changes struct {
	h      host.Host
	placed Placement
	lanes  []lane.Lane
	tries  int // that are left for changes of this kind
	steps  int
}

// edit is a change of one lane's declaration.
type edit struct {
	text string
	do   func(*lane.Spec)
}

// cheapest returns the first change, in the order of docs/placement.md, that makes all lanes fit; nil where
// none of those that were tried does. The lane that was refused comes before the others.
func cheapest(h host.Host, placed Placement, lanes []lane.Lane, name string) *Change {
	if len(placed.Lanes) > 0 {
		if p, err := repack(h, placed, lanes); err == nil && len(p.Moves) > 0 {
			return &Change{Moves: p.Moves}
		}
	}
	refused := slices.IndexFunc(lanes, func(l lane.Lane) bool { return l.Metadata.Name == name })
	lanes = slices.Concat(lanes[refused:refused+1], lanes[:refused], lanes[refused+1:])
	c := changes{h: h, placed: placed, lanes: lanes}
	for _, kind := range []func(lane.Spec) []edit{letGo, boot, unlist, share, c.count} {
		c.tries, c.steps = 60, 80000
		for i, l := range lanes {
			for _, e := range kind(l.Spec) {
				if c.works(i, e.do) {
					return &Change{Lane: l.Metadata.Name, Change: e.text}
				}
			}
		}
	}
	c.tries, c.steps = 60, 80000
	for i, l := range lanes {
		if text := c.memory(i); text != "" {
			return &Change{Lane: l.Metadata.Name, Change: text}
		}
	}
	for i, l := range lanes {
		c.steps = 5000 // what mostly helps is always tried
		if rest := slices.Delete(slices.Clone(lanes), i, i+1); len(rest) > 0 && c.fit(rest) {
			return &Change{Lane: l.Metadata.Name, Change: "leave it out"}
		}
	}
	return nil
}

// works says whether all lanes fit with an edit of one of them.
func (c *changes) works(i int, do func(*lane.Spec)) bool {
	if c.tries--; c.tries < 0 {
		return false
	}
	lanes := slices.Clone(c.lanes)
	do(&lanes[i].Spec)
	return lanes[i].Spec.Validate() == nil && c.fit(lanes)
}

// fit says whether lanes fit, as far as a short search finds a way.
func (c *changes) fit(lanes []lane.Lane) bool {
	most := min(max(5000, c.steps/4), c.steps) // the first tries, of what changes least, may take longer
	if most <= 0 || c.placed.check(c.h) != nil || known(c.placed, lanes) != nil {
		return false
	}
	t := newJointSearch(newMachine(c.h, c.placed.Lanes), lanes, most)
	t.anyWay(most, true)
	l, _ := t.run()
	if c.steps -= most - max(0, t.steps); t.full { // then it took none
		c.steps += most
	}
	return l == nil && t.found
}

// letGo are edits that make one wish a preferred one.
func letGo(s lane.Spec) []edit {
	var edits []edit
	for _, w := range s.Wishes() {
		if _, soft := s.Preferred[w]; !soft {
			edits = append(edits, edit{fmt.Sprintf("spec.preferred: {%s: 1}", w), func(s *lane.Spec) {
				preferred := map[string]int{w: 1}
				maps.Copy(preferred, s.Preferred)
				s.Preferred = preferred
			}})
		}
	}
	return edits
}

func boot(s lane.Spec) []edit {
	if s.CPUs.Boot {
		return nil
	}
	return []edit{{"spec.cpus.boot: true", func(s *lane.Spec) { s.CPUs.Boot = true }}}
}

func unlist(s lane.Spec) []edit {
	if s.CPUs.List.IsEmpty() {
		return nil
	}
	return []edit{{"leave out spec.cpus.list", func(s *lane.Spec) { s.CPUs.List = cpuset.Set{} }}}
}

func share(s lane.Spec) []edit {
	if s.CPUs.Share > 1 {
		return nil
	}
	return []edit{{"spec.cpus.share: 2", func(s *lane.Spec) { s.CPUs.Share = 2 }}}
}

// count are edits to fewer CPUs, the most first.
func (c *changes) count(s lane.Spec) []edit {
	var edits []edit
	free := newMachine(c.h, c.placed.Lanes).free().Len()
	for n := min(s.CPUs.Count-1, free-1); n > 0; n-- {
		edits = append(edits, edit{fmt.Sprintf("spec.cpus.count: %d", n), func(s *lane.Spec) { s.CPUs.Count = n }})
	}
	return edits
}

// memory looks for the most memory that does, in MiB.
func (c *changes) memory(i int) string {
	const mib = 1 << 20
	with := func(n uint64) bool {
		return c.works(i, func(s *lane.Spec) { s.Memory.Size = quantity.Bytes(n * mib) })
	}
	most := uint64(c.lanes[i].Spec.Memory.Size) / mib
	if most == 0 || !with(0) {
		return ""
	}
	least := uint64(0) // fits
	for most-least > 1 {
		if middle := least + (most-least)/2; with(middle) {
			least = middle
		} else {
			most = middle
		}
	}
	return fmt.Sprintf("spec.memory.size: %s", quantity.Bytes(least*mib))
}
