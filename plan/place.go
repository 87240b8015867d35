package plan

import (
	"cmp"
	"slices"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/lane"
)

// place is where a lane could be.
type place struct {
	demand     demand
	cpus       cpuset.Set
	idle       cpuset.Set
	nodes      nodeSet // of its CPUs
	memory     nodeSet // from which its memory may come
	allocation allocation
	fixed      Cost     // the part that does not depend on other lanes
	broken     []string // the wishes that do not hold, whose weights are in fixed
	cost       Cost     // all of it, beside the lanes that were placed at the time of the search
	tie        tie      // decides among equal costs
	improvable bool     // there may be better places
}

// compare orders places: by cost, then by how little they break up, then by their CPUs.
func (p *place) compare(q *place) int {
	if n := p.cost.Compare(q.cost); n != 0 {
		return n
	}
	return cmp.Or(p.tie.compare(q.tie), cmp.Compare(p.cpus.First(), q.cpus.First()))
}

func (p *place) owned() cpuset.Set { return p.cpus.Union(p.idle) }

// lane is a place as a lane that occupies it.
func (m *machine) lane(p *place) Lane {
	return Lane{Name: p.demand.name, CPUs: p.cpus, Idle: p.idle, Memory: p.allocation.memory,
		Hugepages: p.allocation.huge, Devices: m.devices(p), Spec: p.demand.spec}
}

// placeOf is the place of a lane that is placed.
func (m *machine) placeOf(l Lane) (place, error) {
	ways, err := m.demands(declaration(l), relaxed{wishes: l.Spec.Wishes(), allDevices: true})
	if err != nil {
		return place{}, err
	}
	p := place{demand: ways[0], cpus: l.CPUs, idle: l.Idle, allocation: allocation{l.Memory, l.Hugepages}}
	for _, w := range ways {
		if w.device >= 0 && len(l.Devices) > 0 && m.h.PCIDevices[w.device].Address == l.Devices[0].Address {
			p.demand = w
		}
	}
	p.demand.dropped, p.demand.smt = nil, l.Spec.CPUs.SMT
	if p.demand.smt == "" || !m.hasWholeCores(l) {
		p.demand.smt = lane.Any
	}
	p.memory = m.nodesOfMemory(p.allocation)
	return p, nil
}

// nodesOfMemory are the nodes that give memory.
func (m *machine) nodesOfMemory(g allocation) nodeSet {
	var set nodeSet
	for n, at := range m.nodes {
		if slices.ContainsFunc(g.memory, func(h Memory) bool { return h.Node == at.id }) ||
			slices.ContainsFunc(g.huge, func(h Hugepages) bool { return h.Node == at.id }) {
			set |= 1 << n
		}
	}
	return set
}

// hasWholeCores says whether a lane's wish for whole cores holds.
func (m *machine) hasWholeCores(l Lane) bool {
	owned := l.Owned()
	for id := range owned.All() {
		if id >= len(m.coreOf) || m.coreOf[id] < 0 {
			return false
		}
		core := cpuset.Of(m.cores[m.coreOf[id]].cpus...)
		used := core.Intersection(l.CPUs).Len()
		if !core.IsSubsetOf(owned) || l.Spec.CPUs.SMT == lane.Isolate && used != 1 ||
			l.Spec.CPUs.SMT == lane.Pack && used != core.Len() {
			return false
		}
	}
	return true
}
