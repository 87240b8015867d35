package plan

import (
	"fmt"
	"slices"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/lane"
)

// Refusal is why a lane does not fit. It is an error, and a document of its own.
type Refusal struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Lane       string   `json:"lane"`
	Blocking   []string `json:"blocking"` // the fewest constraints that cannot hold together
	Cheapest   *Change  `json:"cheapest,omitempty"`
}

// Change is what would admit a lane: something to ask for differently, or lanes to move.
type Change struct {
	Change string `json:"change,omitempty"`
	Moves  []Move `json:"moves,omitempty"`
}

// Error is the refusal in one line.
func (r *Refusal) Error() string {
	text := fmt.Sprintf("lane %s refused: %s", r.Lane, strings.Join(r.Blocking, "; "))
	switch {
	case r.Cheapest == nil:
	case len(r.Cheapest.Moves) > 0:
		var moves []string
		for _, m := range r.Cheapest.Moves {
			moves = append(moves, fmt.Sprintf("%s from CPUs %s to %s", m.Lane, m.From, m.To))
		}
		text += "; cheapest change: move " + strings.Join(moves, ", then ") + " (--repack)"
	default:
		text += "; cheapest change: " + r.Cheapest.Change
	}
	return text
}

// constraint is one of the things that may keep a lane out.
type constraint struct {
	name string
	text string
}

// explain finds the fewest constraints that keep a lane out, by leaving out all others, and the
// cheapest change. It is called for lanes that do not fit.
func (m *machine) explain(l lane.Lane) error {
	r := &Refusal{APIVersion: APIVersion, Kind: KindOfRefusal, Lane: l.Metadata.Name}
	all := m.constraints(l)
	for size := 0; size <= len(all) && r.Blocking == nil; size++ {
		subsets(len(all), size, func(set uint64) {
			if r.Blocking == nil && !m.fitsWith(l, all, set) {
				r.Blocking = []string{m.demandText(l)}
				for i, c := range all {
					if set&(1<<i) != 0 {
						r.Blocking = append(r.Blocking, c.text)
					}
				}
			}
		})
	}
	if moves, ok := m.movesFor(l); ok {
		r.Cheapest = &Change{Moves: moves}
		return r
	}
	for i, c := range all {
		if slices.Contains(l.Spec.Wishes(), c.name) && m.fitsWith(l, all, (1<<len(all)-1)&^(1<<i)) {
			r.Cheapest = &Change{Change: fmt.Sprintf("spec.preferred: {%s: 1}", c.name)}
			return r
		}
	}
	for n := l.Spec.CPUs.Count - 1; n > 0; n-- {
		fewer := l
		fewer.Spec.CPUs.Count, fewer.Spec.Roles = n, nil
		if _, ok, err := m.best(fewer, relaxed{}); ok && err == nil {
			r.Cheapest = &Change{Change: fmt.Sprintf("spec.cpus.count: %d", n)}
			return r
		}
	}
	for i, c := range all {
		if c.name == "boot" && m.fitsWith(l, all, (1<<len(all)-1)&^(1<<i)) {
			r.Cheapest = &Change{Change: "spec.cpus.boot: true"}
		}
	}
	return r
}

func (m *machine) demandText(l lane.Lane) string {
	return fmt.Sprintf("asks for %d CPUs, %d are usable", l.Spec.CPUs.Count, m.usable().Len())
}

func (m *machine) usable() cpuset.Set {
	var ids []int
	for _, c := range m.cores {
		ids = append(ids, c.cpus...)
	}
	return cpuset.Of(ids...)
}

// constraints are what a lane asks for beyond a number of CPUs, and what limits all lanes.
func (m *machine) constraints(l lane.Lane) []constraint {
	s := l.Spec
	all := []constraint{}
	if len(m.lanes) > 0 {
		var has cpuset.Set
		for _, o := range m.lanes {
			has = has.Union(o.Owned())
		}
		all = append(all, constraint{"others", fmt.Sprintf("%d CPUs belong to other lanes", has.Len())})
	}
	if !s.CPUs.Boot {
		all = append(all, constraint{"boot", fmt.Sprintf("the boot core (CPUs %s) stays housekeeping", cpuset.Of(m.cores[m.boot].cpus...))})
	}
	if s.Memory.Size > 0 {
		all = append(all, constraint{"memory", fmt.Sprintf("spec.memory.size: %s", s.Memory.Size)})
	}
	if len(s.Memory.Hugepages) > 0 {
		all = append(all, constraint{"hugepages", "spec.memory.hugepages"})
	}
	texts := map[string]string{
		"smt":   "spec.cpus.smt: " + smtName(s) + " wants whole cores",
		"kind":  "spec.cpus.kind: " + s.CPUs.Kind,
		"l3":    "spec.cpus.l3: all below one L3",
		"numa":  "spec.cpus.numa: all on one node",
		"near":  "spec.near: " + nearText(s.Near),
		"apart": fmt.Sprintf("spec.apart: not beside %s", strings.Join(s.Apart.Lanes, ", ")),
	}
	for _, w := range s.Wishes() {
		if _, soft := s.Preferred[w]; !soft {
			all = append(all, constraint{w, texts[w]})
		}
	}
	return all
}

func nearText(n lane.Near) string {
	switch {
	case n.NUMANode != nil:
		return fmt.Sprintf("node %d", *n.NUMANode)
	case n.Lane != "":
		return "lane " + n.Lane
	}
	return n.Device
}

// fitsWith says whether a lane fits with just some of its constraints.
func (m *machine) fitsWith(l lane.Lane, all []constraint, set uint64) bool {
	var r relaxed
	on := m
	for i, c := range all {
		if set&(1<<i) != 0 {
			continue
		}
		switch c.name {
		case "others":
			on = newMachine(m.h, nil)
		case "boot":
			r.boot = true
		case "memory":
			l.Spec.Memory.Size = 0
		case "hugepages":
			l.Spec.Memory.Hugepages = nil
		default:
			r.wishes = append(r.wishes, c.name)
		}
	}
	_, ok, err := on.best(l, r)
	return ok && err == nil
}
