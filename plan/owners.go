package plan

import (
	"maps"
	"slices"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/lane"
)

// put adds a lane. CPUs that the machine does not have are skipped.
func (m *machine) put(l Lane) {
	for id := range l.Owned().All() {
		switch {
		case id >= len(m.owner):
		case l.Spec.CPUs.Share > 1:
			m.owner[id] = shared
		default:
			m.owner[id] = len(m.lanes)
		}
	}
	m.lanes = append(m.lanes, l)
}

// with is the machine with other lanes.
func (m *machine) with(lanes []Lane) *machine {
	o := *m
	o.owner, o.lanes = make([]int, len(m.owner)), nil
	for i := range o.owner {
		o.owner[i] = free
	}
	for _, l := range lanes {
		o.put(l)
	}
	return &o
}

// pop removes the last lane.
func (m *machine) pop() {
	last := m.lanes[len(m.lanes)-1]
	m.lanes = m.lanes[:len(m.lanes)-1]
	for id := range last.Owned().All() {
		if id >= len(m.owner) {
			continue
		}
		m.owner[id] = free
		has := func(l Lane) bool { return l.CPUs.Contains(id) }
		if last.Spec.CPUs.Share > 1 && slices.ContainsFunc(m.lanes, has) {
			m.owner[id] = shared
		}
	}
}

// canJoin says whether one more lane, which shares each CPU with share lanes at most, may have a shared CPU.
func (m *machine) canJoin(id, share int) bool {
	lanes := 0
	for i := range m.lanes {
		if l := &m.lanes[i]; l.CPUs.Contains(id) {
			lanes, share = lanes+1, min(share, l.Spec.CPUs.Share)
		}
	}
	return lanes < share
}

// isWhole says whether no lane has a CPU of the core, and it is not the boot core.
func (m *machine) isWhole(c int) bool {
	for _, id := range m.cores[c].cpus {
		if m.owner[id] != free {
			return false
		}
	}
	return c != m.boot
}

// largestBlock is the largest number of CPUs of free whole cores on one node.
func (m *machine) largestBlock() int { return slices.Max(append(m.wholeByNode(), 0)) }

// wholeByNode counts the CPUs of free whole cores by node.
func (m *machine) wholeByNode() []int {
	whole := make([]int, len(m.nodes), len(m.nodes)+1)
	for c := range m.cores {
		if m.isWhole(c) {
			whole[m.domains[m.cores[c].domain].node] += len(m.cores[c].cpus)
		}
	}
	return whole
}

// freeBeside counts the free CPUs of the other cores.
func (m *machine) freeBeside() int {
	beside := 0
	for id, c := range m.coreOf {
		if c >= 0 && m.owner[id] == free && !m.isWhole(c) {
			beside++
		}
	}
	return beside
}

// free are the usable CPUs that no lane has.
func (m *machine) free() cpuset.Set {
	var ids []int
	for id, c := range m.coreOf {
		if c >= 0 && m.owner[id] == free {
			ids = append(ids, id)
		}
	}
	return cpuset.Of(ids...)
}

// housekeeping are the usable CPUs that no lane has, without those that boot isolated if there are others.
func (m *machine) housekeeping() cpuset.Set {
	all := m.free()
	if others := all.Difference(m.h.BootIsolated()); !others.IsEmpty() {
		return others
	}
	return all
}

// bootCore are the usable CPUs of the boot core.
func (m *machine) bootCore() cpuset.Set { return cpuset.Of(m.cores[m.boot].cpus...) }

// isOthers says whether another lane, unless both share CPUs, or housekeeping for good has a CPU.
func (m *machine) isOthers(id, share, self int) bool {
	switch o := m.owner[id]; o {
	case free:
		return m.reserved[id]
	case shared:
		return share == 1
	default:
		return o != self
	}
}

// hasWholeCores says whether a lane's wish for whole cores holds.
func (m *machine) hasWholeCores(l Lane) bool {
	owned := l.Owned()
	for id := range owned.All() {
		if id >= len(m.coreOf) || m.coreOf[id] < 0 {
			return false
		}
		core := cpuset.Of(m.cores[m.coreOf[id]].cpus...)
		used := core.Intersection(l.CPUs).Len()
		if !core.IsSubsetOf(owned) || l.Spec.CPUs.SMT == lane.Isolate && used != 1 ||
			l.Spec.CPUs.SMT == lane.Pack && used != core.Len() {
			return false
		}
	}
	return true
}

// claim records the CPUs that lanes name: no other lane of the request gets them.
func (m *machine) claim(lanes []lane.Lane) {
	m.claims = map[string]cpuset.Set{}
	for _, l := range lanes {
		claimed := l.Spec.CPUs.List
		for id := range claimed.All() {
			if l.Spec.CPUs.SMT == lane.Isolate && id < len(m.coreOf) && m.coreOf[id] >= 0 {
				claimed = claimed.Union(cpuset.Of(m.cores[m.coreOf[id]].cpus...))
			}
		}
		if !claimed.IsEmpty() {
			m.claims[l.Metadata.Name] = claimed
		}
	}
}

// claimed are the CPUs that the other lanes of the request name, and the names of these lanes.
func (m *machine) claimed(name string) (cpuset.Set, []string) {
	var all cpuset.Set
	var by []string
	for _, other := range slices.Sorted(maps.Keys(m.claims)) {
		if other != name {
			all, by = all.Union(m.claims[other]), append(by, other)
		}
	}
	return all, by
}

// stateOf is what is free of a core, four bits a CPU, and whether just one lane is on it that is none of the
// first ones, of which there were as many before.
func (m *machine) stateOf(c, before int) uint64 {
	var states [8]byte
	alone := -1
	cpus := m.cores[c].cpus[:min(len(states), len(m.cores[c].cpus))]
	for i, id := range cpus {
		switch o := m.owner[id]; {
		case o == free:
			states[i] = byte(2 + m.unprepared[id])
			if m.reserved[id] {
				states[i] += 4
			}
		case o == shared:
			states[i] = 1
		case o >= before && (alone == -1 || alone == o):
			alone = o
		default:
			alone = -2
		}
	}
	slices.Sort(states[:len(cpus)])
	key := uint64(len(m.cores[c].kind))
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

// CoreOf is the index of a CPU's core; -1: it is not usable.
func (m *machine) CoreOf(id int) int { return m.coreOf[id] }

// IsBoot says whether a CPU is of the boot core.
func (m *machine) IsBoot(id int) bool { return m.coreOf[id] == m.boot }

// Owner is the number of the lane that alone has a CPU, or else free or shared.
func (m *machine) Owner(id int) int { return m.owner[id] }
