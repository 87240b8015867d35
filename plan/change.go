package plan

import (
	"cmp"
	"fmt"
	"slices"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/quantity"
)

// changes looks for a change that makes all lanes fit, by trying.
type changes struct {
	h      host.Host
	placed Placement
	lanes  []lane.Lane
	tries  int
	steps  int // that may be taken in all
}

// cheapest returns the first change, in the order of docs/placement.md, that makes all lanes fit; nil where none of those
// that were tried does. The lane that was refused comes before the others.
func cheapest(h host.Host, placed Placement, lanes []lane.Lane, name string) *Change {
	c := changes{h: h, placed: placed, lanes: lanes, tries: 200, steps: 200000}
	if len(placed.Lanes) > 0 {
		if p, err := repack(h, placed, lanes); err == nil && len(p.Moves) > 0 {
			return &Change{Moves: p.Moves}
		}
	}
	order := make([]int, len(lanes))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(boolInt(lanes[a].Metadata.Name != name), boolInt(lanes[b].Metadata.Name != name))
	})
	for _, find := range []func(int) string{c.wish, c.boot, c.share, c.count, c.memory, c.leave} {
		for _, i := range order {
			if text := find(i); text != "" {
				return &Change{Lane: lanes[i].Metadata.Name, Change: text}
			}
		}
	}
	return nil
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// works says whether all lanes fit with an edit of one of them.
func (c *changes) works(i int, edit func(*lane.Spec)) bool {
	if c.tries--; c.tries < 0 {
		return false
	}
	lanes := slices.Clone(c.lanes)
	edit(&lanes[i].Spec)
	return lanes[i].Spec.Validate() == nil && c.fit(lanes)
}

// fit says whether lanes fit, as far as a short search finds a way.
func (c *changes) fit(lanes []lane.Lane) bool {
	most := min(max(5000, c.steps/8), c.steps) // the first tries, of what changes least, may take longer
	if most <= 0 || c.placed.check(c.h) != nil || known(c.placed, lanes) != nil {
		return false
	}
	t := newTogether(newMachine(c.h, c.placed.Lanes), lanes, most)
	t.any = true
	l, _ := t.run()
	if c.steps -= most - max(0, t.steps); t.full { // then it took none
		c.steps += most
	}
	return l == nil && t.found
}

func (c *changes) wish(i int) string {
	s := c.lanes[i].Spec
	for _, w := range s.Wishes() {
		if _, soft := s.Preferred[w]; soft {
			continue
		}
		if c.works(i, func(s *lane.Spec) {
			preferred := map[string]int{w: 1}
			for name, weight := range s.Preferred {
				preferred[name] = weight
			}
			s.Preferred = preferred
		}) {
			return fmt.Sprintf("spec.preferred: {%s: 1}", w)
		}
	}
	return ""
}

func (c *changes) boot(i int) string {
	if !c.lanes[i].Spec.CPUs.Boot && c.works(i, func(s *lane.Spec) { s.CPUs.Boot = true }) {
		return "spec.cpus.boot: true"
	}
	return ""
}

func (c *changes) share(i int) string {
	if c.lanes[i].Spec.CPUs.Share <= 1 && c.works(i, func(s *lane.Spec) { s.CPUs.Share = 2 }) {
		return "spec.cpus.share: 2"
	}
	return ""
}

// count looks for the largest number of CPUs that does.
func (c *changes) count(i int) string {
	free := newMachine(c.h, c.placed.Lanes).free().Len()
	for n := min(c.lanes[i].Spec.CPUs.Count-1, free-1); n > 0; n-- {
		if c.works(i, func(s *lane.Spec) { s.CPUs.Count = n }) {
			return fmt.Sprintf("spec.cpus.count: %d", n)
		}
	}
	return ""
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

func (c *changes) leave(i int) string {
	c.steps = max(c.steps, 5000) // what mostly helps is always tried
	rest := slices.Delete(slices.Clone(c.lanes), i, i+1)
	if len(rest) > 0 && c.fit(rest) {
		return "leave it out"
	}
	return ""
}
