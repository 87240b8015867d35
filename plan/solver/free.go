package solver

import (
	"maps"
	"slices"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/search"
	"isolane.dev/isolane/plan/stock"
)

// Room is what is free on a host.
type Room struct {
	CPUs   cpuset.Set // for lanes, but housekeeping needs one of them
	Nodes  []NodeRoom // by number
	Shapes []Shape
}

// NodeRoom is what is free on a NUMA node.
type NodeRoom struct {
	Node      int // -1: the machine does not say
	CPUs      cpuset.Set
	L3        map[int]cpuset.Set          // free CPUs by the machine's number of the L3, if known
	Kinds     map[host.CPUKind]cpuset.Set // free CPUs by the kind of their core
	Memory    uint64                      // bytes; 0: none or unknown
	Hugepages map[uint64]uint64           // free pages of the node's pools, by size in bytes
}

// Shape is the largest lane of its kind that fits.
type Shape struct {
	SMT, Within string // lane.Any, Isolate or Pack; "", "node" or "l3"
	CPUs        int    // 0: none fits
}

// Free returns what is free beside the placed lanes, and the largest lanes that Solve would place. It fails
// with a *plan.Mismatch.
func Free(h host.Host, placed plan.Placement) (Room, error) {
	r, m, err := room(h, placed)
	if err != nil {
		return r, err
	}
	for _, smt := range []string{lane.Any, lane.Isolate, lane.Pack} {
		for _, within := range []string{"", "node", "l3"} {
			s := Shape{SMT: smt, Within: within}
			for n := min(r.CPUs.Len(), largest(m, within)); n > 0 && s.CPUs == 0; n-- {
				if fitsShape(m, s, n) {
					s.CPUs = n
				}
			}
			r.Shapes = append(r.Shapes, s)
		}
	}
	return r, nil
}

// FreeNodes is Free without the shapes, for callers that ask often.
func FreeNodes(h host.Host, placed plan.Placement) ([]NodeRoom, error) {
	r, _, err := room(h, placed)
	return r.Nodes, err
}

func room(h host.Host, placed plan.Placement) (Room, *stock.Machine, error) {
	if err := placed.Check(h); err != nil {
		return Room{}, nil, err
	}
	m := stock.New(h, placed.Lanes)
	free := m.Free()
	r := Room{CPUs: free.Difference(m.BootCore())}
	for n, at := range m.Nodes {
		bytes, pool := m.FreeMemory(n)
		room := NodeRoom{Node: at.ID, L3: map[int]cpuset.Set{}, Kinds: map[host.CPUKind]cpuset.Set{},
			Memory: bytes, Hugepages: pool}
		for _, d := range m.Domains[at.From:at.To] {
			for c := d.From; c < d.To; c++ {
				cpus := cpuset.Of(m.Cores[c].CPUs...).Intersection(r.CPUs)
				room.CPUs, room.Kinds[m.Cores[c].Kind] = room.CPUs.Union(cpus), room.Kinds[m.Cores[c].Kind].Union(cpus)
				if d.L3 >= 0 {
					room.L3[d.L3] = room.L3[d.L3].Union(cpus)
				}
			}
		}
		r.Nodes = append(r.Nodes, room)
	}
	// The machine has nodes with CPUs first.
	slices.SortFunc(r.Nodes, func(a, b NodeRoom) int { return a.Node - b.Node })
	return r, m, nil
}

// largest returns how many free CPUs the largest part of a machine has, of those that a lane may be within.
func largest(m *stock.Machine, within string) int {
	if within == "" {
		return m.Free().Len()
	}
	count := map[int]int{} // by part
	for id := range m.Free().All() {
		d := m.Domains[m.Cores[m.CoreOf(id)].Domain]
		count[map[string]int{"node": d.Node, "l3": d.Cache}[within]]++
	}
	return slices.Max(append(slices.Collect(maps.Values(count)), 0))
}

// fitsShape reports whether a lane of that shape and number of CPUs fits.
func fitsShape(m *stock.Machine, s Shape, count int) bool {
	l := lane.Lane{Spec: lane.Spec{CPUs: lane.CPUs{Count: count, SMT: s.SMT}}}
	switch s.Within {
	case "node":
		l.Spec.CPUs.NUMA = lane.One
	case "l3":
		l.Spec.CPUs.L3 = lane.One
	}
	_, ok, err := search.Best(m, l, search.Relaxed{})
	return ok && err == nil
}
