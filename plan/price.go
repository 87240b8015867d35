package plan

import (
	"slices"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
)

// fixedCost sets the part of a place's cost that does not depend on other lanes, from its CPUs and the nodes
// of its memory. False: a required wish does not hold.
func fixedCost(m *machine, p *place) bool {
	a, c := &p.demand, Cost{}
	p.nodes = 0
	var caches []int
	kinds, ofKind := make([]host.CPUKind, 0, 3), true
	for id := range p.cpus.All() {
		core := &m.cores[m.CoreOf(id)]
		domain := &m.domains[core.domain]
		p.nodes |= 1 << domain.node
		if !slices.Contains(caches, domain.cache) {
			caches = append(caches, domain.cache)
		}
		if !slices.Contains(kinds, core.kind) {
			kinds = append(kinds, core.kind)
		}
		c.UnpreparedCPUs += m.Unprepared(id)
		if a.fast && core.kind != host.Performance {
			c.EfficiencyCPUs++
		}
		ofKind = ofKind && fits(core.kind, host.CPUKind(a.spec.CPUs.Kind))
	}
	c.NUMACrossings = (p.nodes | p.memory).len() - 1
	c.L3Crossings = len(caches) - 1
	c.MemoryDistance = m.memoryDistance(p.nodes, p.memory)
	c.MixedKinds = boolInt(len(kinds) > 1)
	v := verdict{demand: a}
	check := func(wish string, asked, is bool) { v.require(wish, !asked || is) }
	s := a.spec.CPUs
	check("smt", s.SMT == lane.Isolate || s.SMT == lane.Pack, a.smt == s.SMT)
	check("kind", s.Kind != "", ofKind)
	check("l3", s.L3 == lane.One, len(caches) == 1)
	check("numa", s.NUMA == lane.One, c.NUMACrossings == 0)
	if a.spec.Near.Lane == "" {
		c.DeviceDistance = m.deviceDistance(a.from, p.nodes)
		if a.spec.Near != (lane.Near{}) && a.from != 0 {
			v.require("near", p.nodes&^m.nearest(a.from) == 0)
		}
	}
	c.BrokenWishes = v.weight
	p.fixed, p.broken = c, v.broken
	return !v.fails
}

// sharedCores counts the place's cores of which another lane, or housekeeping for good, has a thread; lanes
// that share CPUs do not count for each other. self is as in besideCost.
func sharedCores(m *machine, p *place, self int) int {
	n, owned := 0, p.owned()
	for id := range p.cpus.All() {
		c := m.CoreOf(id)
		if id != firstOf(m, c, p) && !p.idle.Contains(firstOf(m, c, p)) {
			continue
		}
		for _, sibling := range m.cores[c].cpus {
			if !owned.Contains(sibling) && m.isOthers(sibling, p.demand.share, self) {
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

// besideCost is the part of a place's cost that depends on the lanes on the machine, and its preferred wishes
// about these that are broken. self is the index of the place's own lane if that is on the machine, else -1.
// False: a required wish does not hold.
func besideCost(m *machine, p *place, self int) (cost Cost, broken []string, ok bool) {
	c, v, s := Cost{SharedCores: sharedCores(m, p, self)}, verdict{demand: &p.demand}, &p.demand.spec
	if len(s.Apart.Lanes) > 0 {
		v.require("apart", m.isApart(p.demand.name, *s, p.cpus))
	}
	if s.Near.Lane != "" {
		if near, ok := find(m.lanes, s.Near.Lane); ok {
			from := m.nodesOf(near.CPUs)
			v.require("near", p.nodes&^m.nearest(from) == 0)
			others := m.cachesOf(p.cpus).Difference(m.cachesOf(near.CPUs))
			c.DeviceDistance = m.deviceDistance(from, p.nodes) + others.Len()
		}
	}
	c.BrokenWishes = v.weight
	return c, v.broken, !v.fails
}

// price sets the cost of a place whose lane is not on the machine. whole are the CPUs of free whole cores by
// node, block the most of these, soft the lanes that prefer to be apart. False: a required wish does not
// hold.
func price(m *machine, p *place, whole []int, block int, soft []Lane) bool {
	fixed := fixedCost(m, p)
	own, _, ok := besideCost(m, p, -1)
	p.cost = p.fixed.plus(own)
	for _, o := range soft {
		if m.overlapAt(p.cpus, o.CPUs, o.Spec.Apart.Level) {
			p.cost.BrokenWishes += o.Spec.Preferred["apart"]
		}
	}
	used := make([]int, len(m.nodes))
	for id := range p.owned().All() {
		if c := m.CoreOf(id); id == firstOf(m, c, p) && m.isWhole(c) {
			used[m.domains[m.cores[c].domain].node] += len(m.cores[c].cpus)
		}
	}
	after := 0
	for n := range whole {
		after = max(after, whole[n]-used[n])
	}
	p.cost.BlockLost = block - after
	return fixed && ok
}

// firstOf is the lowest CPU of a core that the place has; -1 is none.
func firstOf(m *machine, c int, p *place) int {
	for _, id := range m.cores[c].cpus {
		if p.cpus.Contains(id) || p.idle.Contains(id) {
			return id
		}
	}
	return -1
}

// fits says whether a core is of the kind that a lane wants.
func fits(has, wanted host.CPUKind) bool {
	return wanted == "" || has == wanted || has == host.Uniform && wanted == host.Performance
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
