package plan

import (
	"cmp"
	"slices"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/lane"
)

// place is where a lane could go.
type place struct {
	ask    ask
	cpus   cpuset.Set
	idle   cpuset.Set
	nodes  nodeSet // with its CPUs
	set    nodeSet // from which its memory may come
	given  allocation
	fixed  Cost     // what it costs whatever other lanes do
	lost   []string // the wishes that do not hold, for which fixed has the weights
	cost   Cost     // what it costs on the machine as it was when it was looked for
	tie    tie      // decides among equal costs
	unsure bool     // there may be better ones
}

// compare orders places: by cost, then by how little they break up, then by their CPUs.
func (p *place) compare(q *place) int {
	if n := p.cost.Compare(q.cost); n != 0 {
		return n
	}
	return cmp.Or(p.tie.compare(q.tie), cmp.Compare(p.cpus.First(), q.cpus.First()))
}

func (p *place) owned() cpuset.Set { return p.cpus.Union(p.idle) }

// lane is the place as what takes up room on a machine.
func (m *machine) lane(p *place) Lane {
	return Lane{Name: p.ask.name, CPUs: p.cpus, Idle: p.idle, Memory: p.given.memory, Hugepages: p.given.huge,
		Devices: m.devices(p), Spec: p.ask.spec}
}

// placeOf is the place of a lane that is there.
func (m *machine) placeOf(l Lane) (place, error) {
	ways, err := m.asks(declaration(l), relaxed{wishes: l.Spec.Wishes(), allDevices: true})
	if err != nil {
		return place{}, err
	}
	p := place{ask: ways[0], cpus: l.CPUs, idle: l.Idle, given: allocation{l.Memory, l.Hugepages}}
	for _, w := range ways {
		if w.device >= 0 && len(l.Devices) > 0 && m.h.PCIDevices[w.device].Address == l.Devices[0].Address {
			p.ask = w
		}
	}
	p.ask.dropped, p.ask.smt = nil, l.Spec.CPUs.SMT
	if p.ask.smt == "" || !m.hasWholeCores(l) {
		p.ask.smt = lane.Any
	}
	p.set = m.nodesOfMemory(p.given)
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
		if id >= len(m.at) || m.at[id] < 0 {
			return false
		}
		core := cpuset.Of(m.cores[m.at[id]].cpus...)
		used := core.Intersection(l.CPUs).Len()
		if !core.IsSubsetOf(owned) || l.Spec.CPUs.SMT == lane.Isolate && used != 1 ||
			l.Spec.CPUs.SMT == lane.Pack && used != core.Len() {
			return false
		}
	}
	return true
}
