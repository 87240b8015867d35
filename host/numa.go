package host

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"isolane.dev/isolane/cpuset"
)

const nodeDir = "sys/devices/system/node"

// nodes reads /sys/devices/system/node (Documentation/ABI/stable/sysfs-devices-node).
func (r *reader) nodes(online cpuset.Set) []NUMANode {
	withMemory := r.list(nodeDir + "/has_memory")
	if withMemory == nil {
		withMemory = r.list(nodeDir + "/has_normal_memory")
	}
	nodes := []NUMANode{}
	for id := range r.ids(nodeDir, "node").All() {
		dir := fmt.Sprintf("%s/node%d", nodeDir, id)
		n := NUMANode{ID: id, CPUs: r.nodeCPUs(id).Intersection(online), Distances: r.distances(dir),
			MemoryBytes: r.meminfo(dir+"/meminfo", "MemTotal:"), Hugepages: r.hugepages(dir + "/hugepages")}
		if has := n.MemoryBytes > 0; withMemory != nil {
			has = withMemory.Contains(id)
			n.HasMemory = &has
		} else if has {
			n.HasMemory = &has
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// nodeCPUs prefers the node's own sets to the links to its CPUs.
func (r *reader) nodeCPUs(id int) cpuset.Set {
	dir := fmt.Sprintf("%s/node%d", nodeDir, id)
	if set := r.set(dir+"/cpumap", dir+"/cpulist"); set != nil {
		return *set
	}
	return r.ids(dir, "cpu")
}

// nodeOf says which node each online CPU belongs to. A CPU in several nodes belongs to none that is
// known.
func (r *reader) nodeOf(online cpuset.Set) map[int]int {
	of := map[int][]int{}
	for id := range r.ids(nodeDir, "node").All() {
		for c := range r.nodeCPUs(id).Intersection(online).All() {
			of[c] = append(of[c], id)
		}
	}
	one, several := map[int]int{}, map[cpuset.Set][]int{}
	for c, nodes := range of {
		if len(nodes) == 1 {
			one[c] = nodes[0]
			continue
		}
		several[cpuset.Of(nodes...)] = append(several[cpuset.Of(nodes...)], c)
	}
	var texts []string
	for nodes, cpus := range several {
		texts = append(texts, fmt.Sprintf("/%s: CPUs %s stand in each of the nodes %s", nodeDir,
			cpuset.Of(cpus...), nodes))
	}
	slices.Sort(texts)
	for _, text := range texts {
		r.warn("%s", text)
	}
	return one
}

func (r *reader) distances(dir string) []int {
	var distances []int
	for _, f := range strings.Fields(r.text(dir + "/distance")) {
		d, err := strconv.Atoi(f)
		if err != nil || d < 0 {
			r.warn("/%s/distance: expected numbers, found %.40q", dir, f)
			return nil
		}
		distances = append(distances, d)
	}
	return distances
}

// hugepages reads the pages by size (Documentation/admin-guide/mm/hugetlbpage.rst).
func (r *reader) hugepages(dir string) []Hugepages {
	pages := []Hugepages{}
	for _, kib := range r.numbered(dir, "hugepages-", "kB") {
		sub := fmt.Sprintf("%s/hugepages-%dkB/", dir, kib)
		pages = append(pages, Hugepages{PageBytes: kib << 10, Total: r.number(sub + "nr_hugepages"),
			Free: r.number(sub + "free_hugepages")})
	}
	return pages
}
