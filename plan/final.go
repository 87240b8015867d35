package plan

import (
	"fmt"
	"slices"
	"strings"

	"isolane.dev/isolane/cpuset"
)

// finalReasons are what is to be said of a lane when all lanes are where they come to be; self is its number.
func (m *machine) finalReasons(p *place, self int) []string {
	why := m.neighbours(p, self)
	_, v := m.besideCost(p, self)
	for _, wish := range slices.Concat(p.lost, v.lost) {
		why = append(why, fmt.Sprintf("without the wish %s, which is preferred (weight %d) and gives way",
			wish, p.ask.spec.Preferred[wish]))
	}
	for i, o := range m.lanes {
		weight := o.Spec.Preferred["apart"]
		if i != self && weight > 0 && slices.Contains(o.Spec.Apart.Lanes, p.ask.name) &&
			m.touch(p.cpus, o.CPUs, o.Spec.Apart.Level) {
			why = append(why, fmt.Sprintf("not apart from lane %s, which would prefer that (weight %d)",
				o.Name, weight))
		}
	}
	return why
}

// neighbours say who else has threads of the lane's cores.
func (m *machine) neighbours(p *place, self int) []string {
	var lanes, own []string
	var others, unowned cpuset.Set
	free := m.free()
	for id := range p.cpus.All() {
		core := cpuset.Of(m.cores[m.at[id]].cpus...)
		siblings := core.Difference(p.owned())
		if nobodys := siblings.Intersection(free); !nobodys.IsEmpty() {
			unowned, own = unowned.Union(nobodys), append(own, fmt.Sprint(id))
		}
		others = others.Union(siblings)
	}
	for i, o := range m.lanes {
		if i != self && o.Owned().Intersects(others) {
			lanes = append(lanes, o.Name)
		}
	}
	return those([]reason{
		{len(lanes) > 0, fmt.Sprintf("shares a core with %s: no whole cores are left that cost no more in what "+
			"counts more", strings.Join(lanes, ", "))},
		{!unowned.IsEmpty(), fmt.Sprintf("shares a core with housekeeping: CPUs %s are siblings of %s; "+
			"spec.cpus.smt: isolate or pack keeps others off them", unowned, strings.Join(own, ","))},
	})
}
