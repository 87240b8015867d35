package host

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"isolane.dev/isolane/cpuset"
)

const cpuDir = "sys/devices/system/cpu"

// Online reads which CPUs are online, for callers that need nothing else.
func Online(root fs.FS) (cpuset.Set, error) { return cpuset.Read(root, cpuDir+"/online") }

// cpus reads /sys/devices/system/cpu (Documentation/admin-guide/cputopology.rst,
// Documentation/ABI/testing/sysfs-devices-system-cpu).
func (r *reader) cpus() []CPU {
	list := r.list(cpuDir + "/online")
	ids := r.ids(cpuDir, "cpu").Union(orZero(list))
	if ids.IsEmpty() {
		r.err = errors.New("/" + cpuDir + ": expected at least cpu0: is this the root of a machine, with sysfs?")
		return nil
	}
	online := r.online(ids, list)
	if online.IsEmpty() {
		r.warn("/%s/online: no CPU of %s is online", cpuDir, ids)
	}
	allowed := r.allowedCPUs()
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

// online returns the online CPUs: those of list, if there is one, or those whose own file says so. CPU 0
// often lacks that file because it cannot go offline. A CPU without it counts as offline if it has no
// topology directory and other CPUs have one.
func (r *reader) online(ids cpuset.Set, list *cpuset.Set) cpuset.Set {
	if list != nil {
		return *list
	}
	var online, withTopology, without []int
	for id := range ids.All() {
		switch n := r.number(fmt.Sprintf("%s/cpu%d/online", cpuDir, id)); {
		case n != nil && *n == 1:
			online = append(online, id)
		case n != nil:
		case len(r.entries(fmt.Sprintf("%s/cpu%d/topology", cpuDir, id))) > 0:
			withTopology = append(withTopology, id)
		default:
			without = append(without, id)
		}
	}
	if len(withTopology) == 0 {
		withTopology = without
	}
	return cpuset.Of(append(online, withTopology...)...)
}

// topology sets package, die, core and caches of the online CPUs, from the lists of CPUs that share them.
func (r *reader) topology(cpus []CPU, online cpuset.Set) {
	kinds := []string{"core", "cluster", "die", "package", "L1", "L2", "L3"}
	reported := map[string]reports{}
	for _, kind := range kinds {
		reported[kind] = reports{}
	}
	for id := range online.All() {
		dir := fmt.Sprintf("%s/cpu%d/topology/", cpuDir, id)
		r.report(reported["core"], id, online, dir+"core_cpus", dir+"thread_siblings")
		r.report(reported["package"], id, online, dir+"package_cpus", dir+"core_siblings")
		r.reportNumbered(reported["die"], id, online, dir+"die")
		r.reportNumbered(reported["cluster"], id, online, dir+"cluster")
		r.readCaches(id, online, reported)
	}
	r.splitUnits(reported["core"])
	objects := map[string]map[int]cpuset.Set{}
	for _, kind := range kinds {
		objects[kind] = r.objects(kind, reported[kind], online)
	}
	r.checkNesting(objects)
	packages := r.packageNumbers(objects["package"], online)
	for i := range cpus {
		c := &cpus[i]
		number := func(kind string) *int {
			object, ok := objects[kind][c.ID]
			if !ok {
				return nil
			}
			n := object.First() // unique in the machine
			return &n
		}
		c.Core, c.Cluster, c.Die = number("core"), number("cluster"), number("die")
		c.L1, c.L2, c.L3 = number("L1"), number("L2"), number("L3")
		if n, ok := packages[c.ID]; ok {
			c.Package = &n
		}
		if core, ok := objects["core"][c.ID]; ok {
			thread := slices.Index(core.Slice(), c.ID)
			c.Thread = &thread
		}
	}
}

// readCaches adds the caches of a CPU, and reports the unified and data caches of levels 1 to 3. The size and
// type of a shared cache are those in the files of its lowest CPU.
func (r *reader) readCaches(id int, online cpuset.Set, reported map[string]reports) {
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
		set := *shared
		if set.IsEmpty() { // ia64 has an empty set for caches that belong to one core
			set = reported["core"][id]
		}
		if set = set.Intersection(online); !set.Contains(id) {
			if !shared.IsEmpty() {
				r.warn("/%sshared_cpu_list: CPU %d is not in its own list %s", dir, id, shared)
			}
			continue
		}
		kind := strings.ToLower(r.text(dir + "type"))
		sharing := reported[fmt.Sprint("L", *level)]
		if _, known := sharing[id]; kind != "instruction" && sharing != nil && !known {
			sharing[id] = set
		}
		if set.First() == id {
			size := r.cacheSize(dir + "size")
			r.caches = append(r.caches, Cache{Level: *level, Type: kind, SizeBytes: size, CPUs: set})
		}
	}
}

// packageNumbers returns the kernel's numbers if they are unique, else the lowest CPU of each package.
func (r *reader) packageNumbers(packages map[int]cpuset.Set, online cpuset.Set) map[int]int {
	kernels := map[int]int{}
	for id := range online.All() {
		n := r.number(fmt.Sprintf("%s/cpu%d/topology/physical_package_id", cpuDir, id))
		if n != nil && *n <= 1<<31 {
			kernels[id] = int(*n)
		}
	}
	if len(packages) == 0 { // without lists there is only the number
		return kernels
	}
	numbers, owners := map[int]int{}, map[int]cpuset.Set{}
	unique := true
	for id, cpus := range packages {
		numbers[id] = cpus.First()
		n, ok := kernels[id]
		if owner, taken := owners[n]; !ok || taken && owner != cpus || kernels[cpus.First()] != n {
			unique = false
		}
		owners[n] = cpus
	}
	if unique {
		for id := range packages {
			numbers[id] = kernels[id]
		}
	}
	return numbers
}
