package solver

import (
	"cmp"
	"maps"
	"slices"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/search"
	"isolane.dev/isolane/plan/stock"
)

const goneReason = "some of its CPUs are gone"

func move(from, to plan.Lane, reason string) plan.Move {
	v := plan.Move{Lane: to.Name, From: from.Owned(), To: to.Owned(), Reason: reason}
	for _, h := range to.Memory {
		if !from.MemoryNodes.Contains(h.Node) {
			v.MemoryBytes = stock.PlusCapped(v.MemoryBytes, h.Bytes)
		}
	}
	for _, h := range to.Hugepages {
		if !from.MemoryNodes.Contains(h.Node) {
			v.MemoryBytes = stock.PlusCapped(v.MemoryBytes, stock.TimesCapped(h.Pages, h.PageBytes))
		}
	}
	return v
}

// overlap reports whether two lanes cannot be placed at the same time.
func overlap(a, b plan.Lane) bool {
	return a.Owned().Intersects(b.Owned()) && (a.Spec.CPUs.Share <= 1 || b.Spec.CPUs.Share <= 1)
}

// goal is where a lane goes: to exactly that place, or to the best place on a node when it gets there.
type goal struct {
	exact bool
	lane  plan.Lane
	node  int
	cpus  cpuset.Set // that the goal allows
}

// route moves lanes to their goals. Its machine begins empty.
type route struct {
	m      *stock.Machine
	reason string
	lanes  []plan.Lane
	goals  map[string]goal
	moves  []plan.Move
}

// routeTo returns the route from one arrangement of lanes to another.
func (r *repacking) routeTo(from, to []plan.Lane) route {
	t := route{m: r.m, reason: r.reason, goals: map[string]goal{}}
	for _, l := range from {
		next, ok := plan.Find(to, l.Name)
		if !ok { // it has lost CPUs and is not placed yet
			continue
		}
		t.lanes = append(t.lanes, l)
		if l.Owned() != next.Owned() || l.MemoryNodes != next.MemoryNodes {
			t.goals[l.Name] = goal{exact: true, lane: next, cpus: next.CPUs}
		}
	}
	return t
}

// run moves all lanes, each to CPUs that are free at that time. If lanes wait for each other's CPUs, one of
// them steps aside, or exchanges some of its CPUs for free ones. It returns false if neither is possible.
func (t *route) run() bool {
	stepped := map[string]bool{}
	waiting := slices.Sorted(maps.Keys(t.goals))
	slices.SortStableFunc(waiting, func(a, b string) int {
		return cmp.Compare(t.at(b).CPUs.Len(), t.at(a).CPUs.Len())
	})
	for rounds := 4 * len(t.lanes); len(waiting) > 0; rounds-- {
		before := len(waiting)
		waiting = slices.DeleteFunc(waiting, t.arrive)
		if len(waiting) < before {
			continue
		}
		if rounds == 0 || !t.stepAside(waiting, stepped) && !t.exchange(waiting) {
			return false
		}
	}
	return true
}

func (t *route) at(name string) plan.Lane {
	l, _ := plan.Find(t.lanes, name)
	return l
}

func (t *route) do(to plan.Lane, why string) {
	i := slices.IndexFunc(t.lanes, func(l plan.Lane) bool { return l.Name == to.Name })
	t.moves = append(t.moves, move(t.lanes[i], to, why))
	t.lanes[i] = to
}

// arrive moves a lane to its goal if its CPUs are free.
func (t *route) arrive(name string) bool {
	g, others := t.goals[name], without(t.lanes, name)
	if !g.exact {
		on := t.m.With(others)
		p, ok := search.BestOn(on, t.at(name).Declaration(), g.node)
		if !ok {
			return false
		}
		g.lane = search.LaneAt(on, p)
	} else if slices.ContainsFunc(others, func(o plan.Lane) bool { return overlap(o, g.lane) }) {
		return false
	}
	t.do(g.lane, t.reason)
	return true
}

// stepAside moves one of the waiting lanes off its CPUs: if possible to CPUs that are no waiting lane's goal.
func (t *route) stepAside(waiting []string, stepped map[string]bool) bool {
	var wanted cpuset.Set
	for _, name := range waiting {
		wanted = wanted.Union(t.goals[name].lane.Owned())
	}
	for _, name := range waiting {
		if stepped[name] || !t.goals[name].exact {
			continue
		}
		has := t.at(name)
		m := t.m.With(without(t.lanes, name))
		for _, off := range []cpuset.Set{has.Owned().Union(wanted), has.Owned()} {
			if p, ok := search.BestOff(m, has.Declaration(), off); ok {
				t.do(search.LaneAt(m, p), "steps aside while others move")
				stepped[name] = true
				return true
			}
		}
	}
	return false
}

// exchange moves part of a waiting lane: to free CPUs of its goal, or else off CPUs that another lane waits
// for.
func (t *route) exchange(waiting []string) bool {
	all := t.m.Host.Usable()
	for _, name := range waiting {
		if to := t.goals[name].cpus; t.shift(name, all.Difference(to), to) {
			return true
		}
	}
	for _, name := range waiting {
		for _, other := range waiting {
			if to := t.goals[other].cpus; to != t.goals[name].cpus && t.shift(name, to, all.Difference(to)) {
				return true
			}
		}
	}
	return false
}

// shift exchanges CPUs of a lane in off for as many free ones in onto. Lanes that want whole cores or share
// CPUs can only move as a whole.
func (t *route) shift(name string, off, onto cpuset.Set) bool {
	has := t.at(name)
	if s := has.Spec.CPUs; s.Share > 1 || s.SMT == lane.Isolate || s.SMT == lane.Pack {
		return false
	}
	m := t.m.With(without(t.lanes, name))
	p, ok := search.Exchange(m, has, off, onto)
	if ok {
		t.do(search.LaneAt(m, p), "goes part of the way while others move")
	}
	return ok
}
