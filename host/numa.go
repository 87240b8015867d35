package host

import (
	"fmt"
	"strconv"
	"strings"

	"isolane.dev/isolane/cpuset"
)

const nodeDir = "sys/devices/system/node"

// nodes reads /sys/devices/system/node (Documentation/ABI/stable/sysfs-devices-node).
func (r *reader) nodes(cpus []CPU) []NUMANode {
	var online []int
	for _, c := range cpus {
		if c.Online {
			online = append(online, c.ID)
		}
	}
	nodes := []NUMANode{}
	for _, id := range r.numbered(nodeDir, "node") {
		dir := fmt.Sprintf("%s/node%d", nodeDir, id)
		n := NUMANode{ID: id, MemoryBytes: r.meminfo(dir+"/meminfo", "MemTotal:"), Distances: r.distances(dir),
			Hugepages: r.hugepages(dir)}
		if set := r.nodeCPUs(dir); set != nil {
			n.CPUs = set.Intersection(cpuset.Of(online...))
		}
		nodes = append(nodes, n)
	}
	return nodes
}

func (r *reader) nodeCPUs(dir string) *cpuset.Set {
	if set := r.list(dir + "/cpulist"); set != nil {
		return set
	}
	if text, ok := r.read(dir + "/cpumap"); ok {
		set, err := cpuset.ParseMask(text)
		if err == nil {
			return &set
		}
		r.warn("/%s/cpumap: %v", dir, err)
	}
	return nil
}

// nodeOf says which node each CPU belongs to. A CPU in two nodes belongs to none that is known.
func (r *reader) nodeOf() map[int]int {
	of := map[int]int{}
	twice := map[int]bool{}
	for _, id := range r.numbered(nodeDir, "node") {
		set := r.nodeCPUs(fmt.Sprintf("%s/node%d", nodeDir, id))
		if set == nil {
			continue
		}
		for c := range set.All() {
			if other, ok := of[c]; ok {
				r.warn("/%s: CPU %d stands in node %d and in node %d", nodeDir, c, other, id)
				twice[c] = true
			}
			of[c] = id
		}
	}
	for c := range twice {
		delete(of, c)
	}
	return of
}

func (r *reader) distances(dir string) []int {
	var distances []int
	for _, f := range strings.Fields(r.text(dir + "/distance")) {
		d, err := strconv.Atoi(f)
		if err != nil {
			r.warn("/%s/distance: expected numbers, found %.40q", dir, f)
			return nil
		}
		distances = append(distances, d)
	}
	return distances
}

func (r *reader) hugepages(dir string) []Hugepages {
	pages := []Hugepages{}
	for _, kib := range r.hugepageSizes(dir + "/hugepages") {
		sub := fmt.Sprintf("%s/hugepages/hugepages-%dkB", dir, kib)
		p := Hugepages{PageBytes: kib << 10}
		if n := r.number(sub + "/nr_hugepages"); n != nil {
			p.Total = uint64(*n) //nolint:gosec // G115: number never returns a negative one
		}
		if n := r.number(sub + "/free_hugepages"); n != nil {
			p.Free = uint64(*n) //nolint:gosec // G115: number never returns a negative one
		}
		pages = append(pages, p)
	}
	return pages
}
