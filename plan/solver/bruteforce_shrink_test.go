package solver_test

import (
	"slices"

	"isolane.dev/isolane/lane"
)

// shrink leaves out lanes and wishes as long as the fault is of the same kind.
func (p *bruteProblem) shrink(kind string) *bruteProblem {
	for again := true; again; {
		again = false
		for _, q := range p.smaller() {
			if q.valid() && q.check(&bruteCount{}).kind == kind {
				p, again = q, true
				break
			}
		}
	}
	return p
}

func (p *bruteProblem) valid() bool {
	names := map[string]bool{}
	for _, l := range slices.Concat(p.before, p.lanes) {
		names[l.name] = true
	}
	for _, l := range p.lanes {
		if n := l.spec.Near.NUMANode; n != nil && *n >= len(p.m.nodes) {
			return false
		}
		if declare(l).Validate() != nil || l.spec.Near.Lane != "" && !names[l.spec.Near.Lane] {
			return false
		}
		for _, o := range l.spec.Apart.Lanes {
			if !names[o] {
				return false
			}
		}
	}
	return len(p.lanes) > 0
}

func (p *bruteProblem) clone() *bruteProblem {
	q := &bruteProblem{m: p.m, before: p.before}
	for _, l := range p.lanes {
		c := *l
		q.lanes = append(q.lanes, &c)
	}
	return q
}

// smaller are the problems with one thing less.
func (p *bruteProblem) smaller() []*bruteProblem {
	var all []*bruteProblem
	for i := range p.lanes {
		q := p.clone()
		q.lanes = slices.Delete(q.lanes, i, i+1)
		all = append(all, q)
	}
	for i := range p.before {
		q := p.clone()
		q.before = slices.Delete(slices.Clone(q.before), i, i+1)
		all = append(all, q)
	}
	for i := range p.lanes {
		edit := func(change func(*lane.Spec)) {
			q := p.clone()
			s := &q.lanes[i].spec
			change(s)
			preferred := map[string]int{}
			for _, wish := range s.Wishes() {
				if weight, ok := s.Preferred[wish]; ok {
					preferred[wish] = weight
				}
			}
			s.Preferred = preferred
			if brief(q.lanes[i]) != brief(p.lanes[i]) {
				all = append(all, q)
			}
		}
		edit(func(s *lane.Spec) { s.Network = lane.Network{} })
		edit(func(s *lane.Spec) { s.Network.Queues = 0 })
		edit(func(s *lane.Spec) { s.Memory.Hugepages = nil })
		edit(func(s *lane.Spec) { s.Memory.Size = 0 })
		edit(func(s *lane.Spec) { s.Near = lane.Near{} })
		edit(func(s *lane.Spec) { s.Apart = lane.Apart{} })
		edit(func(s *lane.Spec) { s.Roles = nil })
		edit(func(s *lane.Spec) { s.Preferred = nil })
		edit(func(s *lane.Spec) { s.CPUs = lane.CPUs{Count: s.CPUs.Count} })
		edit(func(s *lane.Spec) { s.CPUs.SMT = "" })
		edit(func(s *lane.Spec) { s.CPUs.Kind = "" })
		edit(func(s *lane.Spec) { s.CPUs.L3 = "" })
		edit(func(s *lane.Spec) { s.CPUs.NUMA = "" })
		edit(func(s *lane.Spec) { s.CPUs.Share = 0 })
		edit(func(s *lane.Spec) { s.CPUs.Boot = false })
		edit(func(s *lane.Spec) { s.CPUs.Count = max(1, s.CPUs.Count-1) })
		edit(func(s *lane.Spec) { s.Memory.Size -= min(s.Memory.Size, bruteGiB) })
		if len(p.lanes[i].spec.Apart.Lanes) > 1 {
			edit(func(s *lane.Spec) { s.Apart.Lanes = s.Apart.Lanes[:1] })
		}
		if all := p.lanes[i].spec.Preferred; len(all) > 1 {
			for wish := range all {
				edit(func(s *lane.Spec) {
					kept := map[string]int{}
					for w, weight := range all {
						if w != wish {
							kept[w] = weight
						}
					}
					s.Preferred = kept
				})
			}
		}
	}
	return append(all, p.smallerMachines()...)
}

// smallerMachines are those with one thing less that the lanes do not stand on.
func (p *bruteProblem) smallerMachines() []*bruteProblem {
	var all []*bruteProblem
	edit := func(change func(*bruteMachine)) {
		q := p.clone()
		m := *p.m
		m.cpus, m.nodes, m.devices = slices.Clone(m.cpus), slices.Clone(m.nodes), slices.Clone(m.devices)
		change(&m)
		q.m = &m
		if m.String() != p.m.String() {
			all = append(all, q)
		}
	}
	edit(func(m *bruteMachine) {
		m.cmdline = ""
		for i := range m.cpus {
			m.cpus[i].isolated, m.cpus[i].nohz, m.cpus[i].managed = false, false, false
		}
	})
	edit(func(m *bruteMachine) {
		m.cpusetV = false
		for i := range m.cpus {
			m.cpus[i].allowed = true
		}
		for i := range m.nodes {
			m.nodes[i].allowed = true
		}
	})
	edit(func(m *bruteMachine) {
		for i := range m.cpus {
			m.cpus[i].online = true
		}
	})
	edit(func(m *bruteMachine) { m.hybrid, m.noL3 = false, false })
	edit(func(m *bruteMachine) {
		for i := range m.nodes {
			none := map[int]int{}
			for page := range m.nodes[i].pool {
				none[page] = 0
			}
			m.nodes[i].pool = none
		}
	})
	edit(func(m *bruteMachine) {
		for i := range m.nodes {
			m.nodes[i].memory = max(m.nodes[i].memory, 8)
		}
	})
	if last := len(p.m.nodes) - 1; last > 0 && p.m.where(func(c bruteCPU) bool { return c.node == last }).IsEmpty() {
		edit(func(m *bruteMachine) {
			m.nodes = m.nodes[:last]
			for i := range m.nodes {
				m.nodes[i].distances = m.nodes[i].distances[:last]
			}
			for i := range m.devices {
				if m.devices[i].node == last {
					m.devices[i].node = 0
				}
			}
		})
	}
	used := slices.ContainsFunc(p.lanes, func(l *bruteLane) bool { return l.spec.Network.Device != "" || l.spec.Near.Device != "" })
	if !used {
		edit(func(m *bruteMachine) { m.devices = nil })
	}
	return all
}
