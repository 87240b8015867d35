package plan

import (
	"slices"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
)

// groupOf is what a CPU shares with others at a level of spec.apart, as a number: 0 for all of which the
// machine does not say it, -1 for a CPU that a lane has and the machine no longer.
func (m *machine) groupOf(id int, level string) int {
	if m.nodeOf(id) < 0 {
		return -1
	}
	at := m.domains[m.cores[m.at[id]].domain]
	switch level {
	case "core":
		return m.at[id] + 1
	case "node":
		return at.node + 1
	case "package":
		if c, _ := m.h.CPU(id); c.Package != nil {
			return *c.Package + 1
		}
	default:
		if at.l3 >= 0 {
			return at.cache + 1
		}
	}
	return 0
}

// groups are what CPUs share with others at a level.
func (m *machine) groups(cpus cpuset.Set, level string) cpuset.Set {
	var groups []int
	for id := range cpus.All() {
		if g := m.groupOf(id, level); g >= 0 {
			groups = append(groups, g)
		}
	}
	return cpuset.Of(groups...)
}

// around are the usable CPUs that share a core, an L3, a node or a package with some of the given ones.
func (m *machine) around(cpus cpuset.Set, level string) cpuset.Set {
	groups := m.groups(cpus, level)
	var ids []int
	for id, c := range m.at {
		if c >= 0 && groups.Contains(m.groupOf(id, level)) {
			ids = append(ids, id)
		}
	}
	return cpuset.Of(ids...)
}

// touch says whether two lanes share something at a level.
func (m *machine) touch(a, b cpuset.Set, level string) bool {
	return m.groups(a, level).Intersects(m.groups(b, level))
}

// isApart says whether a lane's wish to be apart holds on CPUs, towards the lanes that are there.
func (m *machine) isApart(name string, s lane.Spec, cpus cpuset.Set) bool {
	for _, o := range m.lanes {
		if o.Name != name && slices.Contains(s.Apart.Lanes, o.Name) && m.touch(o.CPUs, cpus, s.Apart.Level) {
			return false
		}
	}
	return true
}

// keepApart bans the CPUs that the lane, or a lane that is there already, does not want it to have.
func (m *machine) keepApart(a *ask, r relaxed) {
	for _, o := range m.lanes {
		if slices.Contains(a.spec.Apart.Lanes, o.Name) && !r.drops("apart") {
			a.banned = a.banned.Union(m.around(o.CPUs, a.spec.Apart.Level))
		}
		if slices.Contains(o.Spec.Apart.Lanes, a.name) && !slices.Contains(r.others, o.Name) {
			a.banned = a.banned.Union(m.around(o.CPUs, o.Spec.Apart.Level))
		}
	}
}

// preferredAparts are the lanes that are there and would rather be apart from this one, and are so far; lost
// are those that are not, so that one more makes no difference.
func (m *machine) preferredAparts(name string) (whole []Lane, lost []string) {
	for _, o := range m.lanes {
		if o.Spec.Preferred["apart"] == 0 || !slices.Contains(o.Spec.Apart.Lanes, name) {
			continue
		}
		if m.isApart(o.Name, o.Spec, o.CPUs) {
			whole = append(whole, o)
		} else {
			lost = append(lost, o.Name)
		}
	}
	return whole, lost
}

// fits says whether a core is of the kind that is asked for.
func fits(have, asked host.CPUKind) bool {
	return asked == "" || have == asked || have == host.Uniform && asked == host.Performance
}
