package search

import (
	"cmp"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/stock"
)

// Place is where a lane could be.
type Place struct {
	demand     demand
	CPUs       cpuset.Set
	idle       cpuset.Set
	Nodes      stock.NodeSet // of its CPUs
	Memory     stock.NodeSet // its memory may come from these
	Allocation stock.Allocation
	Fixed      plan.Cost // the part that does not depend on other lanes
	broken     []string  // the wishes that do not hold; Fixed includes their weights
	Cost       plan.Cost // the whole, beside the lanes placed at the time of the search
	tie        tie       // decides among equal costs
	Improvable bool      // there may be better places
	Searches   int       // steps of the search for it; also set if none was found
}

// compare orders places: by cost, then by how little they break up, then by their CPUs.
func (p *Place) compare(q *Place) int {
	if n := p.Cost.Compare(q.Cost); n != 0 {
		return n
	}
	return cmp.Or(p.tie.compare(q.tie), cmp.Compare(p.CPUs.First(), q.CPUs.First()))
}

func (p *Place) owned() cpuset.Set { return p.CPUs.Union(p.idle) }

// Name returns the lane's name.
func (p *Place) Name() string { return p.demand.name }

// Spec returns the lane's declaration.
func (p *Place) Spec() *lane.Spec { return &p.demand.spec }

// WantsMemory reports whether memory or hugepages are set aside for the lane.
func (p *Place) WantsMemory() bool { return p.demand.wantsMemory() }

// Need returns the memory that is set aside for the lane.
func (p *Place) Need() stock.Need { return p.demand.need(p.Memory, p.Nodes) }

// Device returns the index of the device whose virtual functions the lane gets; false if it gets none.
func (p *Place) Device() (int, bool) { return p.demand.device, p.demand.vfs > 0 }

// LaneOf returns the lane that occupies a place.
func LaneOf(m *stock.Machine, p *Place) plan.Lane {
	return plan.Lane{Name: p.demand.name, CPUs: p.CPUs, Idle: p.idle, Memory: p.Allocation.Memory,
		Hugepages: p.Allocation.Huge, Devices: devicesOf(m, p), Spec: p.demand.spec}
}

// devicesOf returns what the lane has of its device.
func devicesOf(m *stock.Machine, p *Place) []plan.Device {
	if p.demand.device < 0 {
		return nil
	}
	return []plan.Device{m.Functions(p.demand.device, p.demand.vfs)}
}

// PlaceOf returns the place of a lane that is placed.
func PlaceOf(m *stock.Machine, l plan.Lane) (Place, error) {
	ways, err := demandsOf(m, l.Declaration(), Relaxed{Wishes: l.Spec.Wishes(), allDevices: true})
	if err != nil {
		return Place{}, err
	}
	p := Place{demand: ways[0], CPUs: l.CPUs, idle: l.Idle,
		Allocation: stock.Allocation{Memory: l.Memory, Huge: l.Hugepages}}
	for _, w := range ways {
		if w.device >= 0 && len(l.Devices) > 0 && m.Host.PCIDevices[w.device].Address == l.Devices[0].Address {
			p.demand = w
		}
	}
	p.demand.dropped, p.demand.smt = nil, l.Spec.CPUs.SMT
	if p.demand.smt == "" || !m.HasWholeCores(l) {
		p.demand.smt = lane.Any
	}
	p.Memory = m.NodesOfMemory(p.Allocation)
	return p, nil
}
