package plan

import (
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
	near    []int      // places of the nodes that it must be on; nil: any
	from    []int      // places of the nodes that distance counts from; nil: it does not count
	caches  []int      // L3s of the lane to be near to, by their places; nil: they do not count
	banned  cpuset.Set // by wishes to be apart
	boot    bool
	fast    bool // efficiency cores cost something
	memory  uint64
	huge    []Memory // bytes by page size, which stands in Node's place
	device  int      // in the host's PCIDevices, -1 without
	vfs     int
	dropped []string // wishes that the search leaves out
}

// wantsMemory says whether something has to be set aside.
func (a *ask) wantsMemory() bool { return a.memory > 0 || len(a.huge) > 0 }

// relaxed says which limits a search leaves out.
type relaxed struct {
	wishes  []string // of the lane's own
	others  []string // lanes whose preferred wish to be apart is left out
	boot    bool     // the lane may have the boot core
	crowded bool     // housekeeping needs no CPU
	alone   bool     // what other lanes would rather have does not count
	anyways bool     // all devices that would do, and not just the best of each node
}

func (r relaxed) drops(wish string) bool { return slices.Contains(r.wishes, wish) }

// asks returns the ways to ask for a lane: one for each device that would do. An error is what makes
// the lane impossible on this machine.
func (m *machine) asks(l lane.Lane, r relaxed) ([]ask, error) {
	s := l.Spec
	a := ask{name: l.Metadata.Name, spec: s, share: max(1, s.CPUs.Share), smt: s.CPUs.SMT, kind: host.CPUKind(s.CPUs.Kind),
		oneL3: s.CPUs.L3 == lane.One && !r.drops("l3"), oneNode: s.CPUs.NUMA == lane.One && !r.drops("numa"),
		boot: s.CPUs.Boot || r.boot, fast: m.performant && s.CPUs.Kind != string(host.Efficiency),
		memory: uint64(s.Memory.Size), device: -1, dropped: r.wishes}
	if a.smt == "" || r.drops("smt") {
		a.smt = lane.Any
	}
	if r.drops("kind") {
		a.kind = ""
	}
	for _, size := range sortedKeys(s.Memory.Hugepages) {
		page, err := quantity.ParseBytes(size)
		if err != nil {
			return nil, fmt.Errorf("spec.memory.hugepages.%s: %w", cut(size), err)
		}
		a.huge = append(a.huge, Memory{Node: int(page), Bytes: uint64(s.Memory.Hugepages[size])})
		if !m.hasPages(uint64(page)) {
			return nil, fmt.Errorf("spec.memory.hugepages.%s: the machine has no hugepages of that size; it has %s", cut(size), m.pageSizes())
		}
	}
	m.keepApart(&a, r)
	if err := m.approach(&a, r.drops("near")); err != nil {
		return nil, err
	}
	return m.withDevices(a, r.anyways)
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
		a.from = []int{at}
	case near.Lane != "":
		for _, l := range m.lanes {
			if l.Name == near.Lane {
				a.from, a.caches = m.places(l.CPUs), m.caches(l.CPUs)
			}
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

// nearest are the nodes with CPUs that are as near as can be to some nodes: these themselves, if
// they have CPUs.
func (m *machine) nearest(from []int) []int {
	if len(from) == 0 {
		return nil
	}
	best, nearest := -1, []int{}
	for i, n := range m.nodes {
		if n.from == n.to {
			continue
		}
		d := m.nodes[from[0]].distances[i]
		for _, f := range from {
			d = min(d, m.nodes[f].distances[i])
		}
		if best < 0 || d < best {
			best, nearest = d, nil
		}
		if d == best {
			nearest = append(nearest, i)
		}
	}
	return nearest
}

// places are the nodes of CPUs, by their places.
func (m *machine) places(cpus cpuset.Set) []int {
	var places []int
	for id := range cpus.All() {
		if n := m.nodeOf(id); n >= 0 && !slices.Contains(places, n) {
			places = append(places, n)
		}
	}
	slices.Sort(places)
	return places
}

// caches are the L3s above CPUs, by their places in ascending order.
func (m *machine) caches(cpus cpuset.Set) []int {
	caches := []int{}
	for id := range cpus.All() {
		if m.nodeOf(id) >= 0 {
			if c := m.cells[m.cores[m.at[id]].cell].cache; !slices.Contains(caches, c) {
				caches = append(caches, c)
			}
		}
	}
	slices.Sort(caches)
	return caches
}

// withDevices chooses the device of the network path: the one that is named, or for virtual
// functions the best one on each node, which the search then chooses from; with all, any that would do.
func (m *machine) withDevices(a ask, all bool) ([]ask, error) {
	net := a.spec.Network
	a.vfs = net.VFs
	if net.Path == "sriov" {
		a.vfs = max(1, a.vfs)
	}
	if net.Device != "" {
		d := m.findDevice(net.Device)
		if d < 0 {
			return nil, fmt.Errorf("spec.network.device: %q: the machine has %s", cut(net.Device), m.deviceNames())
		}
		if a.vfs > m.freeVFs(d) {
			return nil, fmt.Errorf("spec.network: %s has %d free virtual functions, the lane wants %d", cut(net.Device), m.freeVFs(d), a.vfs)
		}
		return []ask{m.withDevice(a, d)}, nil
	}
	if a.vfs == 0 {
		return []ask{a}, nil
	}
	best := map[int]int{} // device by node
	var ways []ask
	for d, dev := range m.h.PCIDevices {
		if dev.Kind != "network" || m.freeVFs(d) < a.vfs {
			continue
		}
		if all {
			ways = append(ways, m.withDevice(a, d))
			continue
		}
		n := -1
		if dev.NUMANode != nil {
			n = *dev.NUMANode
		}
		if b, ok := best[n]; !ok || m.freeVFs(d) < m.freeVFs(b) {
			best[n] = d
		}
	}
	for _, n := range sortedKeys(best) {
		ways = append(ways, m.withDevice(a, best[n]))
	}
	if len(ways) == 0 {
		return nil, fmt.Errorf("spec.network.path: sriov: no device has %d free virtual functions", a.vfs)
	}
	return ways, nil
}

// withDevice is the ask with that device, from whose node distance counts unless the lane wants to be near
// something else.
func (m *machine) withDevice(a ask, d int) ask {
	a.device = d
	if a.spec.Near == (lane.Near{}) {
		a.from = m.deviceNode(d)
	}
	return a
}

func (m *machine) findDevice(name string) int {
	return slices.IndexFunc(m.h.PCIDevices, func(d host.PCIDevice) bool {
		return d.Address == name || slices.Contains(d.Netdevs, name)
	})
}

func (m *machine) deviceNode(d int) []int {
	n := m.h.PCIDevices[d].NUMANode
	if n == nil {
		return nil
	}
	at := slices.IndexFunc(m.nodes, func(o node) bool { return o.id == *n })
	if at < 0 {
		return nil
	}
	return []int{at}
}

// freeVFs is how many virtual functions of a device no lane has.
func (m *machine) freeVFs(d int) int {
	dev := m.h.PCIDevices[d]
	if dev.SRIOV == nil {
		return 0
	}
	n := dev.SRIOV.TotalVFs
	for _, l := range m.lanes {
		for _, has := range l.Devices {
			if has.Address == dev.Address {
				n -= len(has.VFs)
			}
		}
	}
	return n
}

func (m *machine) hasPages(size uint64) bool {
	return slices.ContainsFunc(m.nodes, func(n node) bool { _, ok := n.pool[size]; return ok })
}

func (m *machine) pageSizes() string {
	sizes := map[uint64]bool{}
	for _, n := range m.nodes {
		for size := range n.pool {
			sizes[size] = true
		}
	}
	var names []string
	for _, size := range sortedKeys(sizes) {
		names = append(names, quantity.Bytes(size).String())
	}
	return orNone(strings.Join(names, ", "))
}

func (m *machine) nodeIDs() string {
	var ids []int
	for _, n := range m.nodes {
		if n.id >= 0 {
			ids = append(ids, n.id)
		}
	}
	return orNone(cpuset.Of(ids...).String())
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
