package host

import (
	"errors"
	"fmt"
	"strings"

	"isolane.dev/isolane/cpuset"
)

const cpuDir = "sys/devices/system/cpu"

// cpus reads /sys/devices/system/cpu (Documentation/admin-guide/cputopology.rst,
// Documentation/ABI/testing/sysfs-devices-system-cpu).
func (r *reader) cpus() []CPU {
	ids := r.numbered(cpuDir, "cpu")
	if len(ids) == 0 {
		r.err = errors.New("/" + cpuDir + ": expected at least cpu0: is sysfs mounted?")
		return nil
	}
	online := r.list(cpuDir + "/online")
	allowed := r.allowed()
	kinds := r.kinds()
	nodes := r.nodeOf()
	cpus := make([]CPU, 0, len(ids))
	for _, id := range ids {
		c := CPU{ID: id, Online: r.online(id, online), Kind: Uniform}
		if allowed != nil {
			is := allowed.Contains(id)
			c.Allowed = &is
		}
		if kind, ok := kinds[id]; ok {
			c.Kind = kind
		}
		if c.Online {
			if n, ok := nodes[id]; ok {
				c.NUMANode = &n
			}
			r.topology(&c)
		}
		cpus = append(cpus, c)
	}
	r.checkSymmetry(cpus)
	return cpus
}

// online prefers the list of all, then the CPU's own file; CPU 0 often has none because it cannot
// go offline.
func (r *reader) online(id int, list *cpuset.Set) bool {
	if list != nil {
		return list.Contains(id)
	}
	n := r.number(fmt.Sprintf("%s/cpu%d/online", cpuDir, id))
	return n == nil || *n == 1
}

// allowed is the cpuset in force for the reading process (proc_pid_status(5)).
func (r *reader) allowed() *cpuset.Set {
	status, ok := r.read("proc/self/status")
	if !ok {
		return nil
	}
	for line := range strings.Lines(status) {
		if list, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			set, err := cpuset.Parse(list)
			if err != nil {
				r.warn("/proc/self/status: %v", err)
				return nil
			}
			return &set
		}
	}
	return nil
}

// kinds tells performance from efficiency cores by their PMUs, which list their CPUs.
func (r *reader) kinds() map[int]string {
	kinds := map[int]string{}
	for pmu, kind := range map[string]string{"cpu_core": Performance, "cpu_atom": Efficiency} {
		if set := r.list("sys/devices/" + pmu + "/cpus"); set != nil {
			for c := range set.All() {
				kinds[c] = kind
			}
		}
	}
	return kinds
}

// topology fills in package, die, core and caches from the lists of who shares them.
func (r *reader) topology(c *CPU) {
	dir := fmt.Sprintf("%s/cpu%d/", cpuDir, c.ID)
	group := func(paths ...string) (*int, cpuset.Set) {
		for _, p := range paths {
			set := r.list(dir + p)
			if set == nil {
				if text, ok := r.read(dir + strings.TrimSuffix(p, "_list")); ok { // only the mask
					if mask, err := cpuset.ParseMask(text); err == nil {
						set = &mask
					}
				}
			}
			if set == nil || set.IsEmpty() {
				continue
			}
			if !set.Contains(c.ID) {
				r.warn("/%s%s: CPU %d is not in its own list %s", dir, p, c.ID, set)
				continue
			}
			first := set.First()
			return &first, *set
		}
		return nil, cpuset.Set{}
	}
	var siblings cpuset.Set
	c.Core, siblings = group("topology/core_cpus_list", "topology/thread_siblings_list")
	if c.Core != nil {
		place := siblings.Intersection(cpuset.Of(upTo(c.ID)...)).Len() - 1
		c.Thread = &place
	}
	c.Package, _ = group("topology/package_cpus_list", "topology/core_siblings_list")
	c.Die, _ = group("topology/die_cpus_list")
	for _, index := range r.numbered(dir+"cache", "index") {
		cache := fmt.Sprintf("cache/index%d/", index)
		level := r.number(dir + cache + "level")
		if level == nil || r.text(dir+cache+"type") == "Instruction" {
			continue
		}
		switch *level {
		case 2:
			c.L2, _ = group(cache + "shared_cpu_list")
		case 3:
			c.L3, _ = group(cache + "shared_cpu_list")
		}
	}
}

func upTo(id int) []int {
	ids := make([]int, id+1)
	for i := range ids {
		ids[i] = i
	}
	return ids
}

// checkSymmetry warns where two CPUs disagree on whether they share a core: then the lower number
// of the one is not that of the other.
func (r *reader) checkSymmetry(cpus []CPU) {
	first := map[int]CPU{}
	for _, c := range cpus {
		first[c.ID] = c
	}
	for _, c := range cpus {
		if c.Core == nil {
			continue
		}
		if head, ok := first[*c.Core]; ok && head.Online && head.Core != nil && *head.Core != *c.Core {
			r.warn("/%s/cpu%d/topology: CPU %d counts itself to the core of CPU %d, which does not", cpuDir, c.ID, c.ID, *c.Core)
		}
	}
}
