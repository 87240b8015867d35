package plan

import (
	"cmp"
	"fmt"
	"maps"
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

// wantsMemory says whether memory or hugepages are set aside for the lane.
func (a *demand) wantsMemory() bool { return a.memory > 0 || len(a.huge) > 0 }

// need is what is set aside for the lane, from some nodes, with its CPUs on others.
func (a *demand) need(nodes, cpus nodeSet) need {
	return need{bytes: a.memory, huge: a.huge, nodes: nodes, from: cpus}
}

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
func demandsOf(m *machine, l lane.Lane, r relaxed) ([]demand, error) {
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
	for _, size := range slices.Sorted(maps.Keys(s.Memory.Hugepages)) {
		page, err := quantity.ParseBytes(size)
		if err != nil {
			return nil, fmt.Errorf("spec.memory.hugepages.%s: %w", shorten(size), err)
		}
		a.huge = append(a.huge, hugeSize{page: uint64(page), bytes: uint64(s.Memory.Hugepages[size])})
		if known := m.pageSizes(); !slices.Contains(known, uint64(page)) {
			var has []string
			for _, k := range known {
				has = append(has, quantity.Bytes(k).String())
			}
			return nil, fmt.Errorf("spec.memory.hugepages.%s: the machine has no hugepages of that size; it has %s",
				shorten(size), orNone(strings.Join(has, ", ")))
		}
	}
	banForApart(m, &a, r)
	claimed, _ := m.claimed(a.name)
	a.banned = a.banned.Union(claimed)
	if err := resolveNear(m, &a, r.drops("near")); err != nil {
		return nil, err
	}
	return perDevice(m, a, r.allDevices)
}

// banForApart bans the CPUs that the lane's wish to be apart excludes, and those of placed lanes.
func banForApart(m *machine, a *demand, r relaxed) {
	for _, o := range m.lanes {
		if slices.Contains(a.spec.Apart.Lanes, o.Name) && !r.drops("apart") {
			a.banned = a.banned.Union(m.around(o.CPUs, a.spec.Apart.Level))
		}
		if slices.Contains(o.Spec.Apart.Lanes, a.name) && !slices.Contains(r.others, o.Name) {
			a.banned = a.banned.Union(m.around(o.CPUs, o.Spec.Apart.Level))
		}
	}
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
func resolveNear(m *machine, a *demand, dropped bool) error {
	near := a.spec.Near
	switch {
	case near.NUMANode != nil:
		at := slices.IndexFunc(m.nodes, func(n node) bool { return n.id == *near.NUMANode })
		if at < 0 {
			return fmt.Errorf("spec.near.numaNode: %d: the machine has nodes %s", *near.NUMANode, nodeIDs(m))
		}
		a.from = 1 << at
	case near.Lane != "":
		if l, ok := find(m.lanes, near.Lane); ok {
			a.from, a.caches = m.nodesOf(l.CPUs), m.cachesOf(l.CPUs)
		}
	case near.Device != "":
		d := m.findDevice(near.Device)
		if d < 0 {
			return fmt.Errorf("spec.near.device: %q: the machine has %s", shorten(near.Device), deviceNames(m))
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
func perDevice(m *machine, a demand, all bool) ([]demand, error) {
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
		return nil, fmt.Errorf("spec.network.device: %q: the machine has %s", shorten(net.Device), deviceNames(m))
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

func nodeIDs(m *machine) string { return orNone(m.ids(1<<len(m.nodes) - 1).String()) }

func deviceNames(m *machine) string {
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
