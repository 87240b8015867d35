// Package draw shows a machine, and what lanes have on it, as text and as SVG.
//
// Both paint the same tree of boxes: packages, dies, NUMA nodes and L3 caches, each in the next larger one,
// with cores in the smallest. The sets of CPUs decide the nesting: on some machines a node has several L3
// caches, on others an L3 spans several nodes.
package draw

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/quantity"
)

// box is a part of the machine that surrounds others.
type box struct {
	title    string
	notes    []string // memory, devices
	children []box
	cores    []core // only without children
}

// core is a physical core. Cores that share an L2 are adjacent.
type core struct {
	cpus    []int
	kind    string // P, E or ""
	cluster int    // the lowest CPU with the same L2; -1: the core does not share its L2
	cache   string // the L2 of a cluster
}

// level is a way to divide CPUs.
type level struct {
	name string
	of   func(host.CPU) *int
}

// build returns the machine as boxes. Things whose place is unknown, such as those of offline CPUs, are in
// the notes of the outermost box.
func build(h host.Host) box {
	top := box{title: title(h)}
	d := drawing{h: h, nodes: map[int]bool{}}
	online := h.Online()
	inner := d.divide(online, d.levels(online))
	if len(inner) == 1 && inner[0].title == "" {
		top.cores, top.children = inner[0].cores, inner[0].children
	} else {
		top.children = inner
	}
	for _, n := range h.NUMANodes {
		if !d.nodes[n.ID] {
			top.children = append(top.children, box{title: nodeTitle(n), notes: d.nodeNotes(n)})
		}
	}
	top.notes = append(d.caches(online), d.devices(nil)...)
	if offline := h.Possible().Difference(online); !offline.IsEmpty() {
		top.notes = append(top.notes, "offline: "+cpuList(offline))
	}
	return top
}

func title(h host.Host) string {
	words := []string{cmp.Or(h.Hostname, "unknown host")}
	if h.Kernel.CPUModel != "" {
		words = append(words, h.Kernel.CPUModel)
	}
	words = append(words, fmt.Sprintf("%d CPUs online", h.Online().Len()))
	if h.MemoryBytes > 0 {
		words = append(words, size(h.MemoryBytes))
	}
	if h.Kernel.Release != "" {
		words = append(words, "Linux\u00a0"+h.Kernel.Release)
	}
	return strings.Join(words, ", ")
}

// drawing records which nodes have a box.
type drawing struct {
	h     host.Host
	nodes map[int]bool
}

// levels returns the ways to divide the CPUs, the coarsest first.
func (d *drawing) levels(online cpuset.Set) []level {
	levels := []level{
		{"package", func(c host.CPU) *int { return c.Package }},
		{"die", func(c host.CPU) *int { return c.Die }},
		{"node", func(c host.CPU) *int { return c.NUMANode }},
		{"L3", func(c host.CPU) *int { return c.L3 }},
	}
	slices.SortStableFunc(levels, func(a, b level) int {
		return len(d.parts(online, a)) - len(d.parts(online, b))
	})
	return levels
}

// title returns the title of the box of a part.
func (d *drawing) title(l level, p part) string {
	text := l.name
	switch l.name {
	case "package":
		text = fmt.Sprint("package ", p.id)
	case "node":
		text = nodeTitle(d.node(p.id))
	case "L3":
		text = cacheTitle(d.h, 3, p.cpus)
	}
	if d.whole(l, p.id) != p.cpus {
		text = "part of " + text
	}
	return text
}

func (d *drawing) node(id int) host.NUMANode {
	for _, n := range d.h.NUMANodes {
		if n.ID == id {
			return n
		}
	}
	return host.NUMANode{ID: id}
}

// part has the CPUs with the same number at a level; -1: the number is unknown.
type part struct {
	id   int
	cpus cpuset.Set
}

// parts divides CPUs by a level.
func (d *drawing) parts(cpus cpuset.Set, l level) []part {
	in := map[int][]int{}
	for id := range cpus.All() {
		c, _ := d.h.CPU(id)
		at := -1
		if n := l.of(c); n != nil {
			at = *n
		}
		in[at] = append(in[at], id)
	}
	var parts []part
	for at, ids := range in {
		parts = append(parts, part{at, cpuset.Of(ids...)})
	}
	slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(uint(a.id), uint(b.id)) }) // -1 comes last
	return parts
}

// divide returns the boxes of CPUs. Levels with the same CPUs share a box. An unknown level draws nothing.
func (d *drawing) divide(cpus cpuset.Set, levels []level) []box {
	if len(levels) == 0 {
		return []box{{cores: d.cores(cpus)}}
	}
	var boxes []box
	parts := d.parts(cpus, levels[0])
	for _, p := range parts {
		inner := d.divide(p.cpus, levels[1:])
		if p.id == -1 {
			boxes = append(boxes, inner...)
			continue
		}
		l := levels[0]
		b := box{title: d.title(l, p), children: inner}
		if len(inner) == 1 { // the next level has the same CPUs
			title := b.title + ", "
			if l.name == "die" && (len(parts) == 1 || inner[0].title != "") { // it says nothing beyond the others
				title = ""
			}
			b = inner[0]
			b.title = strings.TrimSuffix(title+b.title, ", ")
		}
		if l.name == "node" && !d.nodes[p.id] {
			d.nodes[p.id] = true
			b.notes = append(b.notes, d.nodeNotes(d.node(p.id))...)
		}
		boxes = append(boxes, b)
	}
	return boxes
}

// whole returns all CPUs of a part.
func (d *drawing) whole(l level, id int) cpuset.Set {
	for _, p := range d.parts(d.h.Online(), l) {
		if p.id == id {
			return p.cpus
		}
	}
	return cpuset.Set{}
}

func (d *drawing) cores(cpus cpuset.Set) []core {
	var cores []core
	for _, threads := range d.h.CoresOf(cpus) {
		c, _ := d.h.CPU(threads.First())
		k := core{cpus: threads.Slice(), cluster: -1}
		if d.isHybrid() {
			k.kind = map[host.CPUKind]string{host.Performance: "P", host.Efficiency: "E"}[c.Kind]
		}
		if shared := d.sharers(c); shared.Len() > d.h.Siblings(c.ID).Len() {
			k.cluster, k.cache = shared.First(), cacheTitle(d.h, 2, shared)
		}
		cores = append(cores, k)
	}
	first := func(c core) int { // keeps those of a cluster together
		if c.cluster >= 0 {
			return c.cluster
		}
		return c.cpus[0]
	}
	slices.SortStableFunc(cores, func(a, b core) int { return cmp.Compare(first(a), first(b)) })
	return cores
}

func (d *drawing) isHybrid() bool {
	return slices.ContainsFunc(d.h.CPUs, func(c host.CPU) bool { return c.Online && c.Kind != d.h.CPUs[0].Kind })
}

// sharers returns the CPUs with the same L2.
func (d *drawing) sharers(c host.CPU) cpuset.Set {
	if c.L2 == nil {
		return cpuset.Set{}
	}
	return d.whole(level{of: func(c host.CPU) *int { return c.L2 }}, *c.L2)
}

func cacheTitle(h host.Host, wanted int, cpus cpuset.Set) string {
	for _, c := range h.Caches {
		if c.Level == wanted && c.SizeBytes > 0 && cpus.IsSubsetOf(c.CPUs) {
			return fmt.Sprintf("L%d %s", wanted, size(c.SizeBytes))
		}
	}
	return fmt.Sprintf("L%d", wanted)
}

func nodeTitle(n host.NUMANode) string {
	text := fmt.Sprint("node ", n.ID)
	switch {
	case n.MemoryBytes > 0:
		text += " " + size(n.MemoryBytes)
	case n.HasMemory != nil && !*n.HasMemory:
		text += " without memory"
	}
	if n.CPUs.IsEmpty() {
		text += ", no CPUs"
	}
	return text
}

// nodeNotes returns the hugepages and devices of a node.
func (d *drawing) nodeNotes(n host.NUMANode) []string {
	var notes []string
	for _, p := range n.Hugepages {
		if p.Total != nil && *p.Total > 0 {
			text := fmt.Sprintf("hugepages: %d of %s", *p.Total, size(p.PageBytes))
			if p.Free != nil {
				text += fmt.Sprintf(", %d free", *p.Free)
			}
			notes = append(notes, text)
		}
	}
	return append(notes, d.devices(&n.ID)...)
}

func size(bytes uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	value, unit := float64(bytes), 0
	for value >= 1024 && unit < len(units)-1 {
		value, unit = value/1024, unit+1
	}
	if value >= 100 {
		return fmt.Sprintf("%.0f %s", value, units[unit])
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", value), ".0") + " " + units[unit]
}

// devices lists the devices of a node, or those without a known node, to which lanes may want to be near.
// Virtual functions are counted with their physical function.
func (d *drawing) devices(node *int) []string {
	const most = 6 // of each kind
	var notes []string
	for _, kind := range []string{"network", "accelerator", "gpu", "storage"} {
		var first, found []string // first: in use, or able to be shared
		for _, dev := range d.h.PCIDevices {
			same := (node == nil) == (dev.NUMANode == nil) && (node == nil || *node == *dev.NUMANode)
			switch {
			case !same || dev.Kind != kind || dev.PF != nil:
			case len(dev.Netdevs) > 0 || dev.SRIOV != nil:
				first = append(first, kind+": "+device(dev))
			default:
				found = append(found, kind+": "+device(dev))
			}
		}
		found = append(first, found...)
		if len(found) > most {
			found = append(found[:most-1], fmt.Sprintf("%s: and %d more", kind, len(found)-most+1))
		}
		notes = append(notes, found...)
	}
	return notes
}

func device(d host.PCIDevice) string {
	words := append(slices.Clone(d.Netdevs), d.Address)
	if d.Driver != nil {
		words = append(words, *d.Driver)
	}
	if d.SRIOV != nil {
		words = append(words, fmt.Sprintf("%d of %d VFs", d.SRIOV.NumVFs, d.SRIOV.TotalVFs))
	}
	return strings.Join(words, " ")
}

// caches lists the caches of a core below the L3: in one line, or in one for each kind of core.
func (d *drawing) caches(online cpuset.Set) []string {
	const most = 3 // lines
	var texts []string
	cores := map[string]int{}
	for _, core := range d.h.CoresOf(online) {
		var words []string
		for _, c := range d.h.Caches {
			if c.Level > 2 || c.SizeBytes == 0 || !c.CPUs.Contains(core.First()) {
				continue
			}
			name := map[string]string{"data": "d", "instruction": "i"}[c.Type]
			word := fmt.Sprintf("L%d%s %s", c.Level, name, size(c.SizeBytes))
			if !c.CPUs.IsSubsetOf(core) {
				word += fmt.Sprintf(" (%d cores)", len(d.h.CoresOf(c.CPUs)))
			}
			words = append(words, word)
		}
		if text := strings.Join(words, ", "); text != "" {
			if cores[text] == 0 {
				texts = append(texts, text)
			}
			cores[text]++
		}
	}
	switch {
	case len(texts) == 1:
		return []string{"each core: " + texts[0]}
	case len(texts) > most:
		return nil // the machine contradicts itself
	}
	for i, text := range texts {
		texts[i] = quantity.Count(cores[text], "core") + ": " + text
	}
	return texts
}
