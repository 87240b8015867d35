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
	nodes := []NUMANode{}
	var sized []int
	for id := range r.ids(nodeDir, "node").All() {
		dir := fmt.Sprintf("%s/node%d", nodeDir, id)
		n := NUMANode{ID: id, CPUs: r.nodeCPUs(id).Intersection(online), Distances: r.distances(dir),
			Hugepages: r.hugepages(dir + "/hugepages")}
		known := false
		if n.MemoryBytes, known = r.memTotal(dir + "/meminfo"); known {
			sized = append(sized, id)
		}
		nodes = append(nodes, n)
	}
	r.hasMemory(nodes, cpuset.Of(sized...))
	return nodes
}

// hasMemory compares the list of nodes with memory with the sizes in their meminfo. If they differ, meminfo
// counts, because drawings and plans use the size.
func (r *reader) hasMemory(nodes []NUMANode, sized cpuset.Set) {
	file := nodeDir + "/has_memory"
	list := r.list(file)
	if list == nil {
		file = nodeDir + "/has_normal_memory"
		list = r.list(file)
	}
	var differ []int
	for i := range nodes {
		n := &nodes[i]
		has := n.MemoryBytes > 0
		switch known := sized.Contains(n.ID); {
		case known && list != nil && list.Contains(n.ID) != has:
			differ = append(differ, n.ID)
		case !known && list != nil:
			has = list.Contains(n.ID)
		case !known:
			continue
		}
		n.HasMemory = &has
	}
	if len(differ) > 0 {
		r.warn("/%s: lists %s as nodes with memory, and meminfo says otherwise of %s: meminfo is taken",
			file, list, cpuset.Of(differ...))
	}
}

// checkMemory compares the memory of the nodes with that of the machine. They differ by more than 5 percent
// if the kernel has not initialized all pages yet, or an archive was made up. A single node gets all memory.
func (r *reader) checkMemory(nodes []NUMANode, total uint64) {
	var sum uint64
	for _, n := range nodes {
		sum += n.MemoryBytes
	}
	if sum == 0 || total == 0 || sum > total-total/20 && sum < total+total/20 {
		return
	}
	taken := "the nodes' counts"
	if len(nodes) == 1 {
		nodes[0].MemoryBytes, taken = total, "/proc/meminfo counts"
	}
	r.warn("/%s: the nodes have %d MiB of memory, and /proc/meminfo says %d MiB: %s",
		nodeDir, sum>>20, total>>20, taken)
}

// nodeCPUs reads the node's own sets, or without them the links to its CPUs.
func (r *reader) nodeCPUs(id int) cpuset.Set {
	dir := fmt.Sprintf("%s/node%d", nodeDir, id)
	if set := r.set(dir+"/cpumap", dir+"/cpulist"); set != nil {
		return *set
	}
	return r.ids(dir, "cpu")
}

// nodeOf returns the node of each online CPU. For a CPU in several nodes it returns none, and warns.
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
		texts = append(texts, fmt.Sprintf("/%s: CPUs %s are in each of the nodes %s", nodeDir,
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

// hugepages reads the hugepages by size (Documentation/admin-guide/mm/hugetlbpage.rst).
func (r *reader) hugepages(dir string) []Hugepages {
	pages := []Hugepages{}
	for _, kib := range r.numbered(dir, "hugepages-", "kB") {
		sub := fmt.Sprintf("%s/hugepages-%dkB/", dir, kib)
		total := r.number(sub + "nr_hugepages")
		if surplus := r.number(sub + "surplus_hugepages"); total != nil && surplus != nil {
			*total -= min(*total, *surplus) // the kernel will free these, and total includes them
		}
		pages = append(pages, Hugepages{PageBytes: kib << 10, Total: total, Free: r.number(sub + "free_hugepages")})
	}
	return pages
}
