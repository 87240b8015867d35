package plan

import (
	"cmp"

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
	searches   int      // that it took, also those that found none
}

// compare orders places: by cost, then by how little they break up, then by their CPUs.
func (p *place) compare(q *place) int {
	if n := p.cost.Compare(q.cost); n != 0 {
		return n
	}
	return cmp.Or(p.tie.compare(q.tie), cmp.Compare(p.cpus.First(), q.cpus.First()))
}

func (p *place) owned() cpuset.Set { return p.cpus.Union(p.idle) }

// name is that of the lane.
func (p *place) name() string { return p.demand.name }

// spec is the lane's declaration.
func (p *place) spec() *lane.Spec { return &p.demand.spec }

// wantsMemory says whether memory or hugepages are set aside for the lane.
func (p *place) wantsMemory() bool { return p.demand.wantsMemory() }

// need is the memory that is set aside for the lane.
func (p *place) need() need { return p.demand.need(p.memory, p.nodes) }

// device is the index of the device whose virtual functions the lane gets. False: it gets none.
func (p *place) device() (int, bool) { return p.demand.device, p.demand.vfs > 0 }

// lane is a place as a lane that occupies it.
func laneAt(m *machine, p *place) Lane {
	return Lane{Name: p.demand.name, CPUs: p.cpus, Idle: p.idle, Memory: p.allocation.memory,
		Hugepages: p.allocation.huge, Devices: devicesOf(m, p), Spec: p.demand.spec}
}

// devicesOf are what the lane has of its device.
func devicesOf(m *machine, p *place) []Device {
	if p.demand.device < 0 {
		return nil
	}
	return []Device{m.functions(p.demand.device, p.demand.vfs)}
}

// placeOf is the place of a lane that is placed.
func placeOf(m *machine, l Lane) (place, error) {
	ways, err := demandsOf(m, l.declaration(), relaxed{wishes: l.Spec.Wishes(), allDevices: true})
	if err != nil {
		return place{}, err
	}
	p := place{demand: ways[0], cpus: l.CPUs, idle: l.Idle, allocation: allocation{memory: l.Memory, huge: l.Hugepages}}
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
