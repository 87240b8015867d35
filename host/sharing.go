package host

import (
	"fmt"
	"slices"
	"strings"

	"isolane.dev/isolane/cpuset"
)

// sharing is what each CPU says of the CPUs that share something with it.
type sharing struct {
	what   string // "core", "L3"
	claims map[int]cpuset.Set
	order  []int // who has claimed, in the order of their numbers
}

func (s *sharing) claim(id int, set cpuset.Set) {
	s.claims[id] = set
	s.order = append(s.order, id)
}

func newSharing(what string) *sharing {
	return &sharing{what: what, claims: map[int]cpuset.Set{}}
}

// claim notes the first of the paths that says something. Each is a cpumask, which has a cpulist
// beside it. CPUs that are offline are left out, as most kernels do themselves.
func (r *reader) claim(s *sharing, id int, online cpuset.Set, paths ...string) {
	for _, path := range paths {
		set := r.set(path, strings.TrimSuffix(path, "_map")+"_list")
		if set == nil || set.IsEmpty() {
			continue
		}
		if !set.Contains(id) {
			r.warn("/%s: CPU %d is not in its own list %s", path, id, set)
			continue
		}
		s.claim(id, set.Intersection(online))
		return
	}
}

// claimNumbered is claim for a die or a cluster. A kernel that knows of none says that each CPU is one by
// itself, and gives it a number below 0.
func (r *reader) claimNumbered(s *sharing, id int, online cpuset.Set, dir string) {
	all := &sharing{what: s.what, claims: map[int]cpuset.Set{}}
	r.claim(all, id, online, dir+s.what+"_cpus")
	set := all.claims[id]
	if set.IsEmpty() || set == cpuset.Of(id) && strings.HasPrefix(r.text(dir+s.what+"_id"), "-") {
		return
	}
	s.claim(id, set)
}

// agree returns the group of each CPU. A claim makes a group where all whom it names say the same,
// and are more than those outside who name one of them. A CPU that says nothing belongs where the
// others name it. Any other claim makes no group, and is a warning.
func (r *reader) agree(s *sharing) map[int]cpuset.Set {
	named := map[int]int{} // CPU: how many claims name it
	for _, claim := range s.claims {
		for id := range claim.All() {
			named[id]++
		}
	}
	groups, seen := map[int]cpuset.Set{}, map[cpuset.Set]bool{}
	for _, id := range s.order {
		claim := s.claims[id]
		if seen[claim] {
			continue
		}
		seen[claim] = true
		if s.stands(claim, named) {
			for member := range claim.All() {
				groups[member] = claim
			}
			continue
		}
		r.warn("/%s: CPU %d says that CPUs %s share their %s, and not all of them say so", cpuDir, id, claim, s.what)
	}
	return groups
}

func (s *sharing) stands(claim cpuset.Set, named map[int]int) bool {
	speakers, most := 0, 0
	for id := range claim.All() {
		theirs, ok := s.claims[id]
		if ok && theirs != claim {
			return false
		}
		if ok {
			speakers++
		}
		most = max(most, named[id])
	}
	return speakers > most-speakers
}

// splitUnits parts siblings with different core_ids. They are the two cores of a compute unit (AMD
// family 15h), which share their caches and are no SMT siblings. Siblings lie in one package, where
// a core_id is unique.
func (r *reader) splitUnits(cores *sharing) {
	coreID := map[int]uint64{}
	for id, siblings := range cores.claims {
		n := r.number(fmt.Sprintf("%s/cpu%d/topology/core_id", cpuDir, id))
		if siblings.Len() > 1 && n != nil {
			coreID[id] = *n
		}
	}
	for id, siblings := range cores.claims {
		mine, ok := coreID[id]
		if !ok {
			continue
		}
		var same []int
		for other := range siblings.All() {
			if theirs, said := coreID[other]; !said || theirs == mine {
				same = append(same, other)
			}
		}
		cores.claims[id] = cpuset.Of(same...)
	}
}

// checkNesting warns where a core lies only in part in something that contains whole cores.
func (r *reader) checkNesting(cores map[int]cpuset.Set, outer map[string]map[int]cpuset.Set) {
	var texts []string
	for what, groups := range outer {
		for id, core := range cores {
			group, ok := groups[id]
			if ok && id == core.First() && !core.IsSubsetOf(group) {
				texts = append(texts, fmt.Sprintf("/%s: CPUs %s are one core, but the %s of CPU %d is shared by %s only",
					cpuDir, core, what, id, group))
			}
		}
	}
	slices.Sort(texts)
	for _, text := range texts {
		r.warn("%s", text)
	}
}
