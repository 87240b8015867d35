package search

import (
	"slices"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/stock"
)

// FixedCost sets the part of a place's cost that does not depend on other lanes, from its CPUs and memory
// nodes. It returns false if a required wish does not hold.
func FixedCost(m *stock.Machine, p *Place) bool {
	a, c := &p.demand, plan.Cost{}
	p.Nodes = 0
	var caches []int
	kinds, ofKind := make([]host.CPUKind, 0, 3), true
	for id := range p.CPUs.All() {
		core := &m.Cores[m.CoreOf(id)]
		domain := &m.Domains[core.Domain]
		p.Nodes |= 1 << domain.Node
		if !slices.Contains(caches, domain.Cache) {
			caches = append(caches, domain.Cache)
		}
		if !slices.Contains(kinds, core.Kind) {
			kinds = append(kinds, core.Kind)
		}
		c.UnpreparedCPUs += m.Unprepared(id)
		if a.fast && core.Kind != host.Performance {
			c.EfficiencyCPUs++
		}
		ofKind = ofKind && fits(core.Kind, host.CPUKind(a.spec.CPUs.Kind))
	}
	memory := p.Memory
	if !a.wantsMemory() {
		memory = m.FarMemory(p.Nodes)
	}
	c.NUMACrossings = (p.Nodes | memory).Len() - 1
	c.L3Crossings = len(caches) - 1
	c.MemoryDistance = m.MemoryDistance(p.Nodes, memory)
	c.MixedKinds = boolInt(len(kinds) > 1)
	v := verdict{demand: a}
	check := func(wish string, asked, is bool) { v.require(wish, !asked || is) }
	s := a.spec.CPUs
	check("smt", s.SMT == lane.Isolate || s.SMT == lane.Pack, a.smt == s.SMT)
	check("kind", s.Kind != "", ofKind)
	check("l3", s.L3 == lane.One, len(caches) == 1)
	check("numa", s.NUMA == lane.One, c.NUMACrossings == 0)
	if a.spec.Near.Lane == "" {
		c.DeviceDistance = m.DeviceDistance(a.from, p.Nodes)
		if a.spec.Near != (lane.Near{}) && a.from != 0 {
			v.require("near", p.Nodes&^m.Nearest(a.from) == 0)
		}
	}
	c.BrokenWishes = v.weight
	p.Fixed, p.broken = c, v.broken
	return !v.fails
}

// sharedCores counts the place's cores of which another lane, or reserved housekeeping, has a thread. Lanes
// that share CPUs do not count for each other. self is as in BesideCost.
func sharedCores(m *stock.Machine, p *Place, self int) int {
	n, owned := 0, p.owned()
	for id := range p.CPUs.All() {
		c := m.CoreOf(id)
		if id != firstOf(m, c, p) && !p.idle.Contains(firstOf(m, c, p)) {
			continue
		}
		for _, sibling := range m.Cores[c].CPUs {
			if !owned.Contains(sibling) && m.IsOthers(sibling, p.demand.share, self) {
				n++
				break
			}
		}
	}
	return n
}

// verdict collects which wishes of a place are broken.
type verdict struct {
	demand *demand
	weight int      // of the preferred ones
	broken []string // the preferred ones
	fails  bool     // a required one is broken
}

func (v *verdict) require(wish string, holds bool) {
	if holds {
		return
	}
	weight, soft := v.demand.spec.Preferred[wish]
	if soft {
		v.weight, v.broken = v.weight+weight, append(v.broken, wish)
	}
	v.fails = v.fails || !soft && !slices.Contains(v.demand.dropped, wish)
}

// BesideCost returns the part of a place's cost that depends on the lanes on the machine, and the broken
// preferred wishes about these. self is the index of the place's own lane if it is on the machine, else -1.
// ok is false if a required wish does not hold.
func BesideCost(m *stock.Machine, p *Place, self int) (cost plan.Cost, broken []string, ok bool) {
	c, v, s := plan.Cost{SharedCores: sharedCores(m, p, self)}, verdict{demand: &p.demand}, &p.demand.spec
	if len(s.Apart.Lanes) > 0 {
		v.require("apart", m.IsApart(p.demand.name, *s, p.CPUs))
	}
	if s.Near.Lane != "" {
		if near, ok := plan.Find(m.Lanes, s.Near.Lane); ok {
			from := m.NodesOf(near.CPUs)
			v.require("near", p.Nodes&^m.Nearest(from) == 0)
			others := m.CachesOf(p.CPUs).Difference(m.CachesOf(near.CPUs))
			c.DeviceDistance = m.DeviceDistance(from, p.Nodes) + others.Len()
		}
	}
	c.BrokenWishes = v.weight
	return c, v.broken, !v.fails
}

// price sets the cost of a place whose lane is not on the machine. whole has the CPUs of free whole cores by
// node, block the largest number of these, soft the lanes that prefer to be apart. It returns false if a
// required wish does not hold.
func price(m *stock.Machine, p *Place, whole []int, block int, soft []plan.Lane) bool {
	fixed := FixedCost(m, p)
	own, _, ok := BesideCost(m, p, -1)
	p.Cost = p.Fixed.Plus(own)
	for _, o := range soft {
		if m.OverlapAt(p.CPUs, o.CPUs, o.Spec.Apart.Level) {
			p.Cost.BrokenWishes += o.Spec.Preferred["apart"]
		}
	}
	used := make([]int, len(m.Nodes))
	for id := range p.owned().All() {
		if c := m.CoreOf(id); id == firstOf(m, c, p) && m.IsWhole(c) {
			used[m.Domains[m.Cores[c].Domain].Node] += len(m.Cores[c].CPUs)
		}
	}
	after := 0
	for n := range whole {
		after = max(after, whole[n]-used[n])
	}
	p.Cost.BlockLost = block - after
	return fixed && ok
}

// firstOf returns the lowest CPU of a core that the place has; -1 for none.
func firstOf(m *stock.Machine, c int, p *Place) int {
	for _, id := range m.Cores[c].CPUs {
		if p.CPUs.Contains(id) || p.idle.Contains(id) {
			return id
		}
	}
	return -1
}

// fits reports whether a core has the kind that a lane wants.
func fits(has, wanted host.CPUKind) bool {
	return wanted == "" || has == wanted || has == host.Uniform && wanted == host.Performance
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
