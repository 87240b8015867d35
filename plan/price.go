package plan

import (
	"slices"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
)

// fixedCost works out the part of a place's cost that other lanes have no part in. It needs its CPUs, and the
// nodes of its memory. False: a wish that must hold does not.
func (m *machine) fixedCost(p *place) bool {
	a, c := &p.ask, Cost{}
	p.nodes = 0
	var caches []int
	kinds, ofKind := make([]host.CPUKind, 0, 3), true
	for id := range p.cpus.All() {
		core := &m.cores[m.at[id]]
		domain := &m.domains[core.domain]
		p.nodes |= 1 << domain.node
		if !slices.Contains(caches, domain.cache) {
			caches = append(caches, domain.cache)
		}
		if !slices.Contains(kinds, core.kind) {
			kinds = append(kinds, core.kind)
		}
		c.UnpreparedCPUs += m.unprepared[id]
		if a.fast && core.kind != host.Performance {
			c.EfficiencyCPUs++
		}
		ofKind = ofKind && fits(core.kind, host.CPUKind(a.spec.CPUs.Kind))
	}
	c.NUMACrossings = (p.nodes | p.set).len() - 1
	c.L3Crossings = len(caches) - 1
	c.MemoryDistance = m.memoryDistance(p.nodes, p.set)
	if len(kinds) > 1 {
		c.MixedKinds = 1
	}
	v := verdict{ask: a}
	check := func(wish string, asked, is bool) { v.check(wish, !asked || is) }
	s := a.spec.CPUs
	check("smt", s.SMT == lane.Isolate || s.SMT == lane.Pack, a.smt == s.SMT)
	check("kind", s.Kind != "", ofKind)
	check("l3", s.L3 == lane.One, len(caches) == 1)
	check("numa", s.NUMA == lane.One, c.NUMACrossings == 0)
	if a.spec.Near.Lane == "" {
		c.DeviceDistance = m.deviceDistance(a.from, p.nodes)
		if a.spec.Near != (lane.Near{}) && a.from != 0 {
			v.check("near", p.nodes&^m.nearest(a.from) == 0)
		}
	}
	c.BrokenWishes = v.weight
	p.fixed, p.lost = c, v.lost
	return !v.fails
}

// sharedCores are the place's cores of which somebody else has a thread. Lanes that share CPUs are one party.
// The place itself may be on the machine already, as the lane of that number.
func (m *machine) sharedCores(p *place, self int) int {
	n, owned := 0, p.owned()
	for id := range p.cpus.All() {
		c := m.at[id]
		if id != m.firstOf(c, p) && !p.idle.Contains(m.firstOf(c, p)) {
			continue
		}
		for _, sibling := range m.cores[c].cpus {
			if !owned.Contains(sibling) && m.isOthers(sibling, p.ask.share, self) {
				n++
				break
			}
		}
	}
	return n
}

// isOthers says whether somebody has a CPU for good: another lane, unless both share CPUs, or housekeeping.
func (m *machine) isOthers(id, share, self int) bool {
	switch o := m.owner[id]; o {
	case free:
		return m.reserved[id]
	case shared:
		return share == 1
	default:
		return o != self
	}
}

// verdict collects which wishes of a place hold.
type verdict struct {
	ask    *ask
	weight int      // of those that do not and are preferred
	lost   []string // these
	fails  bool     // one does not that must
}

func (v *verdict) check(wish string, holds bool) {
	if holds {
		return
	}
	weight, soft := v.ask.spec.Preferred[wish]
	if soft {
		v.weight, v.lost = v.weight+weight, append(v.lost, wish)
	}
	v.fails = v.fails || !soft && !slices.Contains(v.ask.dropped, wish)
}

// besideCost works out the part of a place's cost that depends on the lanes that are there, and which of its
// wishes towards these hold. The place itself may be there already, as the lane of that number.
func (m *machine) besideCost(p *place, self int) (Cost, verdict) {
	c, v, s := Cost{SharedCores: m.sharedCores(p, self)}, verdict{ask: &p.ask}, &p.ask.spec
	if len(s.Apart.Lanes) > 0 {
		v.check("apart", m.isApart(p.ask.name, *s, p.cpus))
	}
	if s.Near.Lane != "" {
		if o := slices.IndexFunc(m.lanes, func(l Lane) bool { return l.Name == s.Near.Lane }); o >= 0 {
			from := m.nodesOf(m.lanes[o].CPUs)
			v.check("near", p.nodes&^m.nearest(from) == 0)
			others := m.cachesOf(p.cpus).Difference(m.cachesOf(m.lanes[o].CPUs))
			c.DeviceDistance = m.deviceDistance(from, p.nodes) + others.Len()
		}
	}
	c.BrokenWishes = v.weight
	return c, v
}

// price works out what a place costs on the machine as it is; the lane is not there. whole are the CPUs of
// free whole cores of each node, block the most of these. False: a wish that must hold does not.
func (m *machine) price(p *place, whole []int, block int, soft []Lane) bool {
	ok := m.fixedCost(p)
	own, v := m.besideCost(p, -1)
	p.cost = p.fixed.plus(own)
	for _, o := range soft {
		if m.touch(p.cpus, o.CPUs, o.Spec.Apart.Level) {
			p.cost.BrokenWishes += o.Spec.Preferred["apart"]
		}
	}
	used := make([]int, len(m.nodes))
	for id := range p.owned().All() {
		if c := m.at[id]; id == m.firstOf(c, p) && m.isWhole(c) {
			used[m.domains[m.cores[c].domain].node] += len(m.cores[c].cpus)
		}
	}
	after := 0
	for n := range whole {
		after = max(after, whole[n]-used[n])
	}
	p.cost.BlockLost = block - after
	return ok && !v.fails
}

// firstOf is the lowest CPU of a core that the place owns.
func (m *machine) firstOf(c int, p *place) int {
	for _, id := range m.cores[c].cpus {
		if p.cpus.Contains(id) || p.idle.Contains(id) {
			return id
		}
	}
	return -1
}
