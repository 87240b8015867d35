package stock

import (
	"maps"
	"slices"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
)

// Put adds a lane. It skips CPUs that the machine does not have.
func (m *Machine) Put(l plan.Lane) {
	for id := range l.Owned().All() {
		switch {
		case id >= len(m.owner):
		case l.Spec.CPUs.Share > 1:
			m.owner[id] = Several
		default:
			m.owner[id] = len(m.Lanes)
		}
	}
	m.Lanes = append(m.Lanes, l)
}

// With returns the machine with other lanes instead.
func (m *Machine) With(lanes []plan.Lane) *Machine {
	o := *m
	o.owner, o.Lanes = make([]int, len(m.owner)), nil
	for i := range o.owner {
		o.owner[i] = Nobody
	}
	for _, l := range lanes {
		o.Put(l)
	}
	return &o
}

// Pop removes the last lane.
func (m *Machine) Pop() {
	last := m.Lanes[len(m.Lanes)-1]
	m.Lanes = m.Lanes[:len(m.Lanes)-1]
	for id := range last.Owned().All() {
		if id >= len(m.owner) {
			continue
		}
		m.owner[id] = Nobody
		has := func(l plan.Lane) bool { return l.CPUs.Contains(id) }
		if last.Spec.CPUs.Share > 1 && slices.ContainsFunc(m.Lanes, has) {
			m.owner[id] = Several
		}
	}
}

// Owner returns the index in Lanes of the lane that alone has a CPU, or Nobody or Several.
func (m *Machine) Owner(id int) int { return m.owner[id] }

// CanJoin reports whether one more lane may have a shared CPU, if it accepts up to share lanes on each of its
// CPUs.
func (m *Machine) CanJoin(id, share int) bool {
	lanes := 0
	for i := range m.Lanes {
		if l := &m.Lanes[i]; l.CPUs.Contains(id) {
			lanes, share = lanes+1, min(share, l.Spec.CPUs.Share)
		}
	}
	return lanes < share
}

// IsWhole reports whether no lane has a CPU of the core, and it is not the boot core.
func (m *Machine) IsWhole(c int) bool {
	for _, id := range m.Cores[c].CPUs {
		if m.owner[id] != Nobody {
			return false
		}
	}
	return c != m.boot
}

// LargestBlock returns the largest number of CPUs of free whole cores on one node.
func (m *Machine) LargestBlock() int { return slices.Max(append(m.WholeByNode(), 0)) }

// WholeByNode counts the CPUs of free whole cores by node.
func (m *Machine) WholeByNode() []int {
	whole := make([]int, len(m.Nodes), len(m.Nodes)+1)
	for c := range m.Cores {
		if m.IsWhole(c) {
			whole[m.Domains[m.Cores[c].Domain].Node] += len(m.Cores[c].CPUs)
		}
	}
	return whole
}

// FreeBeside counts the free CPUs of cores that are not whole.
func (m *Machine) FreeBeside() int {
	beside := 0
	for id, c := range m.coreOf {
		if c >= 0 && m.owner[id] == Nobody && !m.IsWhole(c) {
			beside++
		}
	}
	return beside
}

// Free returns the usable CPUs that no lane has.
func (m *Machine) Free() cpuset.Set {
	var ids []int
	for id, c := range m.coreOf {
		if c >= 0 && m.owner[id] == Nobody {
			ids = append(ids, id)
		}
	}
	return cpuset.Of(ids...)
}

// Housekeeping returns the usable CPUs that no lane has. It leaves out those that boot isolated if there are
// others.
func (m *Machine) Housekeeping() cpuset.Set {
	all := m.Free()
	if others := all.Difference(m.Host.BootIsolated()); !others.IsEmpty() {
		return others
	}
	return all
}

// BootCore returns the usable CPUs of the boot core; none if no CPU is usable.
func (m *Machine) BootCore() cpuset.Set {
	if len(m.Cores) == 0 {
		return cpuset.Set{}
	}
	return cpuset.Of(m.Cores[m.boot].CPUs...)
}

// IsOthers reports whether another lane has a CPU, unless both lanes share CPUs, or it is reserved for
// housekeeping.
func (m *Machine) IsOthers(id, share, self int) bool {
	switch o := m.owner[id]; o {
	case Nobody:
		mayGo := share > 1 && m.sharers && (m.bootSharers || !m.IsBoot(id))
		return m.reserved[id] && !mayGo
	case Several:
		return share == 1
	default:
		return o != self
	}
}

// Expect says which lanes are still to come. A core's CPU that is reserved for housekeeping does not count as
// somebody else's beside a lane that shares CPUs, if a later such lane may still take it.
func (m *Machine) Expect(lanes []lane.Lane) {
	m.sharers, m.bootSharers = false, false
	for _, l := range lanes {
		if c := l.Spec.CPUs; c.Share > 1 {
			m.sharers, m.bootSharers = true, m.bootSharers || c.Boot
		}
	}
}

// HasWholeCores reports whether the wish for whole cores of a placed lane holds.
func (m *Machine) HasWholeCores(l plan.Lane) bool {
	owned := l.Owned()
	for id := range owned.All() {
		if id >= len(m.coreOf) || m.coreOf[id] < 0 {
			return false
		}
		core := cpuset.Of(m.Cores[m.coreOf[id]].CPUs...)
		used := core.Intersection(l.CPUs).Len()
		if !core.IsSubsetOf(owned) || l.Spec.CPUs.SMT == lane.Isolate && used != 1 ||
			l.Spec.CPUs.SMT == lane.Pack && used != core.Len() {
			return false
		}
	}
	return true
}

// Claim records the CPUs that lanes name: no other lane of the request gets them.
func (m *Machine) Claim(lanes []lane.Lane) {
	m.claims = map[string]cpuset.Set{}
	for _, l := range lanes {
		claimed := l.Spec.CPUs.List
		for id := range claimed.All() {
			if l.Spec.CPUs.SMT == lane.Isolate && id < len(m.coreOf) && m.coreOf[id] >= 0 {
				claimed = claimed.Union(cpuset.Of(m.Cores[m.coreOf[id]].CPUs...))
			}
		}
		if !claimed.IsEmpty() {
			m.claims[l.Metadata.Name] = claimed
		}
	}
}

// Claimed returns the CPUs that the other lanes of the request name, and the names of these lanes.
func (m *Machine) Claimed(name string) (cpuset.Set, []string) {
	var all cpuset.Set
	var by []string
	for _, other := range slices.Sorted(maps.Keys(m.claims)) {
		if other != name {
			all, by = all.Union(m.claims[other]), append(by, other)
		}
	}
	return all, by
}

// StateOf encodes what is free of a core, four bits per CPU, and whether exactly one lane is on it, which is
// not among the first before lanes.
func (m *Machine) StateOf(c, before int) uint64 {
	var states [8]byte
	alone := -1
	cpus := m.Cores[c].CPUs[:min(len(states), len(m.Cores[c].CPUs))]
	for i, id := range cpus {
		switch o := m.owner[id]; {
		case o == Nobody:
			states[i] = byte(2 + m.unprepared[id])
			if m.reserved[id] {
				states[i] += 4
			}
		case o == Several:
			states[i] = 1
		case o >= before && (alone == -1 || alone == o):
			alone = o
		default:
			alone = -2
		}
	}
	slices.Sort(states[:len(cpus)])
	key := uint64(len(m.Cores[c].Kind))
	if c == m.boot {
		key |= 1 << 8
	}
	if alone >= 0 {
		key |= 1 << 9
	}
	for i, s := range states {
		key |= uint64(s) << (10 + 4*i)
	}
	return key
}
