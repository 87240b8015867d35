package search

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/stock"
	"isolane.dev/isolane/quantity"
)

// demand is a lane as the search sees it, with its wishes as limits on CPUs and nodes.
type demand struct {
	name    string
	spec    lane.Spec
	share   int
	smt     string // lane.Isolate, lane.Pack or lane.Any
	kind    host.CPUKind
	oneL3   bool
	oneNode bool
	near    stock.NodeSet // its CPUs must be on these; empty: anywhere
	from    stock.NodeSet // distance is measured from these; empty: it does not count
	caches  cpuset.Set    // L3s, by index, of the lane to be near to; empty: they do not count
	banned  cpuset.Set    // CPUs excluded by wishes to be apart and by other lanes' lists
	list    cpuset.Set    // the only CPUs to use; empty: any
	boot    bool
	fast    bool // efficiency cores have a cost
	memory  uint64
	huge    []stock.HugeSize
	device  int // index in the host's PCIDevices; -1 for none
	vfs     int
	dropped []string // wishes that this search ignores
}

// wantsMemory reports whether memory or hugepages are set aside for the lane.
func (a *demand) wantsMemory() bool { return a.memory > 0 || len(a.huge) > 0 }

// need returns what is set aside for the lane, from some nodes, if its CPUs are on others.
func (a *demand) need(nodes, cpus stock.NodeSet) stock.Need {
	return stock.Need{Bytes: a.memory, Huge: a.huge, Nodes: nodes, From: cpus}
}

// Relaxed says which limits a search ignores.
type Relaxed struct {
	Wishes         []string // the lane's own wishes
	Others         []string // lanes whose preferred wish to be apart is ignored
	Boot           bool     // the lane may have the boot core
	NoHousekeeping bool     // housekeeping needs no CPU
	IgnoreOthers   bool     // preferred wishes of other lanes do not count
	allDevices     bool     // try all devices, not only the best of each node
}

func (r Relaxed) drops(wish string) bool { return slices.Contains(r.Wishes, wish) }

// demandsOf returns the demands of a lane, one for each device that it could use. The error says what makes
// the lane impossible on this machine.
func demandsOf(m *stock.Machine, l lane.Lane, r Relaxed) ([]demand, error) {
	s := l.Spec
	a := demand{name: l.Metadata.Name, spec: s, share: max(1, s.CPUs.Share), smt: s.CPUs.SMT,
		kind:  host.CPUKind(s.CPUs.Kind),
		oneL3: s.CPUs.L3 == lane.One && !r.drops("l3"), oneNode: s.CPUs.NUMA == lane.One && !r.drops("numa"),
		boot: s.CPUs.Boot || r.Boot, fast: m.Performant && s.CPUs.Kind != string(host.Efficiency),
		memory: uint64(s.Memory.Size), device: -1, dropped: r.Wishes}
	if a.smt == "" || r.drops("smt") {
		a.smt = lane.Any
	}
	if r.drops("kind") {
		a.kind = ""
	}
	if !r.drops("list") {
		a.list = s.CPUs.List
	}
	for _, size := range slices.Sorted(maps.Keys(s.Memory.Hugepages)) {
		page, err := quantity.ParseBytes(size)
		if err != nil {
			return nil, fmt.Errorf("spec.memory.hugepages.%s: %w", Shorten(size), err)
		}
		a.huge = append(a.huge, stock.HugeSize{Page: uint64(page), Bytes: uint64(s.Memory.Hugepages[size])})
		if known := m.PageSizes(); !slices.Contains(known, uint64(page)) {
			var has []string
			for _, k := range known {
				has = append(has, quantity.Bytes(k).String())
			}
			return nil, fmt.Errorf("spec.memory.hugepages.%s: the machine has no hugepages of that size; it has %s",
				Shorten(size), orNone(strings.Join(has, ", ")))
		}
	}
	banForApart(m, &a, r)
	claimed, _ := m.Claimed(a.name)
	a.banned = a.banned.Union(claimed)
	if err := resolveNear(m, &a, r.drops("near")); err != nil {
		return nil, err
	}
	return perDevice(m, a, r.allDevices)
}

// banForApart bans the CPUs that wishes to be apart exclude: the lane's own wish, and those of placed lanes.
func banForApart(m *stock.Machine, a *demand, r Relaxed) {
	for _, o := range m.Lanes {
		if slices.Contains(a.spec.Apart.Lanes, o.Name) && !r.drops("apart") {
			a.banned = a.banned.Union(m.Around(o.CPUs, a.spec.Apart.Level))
		}
		if slices.Contains(o.Spec.Apart.Lanes, a.name) && !slices.Contains(r.Others, o.Name) {
			a.banned = a.banned.Union(m.Around(o.CPUs, o.Spec.Apart.Level))
		}
	}
}

// Shorten limits how much of its input an error repeats.
func Shorten(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// resolveNear turns the wish to be near something into nodes.
func resolveNear(m *stock.Machine, a *demand, dropped bool) error {
	near := a.spec.Near
	switch {
	case near.NUMANode != nil:
		if a.from = m.NodeOfID(*near.NUMANode); a.from == 0 {
			return fmt.Errorf("spec.near.numaNode: %d: the machine has nodes %s", *near.NUMANode, nodeIDs(m))
		}
	case near.Lane != "":
		if l, ok := plan.Find(m.Lanes, near.Lane); ok {
			a.from, a.caches = m.NodesOf(l.CPUs), m.CachesOf(l.CPUs)
		}
	case near.Device != "":
		d := m.Host.FindDevice(near.Device)
		if d < 0 {
			return fmt.Errorf("spec.near.device: %q: the machine has %s", Shorten(near.Device), deviceNames(m))
		}
		a.from = m.DeviceNode(d)
	}
	if !dropped {
		a.near = m.Nearest(a.from)
	}
	return nil
}

// perDevice returns a demand for each device that the network path could use: the named one; or for virtual
// functions the best one on each node, with all every one that has enough.
func perDevice(m *stock.Machine, a demand, all bool) ([]demand, error) {
	net := a.spec.Network
	a.vfs = net.VFs
	var devices []int
	switch at := m.Host.FindDevice(net.Device); {
	case net.Device == "" && a.vfs == 0:
		return []demand{a}, nil
	case at < 0 && net.Path != "" && a.vfs == 0: // a bridge or another device without a node
		return []demand{a}, nil
	case net.Device == "":
		for d, dev := range m.Host.PCIDevices {
			if dev.Kind == "network" && m.FreeVFs(d, a.name) >= a.vfs {
				devices = append(devices, d)
			}
		}
		if len(devices) == 0 {
			return nil, fmt.Errorf("spec.network.vfs: no device has %d free virtual functions: expected fewer, or a "+
				"card with SR-IOV", a.vfs)
		}
	case at < 0:
		return nil, fmt.Errorf("spec.network.device: %q: the machine has %s", Shorten(net.Device), deviceNames(m))
	case a.vfs > m.FreeVFs(at, a.name):
		return nil, fmt.Errorf("spec.network.vfs: %s has %d free virtual functions, the lane wants %d: expected "+
			"no more than are free, or another card%s", Shorten(net.Device), m.FreeVFs(at, a.name), a.vfs,
			inUse(m, at))
	default:
		if has, known := m.Queues(at); known && a.vfs == 0 && net.Queues > has {
			return nil, fmt.Errorf("spec.network.queues: %s has %d whose interrupts can be moved, the lane wants %d",
				Shorten(net.Device), has, net.Queues)
		}
		devices = []int{at}
	}
	if !all {
		slices.SortStableFunc(devices, func(x, y int) int {
			return cmp.Or(cmp.Compare(m.DeviceNode(x), m.DeviceNode(y)),
				cmp.Compare(m.FreeVFs(x, a.name), m.FreeVFs(y, a.name)))
		})
		devices = slices.CompactFunc(devices, func(a, b int) bool { return m.DeviceNode(a) == m.DeviceNode(b) })
	}
	ways := make([]demand, len(devices))
	for i, d := range devices {
		ways[i] = a
		if ways[i].device = d; a.spec.Near == (lane.Near{}) { // else distance is measured from something else
			ways[i].from = m.DeviceNode(d)
		}
	}
	return ways, nil
}

// inUse says who uses the device's virtual functions that belong to no lane.
func inUse(m *stock.Machine, device int) string {
	text := ""
	for _, d := range m.Host.PCIDevices {
		if slices.Contains(m.Host.PCIDevices[device].VFs, d.Address) && d.InUse != "" {
			text += "; " + d.Address + ": " + d.InUse
		}
	}
	return text
}

func nodeIDs(m *stock.Machine) string {
	text := orNone(m.IDs(1<<min(len(m.Nodes), stock.MostNodes) - 1).String())
	if len(m.Nodes) > stock.MostNodes {
		text += fmt.Sprintf(" and others, of which none is considered (%d at most)", stock.MostNodes)
	}
	return text
}

func deviceNames(m *stock.Machine) string {
	var names []string
	for _, d := range m.Host.PCIDevices {
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
