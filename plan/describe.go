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

// describe writes a place down as what the lane holds, with the reasons. The machine is still as it
// was before the lane has it.
func (m *machine) describe(p place) Lane {
	l := m.lane(&p)
	l.BusyPoll, l.Roles, l.MemoryNodes = p.ask.spec.Scheduling.BusyPoll, roles(p), m.memoryNodes(p)
	l.Interrupts = m.interrupts(l)
	l.Reasons = slices.Concat(m.nodeReasons(p), m.coreReasons(p), m.memoryReasons(p, l), m.deviceReasons(p, l))
	return l
}

// roles gives each role its CPUs in ascending order: main first, the others by name.
func roles(p place) map[string]cpuset.Set {
	if len(p.ask.spec.Roles) == 0 {
		return nil
	}
	names := sortedKeys(p.ask.spec.Roles)
	slices.SortStableFunc(names, func(a, b string) int {
		return boolInt(a != "main") - boolInt(b != "main")
	})
	cpus, out := p.cpus.Slice(), map[string]cpuset.Set{}
	for _, name := range names {
		n := p.ask.spec.Roles[name]
		out[name], cpus = cpuset.Of(cpus[:n]...), cpus[n:]
	}
	return out
}

// devices are what the lane holds of the device of its place.
func (m *machine) devices(p *place) []Device {
	if p.ask.device < 0 {
		return nil
	}
	dev := m.h.PCIDevices[p.ask.device]
	d := Device{Address: dev.Address}
	var taken []int
	for _, l := range m.lanes {
		for _, has := range l.Devices {
			if has.Address == dev.Address {
				taken = append(taken, has.VFs...)
			}
		}
	}
	for i := 0; len(d.VFs) < p.ask.vfs; i++ {
		if slices.Contains(taken, i) {
			continue
		}
		d.VFs = append(d.VFs, i)
		if i < len(dev.VFs) {
			d.Virtual = append(d.Virtual, dev.VFs[i])
		}
	}
	return []Device{d}
}

// memoryNodes are where the lane's memory comes from: the nodes set aside for it, or those of its
// CPUs; where these have no memory that it may use, the nearest that have.
func (m *machine) memoryNodes(p place) cpuset.Set {
	var ids []int
	for _, h := range p.given.memory {
		ids = append(ids, h.Node)
	}
	for _, h := range p.given.huge {
		ids = append(ids, h.Node)
	}
	if len(ids) > 0 {
		return cpuset.Of(ids...)
	}
	own := m.nodesOf(p.cpus)
	best, nearest := 0, nodeSet(0)
	for i, n := range m.nodes {
		d := m.distance(own, i)
		if own.has(i) {
			d = 0
		}
		if !n.hasMemory || nearest != 0 && d > best {
			continue
		}
		if d < best {
			nearest = 0
		}
		best, nearest = d, nearest|1<<i
	}
	return m.ids(nearest)
}

// interrupts are those of the lane's virtual functions, and as many queues of the shared device as it asks
// for and no other lane has. They go to the lane's CPUs in turn.
func (m *machine) interrupts(l Lane) []Interrupt {
	var irqs []Interrupt
	cpus := l.CPUs.Slice()
	taken := func(irq int) bool {
		return slices.ContainsFunc(m.lanes, func(o Lane) bool {
			return slices.ContainsFunc(o.Interrupts, func(i Interrupt) bool { return i.IRQ == irq })
		})
	}
	queues := l.Spec.Network.Queues
	for _, i := range m.h.Interrupts {
		if i.Device == nil || i.Managed != nil && *i.Managed || taken(i.IRQ) {
			continue
		}
		for _, d := range l.Devices {
			own := slices.Contains(d.Virtual, *i.Device)
			if !own && (d.Address != *i.Device || len(d.VFs) > 0 || queues == 0 || !m.isQueue(i)) {
				continue
			}
			if !own {
				queues--
			}
			irqs = append(irqs, Interrupt{IRQ: i.IRQ, CPU: cpus[len(irqs)%len(cpus)]})
		}
	}
	return irqs
}

// isQueue says whether an interrupt is one of a network card's queues, and not of its link or control:
// drivers number queues at the end of the name ("eth0-TxRx-3", "virtio2-input.0",
// "mlx5_comp3@pci:0000:3b:00.0"), and name the others otherwise ("eth0", "virtio2-config",
// "i40e-0000:3b:00.0:misc"). One without a name may be.
func (m *machine) isQueue(i host.Interrupt) bool {
	if i.Name == nil {
		return true
	}
	name, _, _ := strings.Cut(*i.Name, "@")
	return m.findDevice(name) < 0 && name != "" && name[len(name)-1] >= '0' && name[len(name)-1] <= '9'
}

// nodeReasons say why the lane is on its nodes.
func (m *machine) nodeReasons(p place) []string {
	nodes := m.nodesOf(p.cpus)
	names, at := m.ids(nodes), nodes.first()
	target, from := m.target(p)
	text := ""
	switch {
	case !p.ask.list.IsEmpty() && len(m.nodes) > 1:
		text = fmt.Sprintf("%s %s, because the CPUs of spec.cpus.list are there",
			one(nodes.len(), "node", "nodes"), names)
	case nodes.len() > 1:
		text = fmt.Sprintf("nodes %s: %s", names, m.noRoom(p))
	case m.nodes[at].id < 0:
	case p.ask.spec.Near.NUMANode != nil && nodes == from:
		text = fmt.Sprintf("node %s, because spec.near.numaNode says so", names)
	case target != "" && from == 0:
		text = fmt.Sprintf("node %s: on which node %s is, the machine does not say", names, target)
	case target != "" && from.has(at):
		text = fmt.Sprintf("node %s, because %s is there", names, target)
	case target != "":
		text = fmt.Sprintf("node %s at distance %d from %s on node %s: nothing nearer has room", names,
			m.distance(from, at), target, m.ids(from))
	case len(m.nodes) > 1:
		text = fmt.Sprintf("node %s: of the nodes that give up least for it, the one with the fewest free CPUs "+
			"(%d)", names, m.freeOn(at, p.ask))
	}
	if text == "" {
		return nil
	}
	return []string{text}
}

// target is what the lane wants to be near to, and its nodes; "" where there is nothing.
func (m *machine) target(p place) (name string, nodes nodeSet) {
	switch near := p.ask.spec.Near; {
	case near.Device != "":
		name = cut(near.Device)
	case near.NUMANode != nil:
		name = fmt.Sprintf("node %d", *near.NUMANode)
	case near.Lane != "":
		l, ok := find(m.lanes, near.Lane)
		if !ok {
			return "", 0
		}
		return "lane " + l.Name, m.nodesOf(l.CPUs)
	case p.ask.device >= 0:
		name = deviceName(m.h.PCIDevices[p.ask.device])
	}
	return name, p.ask.from
}

// noRoom says why the lane is on several nodes.
func (m *machine) noRoom(p place) string {
	most, at := 0, 0
	for n := range m.nodes {
		if free := m.freeOn(n, p.ask); free > most {
			most, at = free, n
		}
	}
	count, id := p.ask.spec.CPUs.Count, m.nodes[at].id
	switch {
	case most < count:
		return fmt.Sprintf("no node alone has room for %d CPUs as asked; the most is %d, on node %d",
			count, most, id)
	case p.ask.wantsMemory():
		return fmt.Sprintf("no node alone has room for %d CPUs as asked and for the memory", count)
	}
	return fmt.Sprintf("node %d alone had room for %d CPUs as asked, but all lanes together cost less like this",
		id, count)
}

// ids are the kernel's numbers of nodes.
func (m *machine) ids(nodes nodeSet) cpuset.Set {
	var ids []int
	for n := range nodes.all() {
		if m.nodes[n].id >= 0 {
			ids = append(ids, m.nodes[n].id)
		}
	}
	return cpuset.Of(ids...)
}

// freeOn is how many CPUs the lane could have on a node.
func (m *machine) freeOn(n int, a ask) int {
	a.near = 0
	return m.newSearch(a, nil).room[n]
}

func deviceName(d host.PCIDevice) string {
	if len(d.Netdevs) > 0 {
		return d.Netdevs[0]
	}
	return d.Address
}

// reason is a text that holds in some cases.
type reason struct {
	holds bool
	text  string
}

// those are the texts of the reasons that hold.
func those(reasons []reason) []string {
	var texts []string
	for _, r := range reasons {
		if r.holds {
			texts = append(texts, r.text)
		}
	}
	return texts
}

// coreReasons say why the lane has these cores.
func (m *machine) coreReasons(p place) []string {
	var isolated cpuset.Set
	if m.h.Kernel.Isolated != nil {
		isolated = p.cpus.Intersection(*m.h.Kernel.Isolated)
	}
	mixed, slow, joined := p.fixed.MixedKinds > 0, p.fixed.EfficiencyCPUs > 0, 0
	for id := range p.cpus.All() {
		joined += boolInt(m.owner[id] == shared)
	}
	return those([]reason{
		{true, m.cacheReason(p)},
		{!p.idle.IsEmpty(),
			fmt.Sprintf("CPUs %s stay idle: they are siblings, and the lane pays for whole cores", p.idle)},
		{mixed, "performance and efficiency cores mixed: neither kind alone has room at no more cost"},
		{slow && !mixed,
			"on efficiency cores: performance cores come first, but have no room at no more cost in what counts more"},
		{!slow && !mixed && m.performant && p.ask.fast && p.ask.spec.CPUs.Kind == "",
			"on performance cores, which come first where spec.cpus.kind says nothing"},
		{!p.ask.boot, fmt.Sprintf("not CPUs %s: the boot core stays housekeeping", m.bootCore())},
		{true, m.balanceReason(p)},
		{!isolated.IsEmpty(), fmt.Sprintf("CPUs %s are isolated by the kernel", isolated)},
		{p.fixed.UnpreparedCPUs > 0, "some CPUs outside of those that boot prepared (isolcpus=, nohz_full=): " +
			"these have no room at no more cost"},
		{p.ask.share > 1, fmt.Sprintf("up to %d lanes share each CPU; %d of the %d had a lane already",
			p.ask.share, joined, p.cpus.Len())},
	})
}

// cacheReason says what the lane has of its L3s.
func (m *machine) cacheReason(p place) string {
	l3 := m.domains[m.cores[m.at[p.cpus.First()]].domain].l3
	left, others := m.below(l3, p)
	switch count := m.cachesOf(p.cpus).Len(); {
	case !p.ask.list.IsEmpty():
		return fmt.Sprintf("CPUs %s, because spec.cpus.list names them", p.cpus)
	case count > 1:
		return fmt.Sprintf("CPUs %s below %d L3 caches: no L3 alone has room for them", p.cpus, count)
	case l3 < 0:
		return fmt.Sprintf("CPUs %s: the machine does not say which L3 they share", p.cpus)
	case left == 0 && len(others) > 0:
		return fmt.Sprintf("CPUs %s, because they complete L3 %d, of which %s has the rest", p.cpus, l3,
			strings.Join(others, ", "))
	case left == 0:
		return fmt.Sprintf("CPUs %s: all of L3 %d", p.cpus, l3)
	}
	return fmt.Sprintf("CPUs %s: below one L3 (%d), which has %d more free", p.cpus, l3, left)
}

// balanceReason says who spreads the lane's threads over its CPUs.
func (m *machine) balanceReason(p place) string {
	switch {
	case p.cpus.Len() == 1:
		return "one CPU: nothing to balance"
	case !p.ask.spec.Spread():
		return "not balanced: bind each thread to its CPU (spec.cpus.balance: true spreads them)"
	case !p.ask.spec.Balanced():
		return "not balanced: the roles have all CPUs; isolane spreads threads that are not bound to one"
	case p.cpus.Intersects(m.h.BootIsolated()):
		return "isolane spreads the threads: the kernel balances no CPUs of isolcpus="
	}
	return "the kernel balances the threads over these CPUs and no others"
}

// below are the CPUs left below an L3 when the lane has its own, and the lanes that have others.
func (m *machine) below(l3 int, p place) (left int, others []string) {
	for _, c := range m.domains {
		for k := c.from; c.l3 == l3 && k < c.to; k++ {
			for _, id := range m.cores[k].cpus {
				switch o := m.owner[id]; {
				case p.cpus.Contains(id) || p.idle.Contains(id):
				case o == free:
					left++
				case o >= 0 && !slices.Contains(others, m.lanes[o].Name):
					others = append(others, m.lanes[o].Name)
				}
			}
		}
	}
	return left, others
}

func (m *machine) memoryReasons(p place, l Lane) []string {
	var why []string
	for _, h := range p.given.memory {
		why = append(why, fmt.Sprintf("%s of memory on node %d", quantity.Bytes(h.Bytes), h.Node))
	}
	for _, h := range p.given.huge {
		text := fmt.Sprintf("%d hugepages of %s on node %d", h.Pages, quantity.Bytes(h.PageBytes), h.Node)
		if h.Reserve > 0 {
			text += fmt.Sprintf(", %d of which have to be reserved", h.Reserve)
		}
		why = append(why, text)
	}
	if near := m.ids(m.nodesOf(p.cpus)); near != l.MemoryNodes && !near.IsEmpty() {
		why = append(why, fmt.Sprintf("memory of nodes %s: the nearest that has enough for all lanes",
			l.MemoryNodes))
	}
	return why
}

func (m *machine) deviceReasons(p place, l Lane) []string {
	var why []string
	for _, d := range l.Devices {
		if len(d.VFs) == 0 {
			continue
		}
		text := fmt.Sprintf("virtual functions %v of %s", d.VFs, deviceName(m.h.PCIDevices[p.ask.device]))
		if len(d.Virtual) < len(d.VFs) {
			text += ", which have to be made first"
		}
		why = append(why, text)
	}
	if want := p.ask.spec.Network.Queues; want > 0 {
		why = append(why, fmt.Sprintf("%d of %d interrupts of %s go to the lane's CPUs",
			min(want, len(l.Interrupts)), want, p.ask.spec.Network.Device))
	}
	return why
}

// smtName is the wish as it is written.
func smtName(s lane.Spec) string { return cmp.Or(s.CPUs.SMT, lane.Any) }
