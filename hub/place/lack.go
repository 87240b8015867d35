package place

import (
	"cmp"
	"slices"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/solver"
	"isolane.dev/isolane/quantity"
)

// Explain looks for a change that would help on few hosts, because that takes long: on the hosts that lack
// least, and on one for each other combination of things that hosts lack, since the cheapest change may be of
// any kind.
const (
	maxNearest = 3
	maxOthers  = 4
)

// lack is what a host has too little of for a lane, as far as that can be seen without planning.
type lack struct {
	what string  // "cpus, memory, ": each thing that is short
	many int     // how many things are short
	part float64 // the missing parts of what the lane asks for, added up
}

func (k *lack) add(what string, asked, has uint64) {
	if asked > has {
		k.what += what + ", "
		k.many++
		k.part += float64(asked-has) / float64(asked)
	}
}

// lackOf compares totals over a host. If nothing is short, it is a wish or the place of things that keeps the
// lane out.
func lackOf(e *entry, l lane.Lane) (k lack) {
	s := l.Spec
	if bounded(l) {
		k.add("cpus", uint64(s.CPUs.Count), uint64(shape(e, l).CPUs))
	}
	if total := e.Machine.MemoryBytes; total > 0 { // else the total is unknown
		k.addMemory(e, s.Memory, e.memory-min(e.memory, total/8, 512<<20)) // that much stays for housekeeping
	}
	if s.Network.VFs > 0 {
		k.add("functions", uint64(s.Network.VFs), uint64(functions(e, s.Network.Device)))
	}
	missing := func(device string) bool { return device != "" && e.Machine.FindDevice(device) < 0 }
	_, soft := s.Preferred["near"]
	card := s.Network.Path == "" && s.Network.VFs == 0 // else it may be a bridge, or VFs are counted above
	if missing(s.Near.Device) && !soft || missing(s.Network.Device) && card {
		k.add("device", 1, 0)
	}
	return k
}

// addMemory counts hugepages, which come from the pools first, and then other memory from what is left.
func (k *lack) addMemory(e *entry, m lane.Memory, free uint64) {
	var pages uint64
	for name, amount := range m.Hugepages {
		size, _ := quantity.ParseBytes(name) // valid in a lane
		pages += uint64(amount) - min(uint64(amount), e.pages[uint64(size)]*uint64(size))
	}
	k.add("hugepages", pages, free)
	k.add("memory", uint64(m.Size), free-min(free, pages))
}

// functions counts the free virtual functions of a device; with "", of the network device that has most.
func functions(e *entry, device string) (most int) {
	named := e.Machine.FindDevice(device)
	for d, dev := range e.Machine.PCIDevices {
		if device != "" && d != named || device == "" && dev.Kind != "network" {
			continue
		}
		free := slices.DeleteFunc(e.Machine.FreeFunctions(dev), func(n int) bool { return taken(e.Placed, dev, n) })
		most = max(most, len(free))
	}
	return most
}

func taken(p plan.Placement, dev host.PCIDevice, function int) bool {
	return slices.ContainsFunc(p.Lanes, func(l plan.Lane) bool {
		return slices.ContainsFunc(l.Devices, func(d plan.Device) bool {
			return d.Address == dev.Address && slices.Contains(d.VFs, function)
		})
	})
}

// keep adds up what is free on the nodes of a host.
func (e *entry) keep(nodes []solver.NodeRoom) {
	e.pages = map[uint64]uint64{}
	for _, n := range nodes {
		e.memory += n.Memory
		for size, pages := range n.Hugepages {
			e.pages[size] += pages
		}
	}
}

// nearest returns the hosts on which Explain looks, among those on which a lane does not fit.
func nearest(full []*entry, l lane.Lane) (some []*entry) {
	lacks := map[*entry]lack{}
	for _, e := range full {
		lacks[e] = lackOf(e, l)
	}
	full = slices.Clone(full)
	slices.SortStableFunc(full, func(a, b *entry) int {
		return cmp.Or(lacks[a].many-lacks[b].many, cmp.Compare(lacks[a].part, lacks[b].part))
	})
	seen := map[string]bool{}
	for _, e := range full {
		if what := lacks[e].what; !seen[what] && len(some) < maxOthers {
			seen[what] = true
			some = append(some, e)
		}
	}
	for _, e := range full {
		if len(some) < maxNearest && !slices.Contains(some, e) {
			some = append(some, e)
		}
	}
	return some
}
