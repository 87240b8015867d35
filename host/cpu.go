package host

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"isolane.dev/isolane/cpuset"
)

const cpuDir = "sys/devices/system/cpu"

// cpus reads /sys/devices/system/cpu (Documentation/admin-guide/cputopology.rst,
// Documentation/ABI/testing/sysfs-devices-system-cpu).
func (r *reader) cpus() []CPU {
	list := r.list(cpuDir + "/online")
	ids := r.ids(cpuDir, "cpu")
	if list != nil {
		ids = ids.Union(*list)
	}
	if ids.IsEmpty() {
		r.err = errors.New("/" + cpuDir + ": expected at least cpu0: is this the root of a machine, with sysfs?")
		return nil
	}
	online := r.online(ids, list)
	if online.IsEmpty() {
		r.warn("/%s/online: no CPU of %s is online", cpuDir, ids)
	}
	allowed := r.allowed()
	nodes := r.nodeOf(online)
	cpus := make([]CPU, 0, ids.Len())
	for id := range ids.All() {
		c := CPU{ID: id, Online: online.Contains(id)}
		if allowed != nil {
			is := allowed.Contains(id)
			c.Allowed = &is
		}
		if n, ok := nodes[id]; ok {
			c.NUMANode = &n
		}
		cpus = append(cpus, c)
	}
	r.topology(cpus, online)
	r.kinds(cpus)
	slices.SortStableFunc(r.caches, func(a, b Cache) int {
		return cmp.Or(a.Level-b.Level, strings.Compare(a.Type, b.Type), a.CPUs.First()-b.CPUs.First())
	})
	return cpus
}

// online prefers the list of all, then the CPU's own file, which CPU 0 often lacks because it cannot
// go offline. A CPU that is offline has no directory topology, if the others have.
func (r *reader) online(ids cpuset.Set, list *cpuset.Set) cpuset.Set {
	if list != nil {
		return *list
	}
	has := func(id int) bool { return len(r.entries(fmt.Sprintf("%s/cpu%d/topology", cpuDir, id))) > 0 }
	var silent, with, online []int
	for id := range ids.All() {
		switch n := r.number(fmt.Sprintf("%s/cpu%d/online", cpuDir, id)); {
		case n != nil && *n == 1:
			online = append(online, id)
		case n == nil && has(id):
			with = append(with, id)
		case n == nil:
			silent = append(silent, id)
		}
	}
	if len(with) == 0 {
		with = silent
	}
	return cpuset.Of(append(online, with...)...)
}

// allowed is the cpuset in force for the reading process (proc_pid_status(5)). What isolcpus= keeps every process
// off is in its cpuset all the same, so a lane may have it.
func (r *reader) allowed() *cpuset.Set {
	status, _ := r.read("proc/self/status")
	for line := range strings.Lines(status) {
		list, ok := strings.CutPrefix(line, "Cpus_allowed_list:")
		if !ok {
			continue
		}
		set, err := cpuset.Parse(list)
		if err != nil {
			r.warn("/proc/self/status: Cpus_allowed_list: %v", err)
			return nil
		}
		if isolated := r.list(cpuDir + "/isolated"); isolated != nil && !isolated.IsEmpty() {
			if own := r.inCpuset("cpus"); own != nil {
				set = set.Union(isolated.Intersection(*own))
			}
		}
		return &set
	}
	return r.inCpuset("cpus")
}

// topology fills in package, die, core and caches of the online CPUs, from the lists of who shares
// them.
func (r *reader) topology(cpus []CPU, online cpuset.Set) {
	cores, packages, dies := newSharing("core"), newSharing("package"), newSharing("die")
	clusters := newSharing("cluster")
	levels := []*sharing{newSharing("L1"), newSharing("L2"), newSharing("L3")}
	for id := range online.All() {
		dir := fmt.Sprintf("%s/cpu%d/topology/", cpuDir, id)
		r.claim(cores, id, online, dir+"core_cpus", dir+"thread_siblings")
		r.claim(packages, id, online, dir+"package_cpus", dir+"core_siblings")
		r.claimNumbered(dies, id, online, dir)
		r.claimNumbered(clusters, id, online, dir)
		r.readCaches(id, online, cores, levels)
	}
	r.splitUnits(cores)
	core, clusterOf, dieOf, packageOf := r.agree(cores), r.agree(clusters), r.agree(dies), r.agree(packages)
	l1Of, l2Of, l3Of := r.agree(levels[0]), r.agree(levels[1]), r.agree(levels[2])
	r.checkNesting(core, map[string]map[int]cpuset.Set{
		"L1": l1Of, "L2": l2Of, "L3": l3Of, "cluster": clusterOf, "die": dieOf, "package": packageOf})
	numbers := r.packageNumbers(packageOf, online)
	for i := range cpus {
		c := &cpus[i]
		c.Core, c.Cluster, c.Die = lowest(core, c.ID), lowest(clusterOf, c.ID), lowest(dieOf, c.ID)
		c.L1, c.L2, c.L3 = lowest(l1Of, c.ID), lowest(l2Of, c.ID), lowest(l3Of, c.ID)
		if n, ok := numbers[c.ID]; ok {
			c.Package = &n
		}
		if siblings, ok := core[c.ID]; ok {
			place := slices.Index(siblings.Slice(), c.ID)
			c.Thread = &place
		}
	}
}

// lowest is the machine-unique number of a CPU's group.
func lowest(groups map[int]cpuset.Set, id int) *int {
	group, ok := groups[id]
	if !ok {
		return nil
	}
	n := group.First()
	return &n
}

// readCaches notes each cache of a CPU, and claims the unified and data caches of its levels 1 to 3. Size
// and type are those that the lowest CPU says.
func (r *reader) readCaches(id int, online cpuset.Set, cores *sharing, levels []*sharing) {
	parent := fmt.Sprintf("%s/cpu%d/cache", cpuDir, id)
	for _, index := range r.numbered(parent, "index", "") {
		dir := fmt.Sprintf("%s/index%d/", parent, index)
		level := r.small(dir + "level")
		if level == nil || *level < 1 || *level > 9 {
			continue
		}
		shared := r.set(dir+"shared_cpu_map", dir+"shared_cpu_list")
		if shared == nil {
			continue
		}
		if shared.IsEmpty() { // ia64 says so of caches that belong to one core
			shared = &cpuset.Set{}
			*shared = cores.claims[id]
		}
		set := shared.Intersection(online)
		if !set.Contains(id) {
			if !shared.IsEmpty() {
				r.warn("/%sshared_cpu_list: CPU %d is not in its own list %s", dir, id, shared)
			}
			continue
		}
		kind := strings.ToLower(r.text(dir + "type"))
		if kind != "instruction" && *level <= len(levels) {
			if s := levels[*level-1]; s.claims[id].IsEmpty() {
				s.claim(id, set)
			}
		}
		if set.First() == id {
			r.caches = append(r.caches, Cache{Level: *level, Type: kind, SizeBytes: r.kibibytes(dir + "size"), CPUs: set})
		}
	}
}

// packageNumbers are the kernel's, if each package has one of its own; else the lowest CPU of each.
func (r *reader) packageNumbers(groups map[int]cpuset.Set, online cpuset.Set) map[int]int {
	said := map[int]int{}
	for id := range online.All() {
		n := r.number(fmt.Sprintf("%s/cpu%d/topology/physical_package_id", cpuDir, id))
		if n != nil && *n <= 1<<31 {
			said[id] = int(*n)
		}
	}
	if len(groups) == 0 { // no lists: then the number is all there is
		return said
	}
	numbers, owner := map[int]int{}, map[int]cpuset.Set{}
	unique := true
	for id, group := range groups {
		numbers[id] = group.First()
		n, ok := said[id]
		if other, taken := owner[n]; !ok || taken && other != group || said[group.First()] != n {
			unique = false
		}
		owner[n] = group
	}
	if !unique {
		return numbers
	}
	for id := range groups {
		numbers[id] = said[id]
	}
	return numbers
}
