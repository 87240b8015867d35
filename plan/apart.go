package plan

import (
	"slices"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/lane"
)

// groupOf numbers what a CPU shares with others at a level of spec.apart: 0 where the machine does not say
// it, -1 for a CPU that a lane has and the machine has lost.
func (m *machine) groupOf(id int, level string) int {
	if m.nodeOf(id) < 0 {
		return -1
	}
	at := m.domains[m.cores[m.coreOf[id]].domain]
	switch level {
	case "core":
		return m.coreOf[id] + 1
	case "node":
		return at.node + 1
	case "package":
		c, _ := m.h.CPU(id)
		return known(c.Package, -1) + 1
	default:
		if at.l3 >= 0 {
			return at.cache + 1
		}
	}
	return 0
}

// groups are those of some CPUs.
func (m *machine) groups(cpus cpuset.Set, level string) cpuset.Set {
	var groups []int
	for id := range cpus.All() {
		if g := m.groupOf(id, level); g >= 0 {
			groups = append(groups, g)
		}
	}
	return cpuset.Of(groups...)
}

// around are the usable CPUs in the same groups as some CPUs.
func (m *machine) around(cpus cpuset.Set, level string) cpuset.Set {
	groups := m.groups(cpus, level)
	var ids []int
	for id, c := range m.coreOf {
		if c >= 0 && groups.Contains(m.groupOf(id, level)) {
			ids = append(ids, id)
		}
	}
	return cpuset.Of(ids...)
}

// overlapAt says whether two sets of CPUs have a group in common.
func (m *machine) overlapAt(a, b cpuset.Set, level string) bool {
	return m.groups(a, level).Intersects(m.groups(b, level))
}

// isApart says whether a lane's wish to be apart holds on CPUs, beside the lanes that are placed.
func (m *machine) isApart(name string, s lane.Spec, cpus cpuset.Set) bool {
	for _, o := range m.lanes {
		if o.Name != name && slices.Contains(s.Apart.Lanes, o.Name) && m.overlapAt(o.CPUs, cpus, s.Apart.Level) {
			return false
		}
	}
	return true
}

// preferredAparts are the placed lanes that prefer to be apart from this one: those whose wish holds so far,
// and the names of those whose wish is broken already, so that it costs nothing more.
func (m *machine) preferredAparts(name string) (holds []Lane, broken []string) {
	for _, o := range m.lanes {
		if o.Spec.Preferred["apart"] == 0 || !slices.Contains(o.Spec.Apart.Lanes, name) {
			continue
		}
		if m.isApart(o.Name, o.Spec, o.CPUs) {
			holds = append(holds, o)
		} else {
			broken = append(broken, o.Name)
		}
	}
	return holds, broken
}
