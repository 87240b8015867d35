package solver

import (
	"fmt"
	"maps"
	"slices"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/stock"
	"isolane.dev/isolane/quantity"
)

// changes tries changes that may make all lanes fit.
type changes struct {
	h      host.Host
	placed plan.Placement
	lanes  []lane.Lane
	tries  int // left for changes of this kind
	steps  int // steps of the search left for them
}

// edit is a change of one lane's declaration.
type edit struct {
	text string
	left uint64 // as in plan.Price
	do   func(*lane.Spec)
}

// The kinds of changes in the order of docs/placement.md, as in plan.Price. The kinds of edits are between
// them.
const (
	kindMoves = 1 + iota
	kindEdits
	kindMemory   = kindEdits + editKinds
	kindLeaveOut = kindMemory + 1
)

// cheapest returns the first change, in the order of docs/placement.md, that makes all lanes fit; nil if none
// of those tried does. It begins with the refused lane.
func cheapest(h host.Host, placed plan.Placement, lanes []lane.Lane, name string) *plan.Change {
	if len(placed.Lanes) > 0 {
		if p, err := repack(h, placed, lanes); err == nil && len(p.Moves) > 0 {
			return &plan.Change{Moves: p.Moves, Price: plan.Price{Kind: kindMoves}}
		}
	}
	refused := slices.IndexFunc(lanes, func(l lane.Lane) bool { return l.Metadata.Name == name })
	lanes = slices.Concat(lanes[refused:refused+1], lanes[:refused], lanes[refused+1:])
	c := changes{h: h, placed: placed, lanes: lanes}
	free := stock.New(h, placed.Lanes).Free().Len()
	for kind := range edits(lane.Spec{}, free) {
		c.tries, c.steps = 60, 480000
		for i, l := range lanes {
			for _, e := range edits(l.Spec, free)[kind] {
				if c.works(i, e.do) {
					return &plan.Change{Lane: l.Metadata.Name, Change: e.text,
						Price: plan.Price{Kind: kindEdits + kind, Left: e.left}}
				}
			}
		}
	}
	c.tries, c.steps = 60, 480000
	for i := range lanes {
		if change := c.memory(i); change != nil {
			return change
		}
	}
	for i, l := range lanes {
		// this usually helps, so it is always tried
		if rest := slices.Delete(slices.Clone(lanes), i, i+1); len(rest) > 0 && c.fit(rest, 80000) {
			return &plan.Change{Lane: l.Metadata.Name, Change: "leave it out", Price: plan.Price{Kind: kindLeaveOut}}
		}
	}
	return nil
}

// Fits reports whether a short search finds a way to place all lanes beside the placed ones. It is for
// callers that propose a change themselves. False proves nothing.
func Fits(h host.Host, placed plan.Placement, lanes []lane.Lane) bool {
	c := changes{h: h, placed: placed, lanes: lanes, steps: 80000}
	return c.fit(lanes, c.steps)
}

// works reports whether all lanes fit after an edit of one of them.
func (c *changes) works(i int, do func(*lane.Spec)) bool {
	if c.tries--; c.tries < 0 {
		return false
	}
	lanes := slices.Clone(c.lanes)
	do(&lanes[i].Spec)
	most := min(max(20000, c.steps/3), c.steps) // the first tries change least, and may take longer
	return lanes[i].Spec.Validate() == nil && c.fit(lanes, most)
}

// fit reports whether a search of that many steps finds a way to place the lanes.
func (c *changes) fit(lanes []lane.Lane, most int) bool {
	if most <= 0 || c.placed.Check(c.h) != nil || checkNames(c.placed, lanes) != nil {
		return false
	}
	t := newJointSearch(stock.New(c.h, c.placed.Lanes), lanes, most)
	if t.exceedsHost() { // this needs no search, so it takes no steps
		return false
	}
	// Some requests are easy with the largest lanes first, others with those that have the fewest choices.
	t.findFirst(most/4, true)
	refused := t.run()
	c.steps -= most/4 - max(0, t.steps)
	if refused != nil && !refused.proven {
		t.fewestChoicesFirst()
		t.findFirst(most-most/4, true)
		refused = t.run()
		c.steps -= most - most/4 - max(0, t.steps)
	}
	return refused == nil
}

const editKinds = 5

// edits returns the changes of a declaration that may help, by kind, in the order in which they are tried.
// free is how many CPUs no lane has.
func edits(s lane.Spec, free int) [editKinds][]edit {
	var all [editKinds][]edit
	for _, w := range s.Wishes() {
		if _, soft := s.Preferred[w]; !soft {
			all[0] = append(all[0], edit{fmt.Sprintf("spec.preferred: {%s: 1}", w), 0, func(s *lane.Spec) {
				preferred := map[string]int{w: 1}
				maps.Copy(preferred, s.Preferred)
				s.Preferred = preferred
			}})
		}
	}
	if !s.CPUs.Boot {
		all[1] = []edit{{"spec.cpus.boot: true", 0, func(s *lane.Spec) { s.CPUs.Boot = true }}}
	}
	if !s.CPUs.List.IsEmpty() {
		all[2] = []edit{{"leave out spec.cpus.list", 0, func(s *lane.Spec) { s.CPUs.List = cpuset.Set{} }}}
	}
	if s.CPUs.Share <= 1 {
		all[3] = []edit{{"spec.cpus.share: 2", 0, func(s *lane.Spec) { s.CPUs.Share = 2 }}}
	}
	for n := min(s.CPUs.Count-1, free-1); n > 0; n-- {
		all[4] = append(all[4], edit{fmt.Sprintf("spec.cpus.count: %d", n), uint64(n),
			func(s *lane.Spec) { s.CPUs.Count = n }})
	}
	return all
}

// amount is memory that is set aside for a lane, in units: MiB, or pages of one size.
type amount struct {
	field string
	unit  quantity.Bytes
	most  uint64
	set   func(*lane.Spec, quantity.Bytes)
}

func amounts(s lane.Spec) []amount {
	all := []amount{{"spec.memory.size", 1 << 20, uint64(s.Memory.Size) >> 20,
		func(s *lane.Spec, to quantity.Bytes) { s.Memory.Size = to }}}
	for _, size := range slices.Sorted(maps.Keys(s.Memory.Hugepages)) {
		page, err := quantity.ParseBytes(size)
		if err != nil || page == 0 {
			continue
		}
		all = append(all, amount{"spec.memory.hugepages." + size, page, uint64(s.Memory.Hugepages[size] / page),
			func(s *lane.Spec, to quantity.Bytes) {
				s.Memory.Hugepages = maps.Clone(s.Memory.Hugepages)
				if s.Memory.Hugepages[size] = to; to == 0 { // the machine may not have that size
					delete(s.Memory.Hugepages, size)
				}
			}})
	}
	return all
}

// memory returns a change to the largest amount of one kind of a lane's memory that fits.
func (c *changes) memory(i int) *plan.Change {
	for _, a := range amounts(c.lanes[i].Spec) {
		with := func(n uint64) bool {
			return c.works(i, func(s *lane.Spec) { a.set(s, quantity.Bytes(n)*a.unit) })
		}
		if a.most == 0 || !with(0) {
			continue
		}
		least, most := uint64(0), a.most // fits; does not fit
		for most-least > 1 {
			if middle := least + (most-least)/2; with(middle) {
				least = middle
			} else {
				most = middle
			}
		}
		left := quantity.Bytes(least) * a.unit
		change := plan.Change{Lane: c.lanes[i].Metadata.Name, Change: fmt.Sprintf("%s: %s", a.field, left),
			Price: plan.Price{Kind: kindMemory, Left: uint64(left)}}
		if left == 0 && a.field != "spec.memory.size" {
			change.Change = "leave out " + a.field
		}
		return &change
	}
	return nil
}
