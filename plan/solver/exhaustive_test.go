package solver

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
)

// brute tries all sets of CPUs for all lanes. It shares nothing with the planner but Cost and its order.
type brute struct {
	h      host.Host
	t      truth
	lanes  []lane.Lane
	owners map[int]string
	before int
	hybrid bool
	best   *plan.Cost
}

func (b *brute) block() int {
	most := 0
	for _, node := range b.t.nodes {
		n := 0
		for _, core := range b.t.cores {
			if core != b.t.boot && core.IsSubsetOf(node) && !core.Intersects(b.owned()) {
				n += core.Len()
			}
		}
		most = max(most, n)
	}
	return most
}

func (b *brute) owned() cpuset.Set {
	var ids []int
	for id := range b.owners {
		ids = append(ids, id)
	}
	return cpuset.Of(ids...)
}

func (b *brute) ownedBy(name string) cpuset.Set {
	var ids []int
	for id, owner := range b.owners {
		if owner == name {
			ids = append(ids, id)
		}
	}
	return cpuset.Of(ids...)
}

// place gives the lanes from i on all that they may have.
func (b *brute) place(i int, cost plan.Cost) {
	if i == len(b.lanes) {
		cost.BlockLost = b.before - b.block()
		if b.best == nil || cost.Compare(*b.best) < 0 {
			b.best = &cost
		}
		return
	}
	l := b.lanes[i]
	free := b.t.usable.Difference(b.t.boot).Difference(b.owned()).Slice()
	var try func(at int, cpus []int)
	try = func(at int, cpus []int) {
		if len(cpus) == l.Spec.CPUs.Count {
			for _, siblings := range []bool{true, false} { // a lane may also do without its idle siblings
				c, all, ok := b.price(l, cpuset.Of(cpus...), siblings)
				if !ok {
					continue
				}
				for id := range all.All() {
					b.owners[id] = l.Metadata.Name
				}
				b.place(i+1, cost.Plus(c))
				for id := range all.All() {
					delete(b.owners, id)
				}
			}
			return
		}
		for ; at < len(free); at++ {
			try(at+1, append(cpus, free[at]))
		}
	}
	try(0, nil)
}

// price is what a lane costs on these CPUs, and all CPUs that it then owns; false where a wish that
// must hold does not.
func (b *brute) price(l lane.Lane, cpus cpuset.Set, siblings bool) (plan.Cost, cpuset.Set, bool) {
	var c plan.Cost
	all := cpus
	s := l.Spec
	broken := func(wish string) bool {
		c.BrokenWishes += s.Preferred[wish]
		return s.Preferred[wish] == 0
	}
	kinds, wholeCores := map[host.CPUKind]bool{}, siblings || s.CPUs.SMT != lane.Isolate
	for _, core := range b.t.cores {
		mine := core.Intersection(cpus)
		if mine.IsEmpty() {
			continue
		}
		first, _ := b.h.CPU(core.First())
		kinds[first.Kind] = true
		if core.Intersects(b.owned()) {
			c.SharedCores++
			for id := range core.Intersection(b.owned()).All() { // a lane of the request that had it for itself pays too
				if name := b.owners[id]; !strings.HasPrefix(name, "placed") && core.Intersection(b.owned()).IsSubsetOf(b.ownedBy(name)) {
					c.SharedCores++
					break
				}
			}
		}
		if b.hybrid && first.Kind != host.Performance && s.CPUs.Kind != string(host.Efficiency) {
			c.EfficiencyCPUs += mine.Len()
		}
		switch s.CPUs.SMT {
		case lane.Isolate:
			wholeCores = wholeCores && mine.Len() == 1 && !core.Intersects(b.owned())
		case lane.Pack:
			wholeCores = wholeCores && mine == core
		}
	}
	if s.CPUs.SMT == lane.Isolate && wholeCores {
		for _, core := range b.t.cores {
			if core.Intersects(cpus) {
				all = all.Union(core)
			}
		}
	}
	if s.CPUs.SMT != "" && !wholeCores && broken("smt") {
		return c, all, false
	}
	if k := host.CPUKind(s.CPUs.Kind); k != "" && (len(kinds) > 1 || !kinds[k]) && broken("kind") {
		return c, all, false
	}
	if len(kinds) > 1 {
		c.MixedKinds = 1
	}
	if n := s.Near.NUMANode; n != nil {
		far := 0
		for id := range cpus.All() {
			cpu, _ := b.h.CPU(id)
			far = max(far, b.h.NUMANodes[*n].Distances[*cpu.NUMANode]-10)
		}
		if c.DeviceDistance = far; far > 0 && broken("near") {
			return c, all, false
		}
	}
	c.NUMACrossings, c.L3Crossings = touched(b.t.nodes, cpus)-1, touched(b.t.l3s, cpus)-1
	return c, all, true
}

// On small machines the cost is that of an exhaustive search, for one lane and for two at once.
func TestAgainstExhaustiveSearch(t *testing.T) {
	for range 10 { // times 100 problems
		rapid.Check(t, sameAsExhaustive(t))
	}
}

func sameAsExhaustive(t *testing.T) func(*rapid.T) {
	t.Helper()
	return func(rt *rapid.T) {
		m := hosttest.Machine{Packages: rapid.IntRange(1, 2).Draw(rt, "packages"), CoresPerPackage: rapid.IntRange(1, 3).Draw(rt, "cores"),
			ThreadsPerCore: rapid.IntRange(1, 2).Draw(rt, "threads"), EfficiencyCores: rapid.IntRange(0, 2).Draw(rt, "efficiency"),
			CoresPerL3: rapid.IntRange(1, 4).Draw(rt, "perL3")}
		h := m.Host(t)
		if h.Usable().Len() < 3 {
			return
		}
		draw := func(name string, most int) lane.Lane {
			l := askFor(name, rapid.IntRange(1, most).Draw(rt, "count"), rapid.SampledFrom([]string{"", "", lane.Isolate, lane.Pack}).Draw(rt, "smt"))
			l.Spec.Preferred = map[string]int{}
			prefer := func(wish string) {
				if w := rapid.IntRange(0, 2).Draw(rt, wish); w > 0 {
					l.Spec.Preferred[wish] = w
				}
			}
			if l.Spec.CPUs.SMT != "" {
				prefer("smt")
			}
			if m.EfficiencyCores > 0 && rapid.Bool().Draw(rt, "kinds") {
				l.Spec.CPUs.Kind = rapid.SampledFrom([]string{"performance", "efficiency"}).Draw(rt, "kind")
				prefer("kind")
			}
			if m.Packages == 2 && rapid.Bool().Draw(rt, "nears") {
				node := rapid.IntRange(0, 1).Draw(rt, "node")
				l.Spec.Near.NUMANode = &node
				prefer("near")
			}
			return l
		}
		var p plan.Placement
		for i := range rapid.IntRange(0, 2).Draw(rt, "placed") {
			if next, err := Solve(h, p, []lane.Lane{draw(fmt.Sprint("placed", i), 2)}); err == nil {
				p = next
			}
		}
		lanes := []lane.Lane{draw("a", 4)}
		if rapid.Bool().Draw(rt, "two") {
			lanes = append(lanes, draw("b", 3))
		}
		b := &brute{h: h, t: truthOf(h), lanes: lanes, owners: map[int]string{}, hybrid: m.EfficiencyCores > 0}
		for _, l := range p.Lanes {
			for id := range l.Owned().All() {
				b.owners[id] = l.Name
			}
		}
		b.before = b.block()
		b.place(0, plan.Cost{})
		got, err := Solve(h, p, lanes)
		var refusal *plan.Refusal
		switch {
		case b.best == nil && errors.As(err, &refusal) && len(refusal.Blocking) > 0:
		case b.best == nil || err != nil:
			rt.Fatalf("%v; an exhaustive search finds %+v", err, b.best)
		case !got.Optimal || got.Cost != *b.best:
			rt.Fatalf("cost %+v, optimal %v; an exhaustive search finds %+v: %s", got.Cost, got.Optimal, *b.best, show(got))
		}
	}
}
