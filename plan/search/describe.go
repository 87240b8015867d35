package search

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/stock"
	"isolane.dev/isolane/quantity"
)

// Describe turns a place into the lane of a placement, with the reasons. The lane must not be on the machine
// yet.
func Describe(m *stock.Machine, p Place) plan.Lane {
	l := LaneOf(m, &p)
	l.BusyPoll, l.Roles, l.MemoryNodes = p.demand.spec.Scheduling.BusyPoll, roles(p), memoryNodes(m, p)
	l.Interrupts = m.Interrupts(l)
	l.Reasons = slices.Concat(cpuReasons(m, p), memoryReasons(m, p, l), deviceReasons(m, p, l))
	return l
}

// roles gives each role its CPUs in ascending order: main first, the others by name.
func roles(p Place) map[string]cpuset.Set {
	if len(p.demand.spec.Roles) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(p.demand.spec.Roles))
	slices.SortStableFunc(names, func(a, b string) int {
		return boolInt(a != "main") - boolInt(b != "main")
	})
	cpus, out := p.CPUs.Slice(), map[string]cpuset.Set{}
	for _, name := range names {
		n := p.demand.spec.Roles[name]
		out[name], cpus = cpuset.Of(cpus[:n]...), cpus[n:]
	}
	return out
}

// memoryNodes returns the nodes of the memory that is set aside for the lane; if none is, the nodes from
// which it takes memory.
func memoryNodes(m *stock.Machine, p Place) cpuset.Set {
	if nodes := m.NodesOfMemory(p.Allocation); nodes != 0 {
		return m.IDs(nodes)
	}
	return m.IDs(m.UsualMemory(m.NodesOf(p.CPUs)))
}

// nodeReason says why the lane is on its nodes; "" if there is nothing to say.
func nodeReason(m *stock.Machine, p Place) string {
	nodes := m.NodesOf(p.CPUs)
	names, at := m.IDs(nodes), nodes.First()
	target, from := targetOf(m, p)
	word := "node"
	if nodes.Len() > 1 {
		word = "nodes"
	}
	switch {
	case !p.demand.list.IsEmpty() && len(m.Nodes) > 1:
		return fmt.Sprintf("%s %s, because the CPUs of spec.cpus.list are there",
			word, names)
	case nodes.Len() > 1:
		return fmt.Sprintf("nodes %s: %s", names, noRoom(m, p))
	case m.Nodes[at].ID < 0:
	case p.demand.spec.Near.NUMANode != nil && nodes == from:
		return fmt.Sprintf("node %s, because spec.near.numaNode says so", names)
	case target != "" && from == 0:
		return fmt.Sprintf("node %s: the machine does not say on which node %s is", names, target)
	case target != "" && from.Has(at):
		return fmt.Sprintf("node %s, because %s is there", names, target)
	case target != "":
		return fmt.Sprintf("node %s at distance %d from %s on node %s: nothing nearer has room", names,
			m.Distance(from, at), target, m.IDs(from))
	case len(m.Nodes) > 1:
		return fmt.Sprintf("node %s: of the nodes where it costs least, the one with the fewest free CPUs (%d)",
			names, freeOn(m, at, p.demand))
	}
	return ""
}

// targetOf returns what the lane wants to be near to, and its nodes; "" if nothing.
func targetOf(m *stock.Machine, p Place) (name string, nodes stock.NodeSet) {
	switch near := p.demand.spec.Near; {
	case near.Device != "":
		name = Shorten(near.Device)
	case near.NUMANode != nil:
		name = fmt.Sprintf("node %d", *near.NUMANode)
	case near.Lane != "":
		l, ok := plan.Find(m.Lanes, near.Lane)
		if !ok {
			return "", 0
		}
		return "lane " + l.Name, m.NodesOf(l.CPUs)
	case p.demand.device >= 0:
		name = deviceName(m.Host.PCIDevices[p.demand.device])
	}
	return name, p.demand.from
}

// noRoom says why the lane is on several nodes.
func noRoom(m *stock.Machine, p Place) string {
	most, at := 0, 0
	for n := range m.Nodes {
		if free := freeOn(m, n, p.demand); free > most {
			most, at = free, n
		}
	}
	count, id := p.demand.spec.CPUs.Count, m.Nodes[at].ID
	switch {
	case most < count:
		return fmt.Sprintf("no node alone has room for %d CPUs as asked; the most is %d, on node %d",
			count, most, id)
	case p.demand.wantsMemory():
		return fmt.Sprintf("no node alone has room for %d CPUs as asked and for the memory", count)
	}
	return fmt.Sprintf("node %d alone had room for %d CPUs as asked, but all lanes together cost less like this",
		id, count)
}

// freeOn returns how many CPUs the lane could have on a node.
func freeOn(m *stock.Machine, n int, a demand) int {
	a.near = 0
	return newSearch(m, a, nil).room[n]
}

func deviceName(d host.PCIDevice) string {
	if len(d.Netdevs) > 0 {
		return d.Netdevs[0]
	}
	return d.Address
}

// reason is a text, and whether it is true.
type reason struct {
	holds bool
	text  string
}

// holding returns the texts that are true.
func holding(reasons []reason) []string {
	var texts []string
	for _, r := range reasons {
		if r.holds {
			texts = append(texts, r.text)
		}
	}
	return texts
}

// cpuReasons says why the lane has these nodes and CPUs.
func cpuReasons(m *stock.Machine, p Place) []string {
	node := nodeReason(m, p)
	var isolated cpuset.Set
	if m.Host.Kernel.Isolated != nil {
		isolated = p.CPUs.Intersection(*m.Host.Kernel.Isolated)
	}
	mixed, slow, joined := p.Fixed.MixedKinds > 0, p.Fixed.EfficiencyCPUs > 0, 0
	for id := range p.CPUs.All() {
		joined += boolInt(m.Owner(id) == stock.Several)
	}
	return holding([]reason{
		{node != "", node},
		{true, cacheReason(m, p)},
		{!p.idle.IsEmpty(),
			fmt.Sprintf("CPUs %s stay idle: they are siblings, and the lane pays for whole cores", p.idle)},
		{mixed, "performance and efficiency cores mixed: neither kind alone has room at the same cost"},
		{slow && !mixed,
			"on efficiency cores: performance cores come first, but would raise a cost that counts more"},
		{!slow && !mixed && m.Performant && p.demand.fast && p.demand.spec.CPUs.Kind == "",
			"on performance cores, which come first where spec.cpus.kind says nothing"},
		{!m.Performant && p.demand.list.IsEmpty() && unlike(m.Host),
			"some cores have more threads than others, and the machine does not say which are performance cores: " +
				"spec.cpus.list chooses CPUs"},
		{!p.demand.boot, fmt.Sprintf("not CPUs %s: the boot core stays housekeeping", m.BootCore())},
		{true, balanceReason(m, p)},
		{!isolated.IsEmpty(), fmt.Sprintf("CPUs %s are isolated by the kernel", isolated)},
		{p.Fixed.UnpreparedCPUs > 0, "some CPUs are not of those that boot prepared (isolcpus=, nohz_full=), " +
			"which have no room at the same cost"},
		{p.demand.share > 1, fmt.Sprintf("up to %d lanes share each CPU; %d of the %d had a lane already",
			p.demand.share, joined, p.CPUs.Len())},
	})
}

// unlike reports whether online cores have different numbers of threads for an unknown reason.
func unlike(h host.Host) bool {
	first, second, unknown := 0, 0, false // threads of their cores
	for i := range h.CPUs {
		if c := &h.CPUs[i]; c.Online && c.Thread != nil {
			first, second = first+boolInt(*c.Thread == 0), second+boolInt(*c.Thread == 1)
			unknown = unknown || c.Kind == ""
		}
	}
	return unknown && 0 < second && second < first
}

// cacheReason says below which L3s the lane is.
func cacheReason(m *stock.Machine, p Place) string {
	l3 := m.Domains[m.Cores[m.CoreOf(p.CPUs.First())].Domain].L3
	left, others := below(m, l3, p)
	switch count := m.CachesOf(p.CPUs).Len(); {
	case !p.demand.list.IsEmpty():
		return fmt.Sprintf("CPUs %s, because spec.cpus.list names them", p.CPUs)
	case count > 1:
		return fmt.Sprintf("CPUs %s below %d L3 caches: no L3 alone has room for them", p.CPUs, count)
	case l3 < 0:
		return fmt.Sprintf("CPUs %s: the machine does not say which L3 they share", p.CPUs)
	case left == 0 && len(others) > 0:
		return fmt.Sprintf("CPUs %s, because they complete L3 %d: the rest is of %s", p.CPUs, l3,
			strings.Join(others, ", "))
	case left == 0:
		return fmt.Sprintf("CPUs %s: all of L3 %d", p.CPUs, l3)
	}
	return fmt.Sprintf("CPUs %s: below one L3 (%d), which has %d more free", p.CPUs, l3, left)
}

// balanceReason says who spreads the lane's threads over its CPUs.
func balanceReason(m *stock.Machine, p Place) string {
	switch {
	case p.CPUs.Len() == 1:
		return "one CPU: nothing to balance"
	case !p.demand.spec.Spread():
		return "not balanced: bind each thread to its CPU (spec.cpus.balance: true spreads them)"
	case !p.demand.spec.Balanced():
		return "not balanced: the roles have all CPUs; isolane spreads threads that are not bound to one"
	case p.CPUs.Intersects(m.Host.BootIsolated()):
		return "isolane spreads the threads: the kernel balances no CPUs of isolcpus="
	}
	return "the kernel balances the threads over these CPUs and no others"
}

// below counts the CPUs below an L3 that stay free, and names the other lanes there.
func below(m *stock.Machine, l3 int, p Place) (left int, others []string) {
	for _, c := range m.Domains {
		for k := c.From; c.L3 == l3 && k < c.To; k++ {
			for _, id := range m.Cores[k].CPUs {
				switch o := m.Owner(id); {
				case p.CPUs.Contains(id) || p.idle.Contains(id):
				case o == stock.Nobody:
					left++
				case o >= 0 && !slices.Contains(others, m.Lanes[o].Name):
					others = append(others, m.Lanes[o].Name)
				}
			}
		}
	}
	return left, others
}

func memoryReasons(m *stock.Machine, p Place, l plan.Lane) []string {
	var why []string
	for _, h := range p.Allocation.Memory {
		why = append(why, fmt.Sprintf("%s of memory on node %d", quantity.Bytes(h.Bytes), h.Node))
	}
	for _, h := range p.Allocation.Huge {
		text := fmt.Sprintf("%d hugepages of %s on node %d", h.Pages, quantity.Bytes(h.PageBytes), h.Node)
		if h.Reserve > 0 {
			text += fmt.Sprintf(", %d of which have to be reserved", h.Reserve)
		}
		if total, free := poolOf(m.Host, h); free < h.Pages-h.Reserve {
			text += fmt.Sprintf("; of the %d in its pool %d are free now", total, free)
		}
		why = append(why, text)
	}
	if near := m.IDs(m.NodesOf(p.CPUs)); near != l.MemoryNodes && !near.IsEmpty() {
		why = append(why, fmt.Sprintf("memory of nodes %s: the nearest that have enough for all lanes",
			l.MemoryNodes))
	}
	return why
}

// poolOf returns how many pages the pool of hugepages has, and how many of these are free.
func poolOf(h host.Host, pages plan.Hugepages) (total, free uint64) {
	for _, n := range h.NUMANodes {
		for _, p := range n.Hugepages {
			if n.ID == pages.Node && p.PageBytes == pages.PageBytes && p.Total != nil && p.Free != nil {
				return *p.Total, *p.Free
			}
		}
	}
	return pages.Pages, pages.Pages
}

func deviceReasons(m *stock.Machine, p Place, l plan.Lane) []string {
	var why []string
	for _, d := range l.Devices {
		if len(d.VFs) == 0 {
			continue
		}
		text := fmt.Sprintf("virtual functions %v of %s", d.VFs, deviceName(m.Host.PCIDevices[p.demand.device]))
		if len(d.Virtual) < len(d.VFs) {
			text += ", which have to be created first"
		}
		why = append(why, text)
	}
	// Else there is no network card, or the queues are those of its virtual functions.
	if want := p.demand.spec.Network.Queues; want > 0 && len(l.Devices) > 0 && p.demand.vfs == 0 {
		why = append(why, fmt.Sprintf("%d of %d interrupts of %s go to the lane's CPUs",
			min(want, len(l.Interrupts)), want, p.demand.spec.Network.Device))
	}
	return why
}
