package layout

import (
	"fmt"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/plan/solver"
	"isolane.dev/isolane/quantity"
)

// away returns the CPUs of a host at a distance from one of them.
func away(h host.Host, from int, d factor.Distance) cpuset.Set {
	at, _ := h.CPU(from)
	core := h.Siblings(from)
	same := func(a, b *int) bool { return a != nil && b != nil && *a == *b }
	differ := func(a, b *int) bool { return a != nil && b != nil && *a != *b }
	var ids []int
	for id := range h.Online().All() {
		c, _ := h.CPU(id)
		is := false
		switch d {
		case factor.AnyDistance:
			is = true
		case factor.SameCPU:
			is = id == from
		case factor.Siblings:
			is = id != from && core.Contains(id)
		case factor.SameL3:
			is = same(c.L3, at.L3) && !core.Contains(id)
		case factor.OtherL3:
			is = differ(c.L3, at.L3) && !differ(c.NUMANode, at.NUMANode)
		case factor.OtherNode:
			is = differ(c.NUMANode, at.NUMANode)
		}
		if is {
			ids = append(ids, id)
		}
	}
	return cpuset.Of(ids...)
}

// apart says where CPUs are, seen from others that they do not have in common, as far as the kernel says it.
func apart(h host.Host, cpus, from cpuset.Set) (all []string) {
	for d := factor.Siblings; d <= factor.OtherNode; d++ {
		for id := range from.All() {
			if away(h, id, d).Intersects(cpus) {
				all = append(all, d.String())
				break
			}
		}
	}
	return all
}

// at returns the layout with the application at a distance from the client, which keeps its CPU.
func (l Layout) at(r Request, given factor.Conditions) (Layout, error) {
	usable, spec := r.Host.Usable().Difference(r.Placed.CPUs()), given.Lane
	there := away(r.Host, l.client.First(), given.Distance).Intersection(usable)
	if there.Len() < spec.CPUs.Count {
		return l, fmt.Errorf("the client has CPU %s, and %s %s: expected %d or more", l.client,
			quantity.Count(there.Len(), "CPU"), given.Distance, spec.CPUs.Count)
	}
	if given.Distance == factor.SameCPU {
		if given.Place == factor.InLane {
			return l, fmt.Errorf("the client has %s: a lane's CPU is nobody else's", given.Distance)
		}
		l.Lane, l.rest = l.client, l.platform
		return l, nil
	}
	// CPUs of the boot core come last: it stays housekeeping's unless the lane wants it.
	order := append(there.Difference(boot(r.Host)).Slice(), there.Intersection(boot(r.Host)).Slice()...)
	spec.CPUs.List = cpuset.Of(order[:spec.CPUs.Count]...)
	asked := theApplications(factor.Conditions{Lane: spec})
	if !l.crowded {
		asked = append(asked, theClient(l.client))
	}
	p, err := solver.Solve(r.Host, r.Placed, asked)
	if err != nil {
		return l, err
	}
	n := len(r.Placed.Lanes)
	l.Lane, l.Placement = p.Lanes[n].CPUs, p
	l.Placement.Lanes = p.Lanes[:n+1]
	return l.with(usable, l.client), nil
}

// boot returns the usable CPUs of the boot core.
func boot(h host.Host) cpuset.Set {
	return h.Cores()[0]
}
