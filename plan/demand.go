package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/quantity"
)

// demand is a lane as the search sees it: its wishes as limits on CPUs and nodes.
type demand struct {
	name    string
	spec    lane.Spec
	share   int
	smt     string // lane.Isolate, lane.Pack or lane.Any
	kind    host.CPUKind
	oneL3   bool
	oneNode bool
	near    nodeSet    // its CPUs must be on these; none: any
	from    nodeSet    // distance counts from these; none: it does not count
	caches  cpuset.Set // L3s, by index, of the lane to be near to; none: they do not count
	banned  cpuset.Set // CPUs excluded by wishes to be apart and by the lists of other lanes
	list    cpuset.Set // the only CPUs to use; none: any
	boot    bool
	fast    bool // efficiency cores cost something
	memory  uint64
	huge    []hugeSize
	device  int // in the host's PCIDevices, -1 without
	vfs     int
	dropped []string // wishes that do not limit this search
}

// hugeSize is bytes in pages of one size.
type hugeSize struct{ page, bytes uint64 }

// wantsMemory says whether memory or hugepages are set aside for the lane.
func (a *demand) wantsMemory() bool { return a.memory > 0 || len(a.huge) > 0 }

// relaxed are the limits that a search leaves out.
type relaxed struct {
	wishes         []string // of the lane's own
	others         []string // lanes whose preferred wish to be apart is left out
	boot           bool     // the lane may have the boot core
	noHousekeeping bool     // housekeeping needs no CPU
	ignoreOthers   bool     // preferred wishes of other lanes do not count
	allDevices     bool     // try all devices, not just the best of each node
}

func (r relaxed) drops(wish string) bool { return slices.Contains(r.wishes, wish) }

// demands are those of a lane, one for each device that it could use. The error is what makes the lane
// impossible on this machine.
func (m *machine) demands(l lane.Lane, r relaxed) ([]demand, error) {
	s := l.Spec
	a := demand{name: l.Metadata.Name, spec: s, share: max(1, s.CPUs.Share), smt: s.CPUs.SMT,
		kind:  host.CPUKind(s.CPUs.Kind),
		oneL3: s.CPUs.L3 == lane.One && !r.drops("l3"), oneNode: s.CPUs.NUMA == lane.One && !r.drops("numa"),
		boot: s.CPUs.Boot || r.boot, fast: m.performant && s.CPUs.Kind != string(host.Efficiency),
		memory: uint64(s.Memory.Size), device: -1, dropped: r.wishes}
	if a.smt == "" || r.drops("smt") {
		a.smt = lane.Any
	}
	if r.drops("kind") {
		a.kind = ""
	}
	if !r.drops("list") {
		a.list = s.CPUs.List
	}
	for _, size := range sortedKeys(s.Memory.Hugepages) {
		page, err := quantity.ParseBytes(size)
		if err != nil {
			return nil, fmt.Errorf("spec.memory.hugepages.%s: %w", shorten(size), err)
		}
		a.huge = append(a.huge, hugeSize{uint64(page), uint64(s.Memory.Hugepages[size])})
		if known := m.pageSizes(); !slices.Contains(known, uint64(page)) {
			var has []string
			for _, k := range known {
				has = append(has, quantity.Bytes(k).String())
			}
			return nil, fmt.Errorf("spec.memory.hugepages.%s: the machine has no hugepages of that size; it has %s",
				shorten(size), orNone(strings.Join(has, ", ")))
		}
	}
	m.banForApart(&a, r)
	claimed, _ := m.claimed(a.name)
	a.banned = a.banned.Union(claimed)
	if err := m.resolveNear(&a, r.drops("near")); err != nil {
		return nil, err
	}
	return m.perDevice(a, r.allDevices)
}

// shorten limits what an error repeats of its input.
func shorten(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// resolveNear turns the wish to be near something into nodes.
func (m *machine) resolveNear(a *demand, dropped bool) error {
	near := a.spec.Near
	switch {
	case near.NUMANode != nil:
		at := slices.IndexFunc(m.nodes, func(n node) bool { return n.id == *near.NUMANode })
		if at < 0 {
			return fmt.Errorf("spec.near.numaNode: %d: the machine has nodes %s", *near.NUMANode, m.nodeIDs())
		}
		a.from = 1 << at
	case near.Lane != "":
		if l, ok := find(m.lanes, near.Lane); ok {
			a.from, a.caches = m.nodesOf(l.CPUs), m.cachesOf(l.CPUs)
		}
	case near.Device != "":
		d := m.findDevice(near.Device)
		if d < 0 {
			return fmt.Errorf("spec.near.device: %q: the machine has %s", shorten(near.Device), m.deviceNames())
		}
		a.from = m.deviceNode(d)
	}
	if !dropped {
		a.near = m.nearest(a.from)
	}
	return nil
}

// perDevice is a demand for each device of the network path: the one that is named; or, for virtual
// functions, the best one on each node; or with all, each that has enough.
func (m *machine) perDevice(a demand, all bool) ([]demand, error) {
	net := a.spec.Network
	a.vfs = net.VFs
	if net.Path == "sriov" {
		a.vfs = max(1, a.vfs)
	}
	var devices []int
	switch at := m.findDevice(net.Device); {
	case net.Device == "" && a.vfs == 0:
		return []demand{a}, nil
	case net.Device == "":
		for d, dev := range m.h.PCIDevices {
			if dev.Kind == "network" && m.freeVFs(d, a.name) >= a.vfs {
				devices = append(devices, d)
			}
		}
		if len(devices) == 0 {
			return nil, fmt.Errorf("spec.network.path: sriov: no device has %d free virtual functions", a.vfs)
		}
	case at < 0:
		return nil, fmt.Errorf("spec.network.device: %q: the machine has %s", shorten(net.Device), m.deviceNames())
	case a.vfs > m.freeVFs(at, a.name):
		return nil, fmt.Errorf("spec.network: %s has %d free virtual functions, the lane wants %d",
			shorten(net.Device), m.freeVFs(at, a.name), a.vfs)
	default:
		devices = []int{at}
	}
	if !all {
		slices.SortStableFunc(devices, func(x, y int) int {
			return cmp.Or(cmp.Compare(m.deviceNode(x), m.deviceNode(y)),
				cmp.Compare(m.freeVFs(x, a.name), m.freeVFs(y, a.name)))
		})
		devices = slices.CompactFunc(devices, func(a, b int) bool { return m.deviceNode(a) == m.deviceNode(b) })
	}
	ways := make([]demand, len(devices))
	for i, d := range devices {
		ways[i] = a
		if ways[i].device = d; a.spec.Near == (lane.Near{}) { // else distance counts from something else
			ways[i].from = m.deviceNode(d)
		}
	}
	return ways, nil
}

func (m *machine) findDevice(name string) int {
	return slices.IndexFunc(m.h.PCIDevices, func(d host.PCIDevice) bool {
		return d.Address == name || slices.Contains(d.Netdevs, name)
	})
}

// deviceNode is the node of a device; none where it is not known.
func (m *machine) deviceNode(d int) nodeSet {
	id := known(m.h.PCIDevices[d].NUMANode, -2) // no node has this number
	at := slices.IndexFunc(m.nodes, func(n node) bool { return n.id == id })
	if at < 0 {
		return 0
	}
	return 1 << at
}

// freeVFs is how many virtual functions of a device no lane other than the one of that name has.
func (m *machine) freeVFs(d int, name string) int {
	dev := m.h.PCIDevices[d]
	if dev.SRIOV == nil {
		return 0
	}
	n := dev.SRIOV.TotalVFs
	for _, l := range m.lanes {
		for _, has := range l.Devices {
			if has.Address == dev.Address && l.Name != name {
				n -= len(has.VFs)
			}
		}
	}
	return n
}

// pageSizes are the sizes of hugepages that the machine has.
func (m *machine) pageSizes() []uint64 {
	sizes := map[uint64]bool{}
	for _, n := range m.nodes {
		for size := range n.pool {
			sizes[size] = true
		}
	}
	return sortedKeys(sizes)
}

func (m *machine) nodeIDs() string { return orNone(m.ids(1<<len(m.nodes) - 1).String()) }

func (m *machine) deviceNames() string {
	var names []string
	for _, d := range m.h.PCIDevices {
		if d.PF == nil && len(d.Netdevs) > 0 {
			names = append(names, d.Netdevs...)
		}
	}
	return "the network devices " + orNone(strings.Join(names, ", "))
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
