package host

import (
	"fmt"
	"slices"
	"strings"

	"isolane.dev/isolane/cpuset"
)

// reports has, by CPU, the CPUs that share an object with it according to its own files.
type reports map[int]cpuset.Set

// report adds the CPUs of the first of the paths that has any. Each path is a cpumask with a cpulist beside
// it. Offline CPUs are left out, as most kernels do themselves.
func (r *reader) report(to reports, id int, online cpuset.Set, paths ...string) {
	for _, path := range paths {
		set := r.set(path, path+"_list")
		if set == nil || set.IsEmpty() {
			continue
		}
		if !set.Contains(id) {
			r.warn("/%s: CPU %d is not in its own list %s", path, id, set)
			continue
		}
		to[id] = set.Intersection(online)
		return
	}
}

// reportNumbered is report for a die or a cluster. A kernel that does not know them reports each CPU as one
// of its own, with a negative number; such reports are dropped.
func (r *reader) reportNumbered(to reports, id int, online cpuset.Set, path string) {
	r.report(to, id, online, path+"_cpus")
	if to[id] == cpuset.Of(id) && strings.HasPrefix(r.text(path+"_id"), "-") {
		delete(to, id)
	}
}

// objects returns the object of each CPU, as a set of CPUs. A report makes an object if all CPUs in it that
// report say the same, and if they outnumber the other reports of any of its CPUs. A CPU without a report
// belongs to the object that the others have it in. Any other report makes no object, and is a warning.
func (r *reader) objects(kind string, reported reports, online cpuset.Set) map[int]cpuset.Set {
	counts := map[int]int{} // how many reports have a CPU
	for _, set := range reported {
		for id := range set.All() {
			counts[id]++
		}
	}
	objects, seen := map[int]cpuset.Set{}, map[cpuset.Set]bool{}
	for id := range online.All() {
		set, ok := reported[id]
		if !ok || seen[set] {
			continue
		}
		seen[set] = true
		if !reported.agreeOn(set, counts) {
			r.warn("/%s: CPU %d says that CPUs %s share their %s, and not all of them say so", cpuDir, id, set, kind)
			continue
		}
		for member := range set.All() {
			objects[member] = set
		}
	}
	return objects
}

func (s reports) agreeOn(set cpuset.Set, counts map[int]int) bool {
	reporting, most := 0, 0
	for id := range set.All() {
		other, ok := s[id]
		if ok && other != set {
			return false
		}
		if ok {
			reporting++
		}
		most = max(most, counts[id])
	}
	return reporting > most-reporting
}

// splitUnits splits siblings with different core_ids: the two cores of a compute unit (AMD family 15h), which
// share caches but are no SMT siblings. Siblings are in one package, where a core_id is unique.
func (r *reader) splitUnits(cores reports) {
	coreIDs := map[int]uint64{}
	for id, siblings := range cores {
		n := r.number(fmt.Sprintf("%s/cpu%d/topology/core_id", cpuDir, id))
		if siblings.Len() > 1 && n != nil {
			coreIDs[id] = *n
		}
	}
	for id, siblings := range cores {
		own, ok := coreIDs[id]
		if !ok {
			continue
		}
		var same []int
		for sibling := range siblings.All() {
			if other, known := coreIDs[sibling]; !known || other == own {
				same = append(same, sibling)
			}
		}
		cores[id] = cpuset.Of(same...)
	}
}

// checkNesting warns if a core is only partly in an object that should contain whole cores.
func (r *reader) checkNesting(objects map[string]map[int]cpuset.Set) {
	var texts []string
	for kind, of := range objects {
		for id, core := range objects["core"] {
			object, ok := of[id]
			if ok && id == core.First() && !core.IsSubsetOf(object) {
				texts = append(texts, fmt.Sprintf("/%s: CPUs %s are one core, but the %s of CPU %d is shared by %s only",
					cpuDir, core, kind, id, object))
			}
		}
	}
	slices.Sort(texts)
	for _, text := range texts {
		r.warn("%s", text)
	}
}
