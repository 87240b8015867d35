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

// ask is a lane as the search sees it: its wishes as limits on CPUs and nodes.
type ask struct {
	name    string
	spec    lane.Spec
	share   int
	smt     string // lane.Isolate, lane.Pack or lane.Any
	kind    host.CPUKind
	oneL3   bool
	oneNode bool
	near    nodeSet    // that it must be on; none: any
	from    nodeSet    // that distance counts from; none: it does not count
	caches  cpuset.Set // L3s of the lane to be near to, by their places; none: they do not count
	banned  cpuset.Set // by wishes to be apart, and what other lanes of the request name
	list    cpuset.Set // the only CPUs to use; none: any
	boot    bool
	fast    bool // efficiency cores cost something
	memory  uint64
	huge    []hugeSize
	device  int // in the host's PCIDevices, -1 without
	vfs     int
	dropped []string // wishes that the search leaves out
}

// hugeSize is how many bytes are wanted in pages of a size.
type hugeSize struct{ page, bytes uint64 }

// wantsMemory says whether something has to be set aside.
func (a *ask) wantsMemory() bool { return a.memory > 0 || len(a.huge) > 0 }

// relaxed says which limits a search leaves out.
type relaxed struct {
	wishes     []string // of the lane's own
	others     []string // lanes whose preferred wish to be apart is left out
	boot       bool     // the lane may have the boot core
	crowded    bool     // housekeeping needs no CPU
	alone      bool     // what other lanes would rather have does not count
	allDevices bool     // all devices that would do, and not just the best of each node
}

func (r relaxed) drops(wish string) bool { return slices.Contains(r.wishes, wish) }

// asks returns the ways to ask for a lane: one for each device that would do. An error is what makes
// the lane impossible on this machine.
func (m *machine) asks(l lane.Lane, r relaxed) ([]ask, error) {
	s := l.Spec
	a := ask{name: l.Metadata.Name, spec: s, share: max(1, s.CPUs.Share), smt: s.CPUs.SMT,
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
			return nil, fmt.Errorf("spec.memory.hugepages.%s: %w", cut(size), err)
		}
		a.huge = append(a.huge, hugeSize{uint64(page), uint64(s.Memory.Hugepages[size])})
		if known := m.pageSizes(); !slices.Contains(known, uint64(page)) {
			var has []string
			for _, k := range known {
				has = append(has, quantity.Bytes(k).String())
			}
			return nil, fmt.Errorf("spec.memory.hugepages.%s: the machine has no hugepages of that size; it has %s",
				cut(size), orNone(strings.Join(has, ", ")))
		}
	}
	m.keepApart(&a, r)
	claimed, _ := m.claimed(a.name)
	a.banned = a.banned.Union(claimed)
	if err := m.approach(&a, r.drops("near")); err != nil {
		return nil, err
	}
	return m.withDevices(a, r.allDevices)
}

// cut keeps what an error repeats of its input to a sensible length.
func cut(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// approach turns the wish to be near something into nodes.
func (m *machine) approach(a *ask, dropped bool) error {
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
			return fmt.Errorf("spec.near.device: %q: the machine has %s", cut(near.Device), m.deviceNames())
		}
		a.from = m.deviceNode(d)
	}
	if !dropped {
		a.near = m.nearest(a.from)
	}
	return nil
}

// withDevices chooses the device of the network path: the one that is named, or for virtual
// functions the best one on each node, which the search then chooses from; with all, any that would do.
func (m *machine) withDevices(a ask, all bool) ([]ask, error) {
	net := a.spec.Network
	a.vfs = net.VFs
	if net.Path == "sriov" {
		a.vfs = max(1, a.vfs)
	}
	var devices []int
	switch at := m.findDevice(net.Device); {
	case net.Device == "" && a.vfs == 0:
		return []ask{a}, nil
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
		return nil, fmt.Errorf("spec.network.device: %q: the machine has %s", cut(net.Device), m.deviceNames())
	case a.vfs > m.freeVFs(at, a.name):
		return nil, fmt.Errorf("spec.network: %s has %d free virtual functions, the lane wants %d",
			cut(net.Device), m.freeVFs(at, a.name), a.vfs)
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
	ways := make([]ask, len(devices))
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

// deviceNode is the node of a device; none where the machine does not say it.
func (m *machine) deviceNode(d int) nodeSet {
	n := m.h.PCIDevices[d].NUMANode
	if n == nil {
		return 0
	}
	at := slices.IndexFunc(m.nodes, func(o node) bool { return o.id == *n })
	if at < 0 {
		return 0
	}
	return 1 << at
}

// freeVFs is how many virtual functions of a device no lane has but for the one of that name.
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

func (m *machine) nodeIDs() string {
	return orNone(m.ids(1<<len(m.nodes) - 1).String())
}

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
