package stock

import (
	"slices"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
)

// groupOf returns the number of the group that a CPU is in at a level of spec.apart. It returns 0 if the
// machine does not say, and -1 for a CPU that a lane has and the machine has lost.
func (m *Machine) groupOf(id int, level string) int {
	if m.NodeOf(id) < 0 {
		return -1
	}
	at := m.Domains[m.Cores[m.coreOf[id]].Domain]
	switch level {
	case "core":
		return m.coreOf[id] + 1
	case "node":
		return at.Node + 1
	case "package": // by its first CPU: the kernel's numbers may not fit into a set
		c, _ := m.Host.CPU(id)
		return 1 + slices.IndexFunc(m.Host.CPUs, func(o host.CPU) bool {
			return c.Package != nil && o.Package != nil && *o.Package == *c.Package
		})
	default:
		if at.L3 >= 0 {
			return at.Cache + 1
		}
	}
	return 0
}

// groups returns the groups of some CPUs.
func (m *Machine) groups(cpus cpuset.Set, level string) cpuset.Set {
	var groups []int
	for id := range cpus.All() {
		if g := m.groupOf(id, level); g >= 0 {
			groups = append(groups, min(g, cpuset.Max)) // there can be one CPU more than that
		}
	}
	return cpuset.Of(groups...)
}

// Around returns the usable CPUs in the same groups as some CPUs.
func (m *Machine) Around(cpus cpuset.Set, level string) cpuset.Set {
	groups := m.groups(cpus, level)
	var ids []int
	for id, c := range m.coreOf {
		if c >= 0 && groups.Contains(m.groupOf(id, level)) {
			ids = append(ids, id)
		}
	}
	return cpuset.Of(ids...)
}

// OverlapAt reports whether two sets of CPUs have a group in common.
func (m *Machine) OverlapAt(a, b cpuset.Set, level string) bool {
	return m.groups(a, level).Intersects(m.groups(b, level))
}

// IsApart reports whether a lane's wish to be apart from placed lanes holds on some CPUs.
func (m *Machine) IsApart(name string, s lane.Spec, cpus cpuset.Set) bool {
	for _, o := range m.Lanes {
		if o.Name != name && slices.Contains(s.Apart.Lanes, o.Name) && m.OverlapAt(o.CPUs, cpus, s.Apart.Level) {
			return false
		}
	}
	return true
}

// PreferredAparts returns the placed lanes that prefer to be apart from this one: those whose wish holds so
// far, and the names of those whose wish is broken already, so that breaking it costs nothing more.
func (m *Machine) PreferredAparts(name string) (holds []plan.Lane, broken []string) {
	for _, o := range m.Lanes {
		if o.Spec.Preferred["apart"] == 0 || !slices.Contains(o.Spec.Apart.Lanes, name) {
			continue
		}
		if m.IsApart(o.Name, o.Spec, o.CPUs) {
			holds = append(holds, o)
		} else {
			broken = append(broken, o.Name)
		}
	}
	return holds, broken
}
