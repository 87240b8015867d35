package stock

import (
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
)

// prepared is what the kernel's command line did for lanes.
type prepared struct {
	unprepared []int  // by CPU: how many of the lists that boot made for lanes lack it
	reserved   []bool // by CPU: reserved for housekeeping, unless a lane owns it
}

// prepare finds the lists. If there are some, CPUs in none of them are reserved for housekeeping. The boot
// core always is.
func (m *Machine) prepare() {
	m.unprepared, m.reserved = make([]int, len(m.coreOf)), make([]bool, len(m.coreOf))
	usable := m.Host.Usable()
	lists, all := 0, cpuset.Set{}
	for _, list := range bootLists(m.Host) {
		if !list.Intersects(usable) {
			continue
		}
		lists, all = lists+1, all.Union(list)
		for id := range m.unprepared {
			if !list.Contains(id) {
				m.unprepared[id]++
			}
		}
	}
	for id, c := range m.coreOf {
		m.reserved[id] = c >= 0 && (c == m.boot || lists > 0 && !all.Contains(id))
	}
}

// Unprepared returns how many of the lists that boot made for lanes lack a CPU.
func (m *Machine) Unprepared(id int) int { return m.unprepared[id] }

// PreparedAlike reports whether boot treated two CPUs alike.
func (m *Machine) PreparedAlike(a, b int) bool {
	return m.unprepared[a] == m.unprepared[b] && m.reserved[a] == m.reserved[b]
}

// bootLists returns the lists of CPUs that boot kept the scheduler, device interrupts and the tick off.
func bootLists(h host.Host) []cpuset.Set {
	lists := []cpuset.Set{h.BootIsolated()}
	isolcpus, _ := h.Kernel.Parameters().Isolcpus()
	if list, err := isolcpus.CPUs(h.Possible()); err == nil && isolcpus.Has("managed_irq") {
		lists = append(lists, list) // the kernel ignores a list with an error
	}
	if h.Kernel.NohzFull != nil {
		lists = append(lists, *h.Kernel.NohzFull)
	}
	return lists
}
