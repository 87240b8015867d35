package solver_test

import (
	"fmt"
	"slices"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/plan"
)

// read takes an answer apart and checks what is not a matter of cost: sums, stock, housekeeping, interrupts.
func (p *bruteProblem) read(f *referee, got plan.Placement) ([]*bruteLane, bruteFault) {
	var lanes []*bruteLane
	var owned mask
	for _, asked := range slices.Concat(p.before, p.lanes) {
		at := slices.IndexFunc(got.Lanes, func(l plan.Lane) bool { return l.Name == asked.name })
		if at < 0 || len(got.Lanes) != len(p.before)+len(p.lanes) {
			return nil, bruteFault{"lanes", describe(got)}
		}
		l, why := p.readLane(asked, got.Lanes[at])
		if why != "" {
			return nil, bruteFault{"lane", asked.name + ": " + why + "\n  " + describe(got)}
		}
		lanes = append(lanes, l)
		owned |= l.owned()
	}
	keeps := maskOf(got.Housekeeping)
	rest := f.usable &^ owned
	if keeps == 0 || keeps&^rest != 0 || rest&^f.isolated != 0 && keeps != rest&^f.isolated || rest&^f.isolated == 0 && keeps != rest {
		return nil, bruteFault{"housekeeping", describe(got)}
	}
	if why := p.checkStock(got); why != "" {
		return nil, bruteFault{"stock", why + "\n  " + describe(got)}
	}
	return lanes, bruteFault{}
}

func (p *bruteProblem) readLane(asked *bruteLane, got plan.Lane) (*bruteLane, string) {
	l := *asked
	l.cpus, l.idle, l.memory = maskOf(got.CPUs), maskOf(got.Idle), 0
	var size uint64
	for _, m := range got.Memory {
		size += m.Bytes
		l.memory |= 1 << m.Node
	}
	if size != uint64(l.spec.Memory.Size) {
		return nil, fmt.Sprintf("has %d bytes of memory", size)
	}
	for text, total := range l.spec.Memory.Hugepages {
		size := uint64(total)
		for _, pages := range got.Hugepages {
			if pages.PageBytes == uint64(pageMiB(text))<<20 {
				size -= pages.Pages * pages.PageBytes
				l.memory |= 1 << pages.Node
			}
		}
		if size != 0 {
			return nil, fmt.Sprintf("has not its %s of hugepages", total)
		}
	}
	nodes := maskOf(got.MemoryNodes)
	want := l.memory
	if !asksForMemory(l.spec) {
		want = p.m.defaultMemory(in(newReferee(p.m).nodes, l.cpus))
	}
	if !asked.before && nodes != want {
		return nil, fmt.Sprintf("memory of nodes %s", got.MemoryNodes)
	}
	for role, count := range l.spec.Roles {
		if got.Roles[role].Len() != count || !got.Roles[role].IsSubsetOf(got.CPUs) {
			return nil, "roles"
		}
	}
	if !asked.before {
		return &l, p.readDevices(&l, got)
	}
	return &l, ""
}

func (p *bruteProblem) readDevices(l *bruteLane, got plan.Lane) string {
	wanted := functions(l.spec)
	for _, d := range got.Devices {
		at := p.m.device(d.Address)
		if at < 0 || len(d.VFs) != wanted || l.device >= 0 {
			return "devices"
		}
		l.device = at
		if name := l.spec.Network.Device; name != "" && p.m.device(name) != at {
			return "another device than " + name
		}
	}
	if wanted > 0 && l.device < 0 {
		return "no virtual functions"
	}
	var own []int
	if l.device >= 0 {
		own = p.m.devices[l.device].interrupts
	}
	for _, i := range got.Interrupts {
		if !slices.Contains(own, i.IRQ) || !got.CPUs.Contains(i.CPU) {
			return "interrupts"
		}
	}
	if most := min(l.spec.Network.Queues, len(own)); len(got.Interrupts) > most {
		return "more interrupts than asked"
	}
	return ""
}

// checkStock sees that no node and no device gives more than it has.
func (p *bruteProblem) checkStock(got plan.Placement) string {
	type key struct {
		node int
		page uint64
	}
	memory, pool, vfs := map[int]uint64{}, map[key]uint64{}, map[string]cpuset.Set{}
	takes := false
	for _, l := range got.Lanes {
		comes := find(p.lanes, l.Name) != nil
		for _, m := range l.Memory {
			memory[m.Node] += m.Bytes
			takes = takes || comes && m.Bytes > 0
		}
		for _, pages := range l.Hugepages {
			memory[pages.Node] += pages.Reserve * pages.PageBytes
			takes = takes || comes && pages.Reserve > 0
			pool[key{pages.Node, pages.PageBytes}] += pages.Pages - pages.Reserve
		}
		for _, d := range l.Devices {
			for _, vf := range d.VFs {
				if total := p.m.devices[p.m.device(d.Address)].totalVFs; vf < 0 || vf >= total || vfs[d.Address].Contains(vf) {
					return fmt.Sprintf("virtual function %d of %s", vf, d.Address)
				}
				vfs[d.Address] = vfs[d.Address].Union(cpuset.Of(vf))
			}
		}
	}
	var left, all uint64
	for id, n := range p.m.nodes {
		has := uint64(n.memory)
		for page, gib := range n.pool {
			has -= uint64(gib)
			if asked := pool[key{id, uint64(page) << 20}]; asked*uint64(page)<<20 > uint64(gib)*bruteGiB || !n.allowed && asked > 0 {
				return fmt.Sprintf("%d pages of %d MiB of node %d", asked, page, id)
			}
		}
		if memory[id] > has*bruteGiB || !n.allowed && memory[id] > 0 {
			return fmt.Sprintf("%d bytes of node %d", memory[id], id)
		}
		if n.allowed {
			left += has*bruteGiB - memory[id]
			all += uint64(n.memory) * bruteGiB
		}
	}
	if takes && left < min(bruteGiB/2, all/8) {
		return fmt.Sprintf("housekeeping has %d bytes", left)
	}
	return ""
}
