package search

import (
	"fmt"
	"slices"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/plan/stock"
)

// FinalReasons returns the reasons that depend on the final places of all lanes. self is the index of the
// lane.
func FinalReasons(m *stock.Machine, p *Place, self int) []string {
	why := neighbours(m, p, self)
	_, broken, _ := BesideCost(m, p, self)
	for _, wish := range slices.Concat(p.broken, broken) {
		why = append(why, fmt.Sprintf("without the wish %s, which is preferred (weight %d) and gives way",
			wish, p.demand.spec.Preferred[wish]))
	}
	for i, o := range m.Lanes {
		weight := o.Spec.Preferred["apart"]
		if i != self && weight > 0 && slices.Contains(o.Spec.Apart.Lanes, p.demand.name) &&
			m.OverlapAt(p.CPUs, o.CPUs, o.Spec.Apart.Level) {
			why = append(why, fmt.Sprintf("not apart from lane %s, which would prefer that (weight %d)",
				o.Name, weight))
		}
	}
	return why
}

// neighbours says who else has CPUs of the lane's cores.
func neighbours(m *stock.Machine, p *Place, self int) []string {
	var lanes, own []string
	var others, unowned cpuset.Set
	free := m.Free()
	for id := range p.CPUs.All() {
		core := cpuset.Of(m.Cores[m.CoreOf(id)].CPUs...)
		siblings := core.Difference(p.owned())
		if nobodys := siblings.Intersection(free); !nobodys.IsEmpty() {
			unowned, own = unowned.Union(nobodys), append(own, fmt.Sprint(id))
		}
		others = others.Union(siblings)
	}
	for i, o := range m.Lanes {
		if i != self && o.Owned().Intersects(others) {
			lanes = append(lanes, o.Name)
		}
	}
	return holding([]reason{
		{len(lanes) > 0, fmt.Sprintf("shares a core with %s: whole cores would raise a cost that counts more",
			strings.Join(lanes, ", "))},
		{!unowned.IsEmpty(), fmt.Sprintf("shares a core with housekeeping: CPUs %s are siblings of %s; "+
			"spec.cpus.smt: isolate or pack keeps others off them", unowned, strings.Join(own, ","))},
	})
}
