package boot

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/plan"
)

// hugepageWords reserves pages of the sizes that lanes have, on their nodes, while memory is not yet
// fragmented: those of the pools, which may belong to others, and what lanes need beyond. The kernel
// understands numbers by node since Linux 5.16; before, it reads 0:8 as 0.
func hugepageWords(h host.Host, p plan.Placement) []Word {
	pages := map[uint64]map[int]uint64{} // by size and node
	for _, l := range p.Lanes {
		for _, has := range l.Hugepages {
			if pages[has.PageBytes] == nil {
				pages[has.PageBytes] = map[int]uint64{}
			}
			pages[has.PageBytes][has.Node] += has.Pages
		}
	}
	for _, n := range h.NUMANodes {
		for _, pool := range n.Hugepages {
			if of := pages[pool.PageBytes]; of != nil && pool.Total != nil && *pool.Total > 0 {
				of[n.ID] = max(of[n.ID], *pool.Total)
			}
		}
	}
	var words []Word
	for _, size := range slices.Sorted(maps.Keys(pages)) {
		var counts []string
		sum := uint64(0)
		for _, node := range slices.Sorted(maps.Keys(pages[size])) {
			sum += pages[size][node]
			counts = append(counts, fmt.Sprintf("%d:%d", node, pages[size][node]))
		}
		w := Word{Word: fmt.Sprintf("hugepagesz=%s hugepages=%s", sizeText(size), strings.Join(counts, ",")),
			Reason: "later, memory may be too much in pieces for as many pages on these nodes"}
		if !h.Kernel.AtLeast(5, 16) {
			w = Word{Word: fmt.Sprintf("hugepagesz=%s hugepages=%d", sizeText(size), sum),
				Reason: "later, memory may be too much in pieces for as many pages; before Linux 5.16 the kernel " +
					"spreads them over all nodes, and lanes want " + strings.Join(counts, ",") + " (node:pages)"}
		}
		words = append(words, w)
	}
	return words
}

func sizeText(bytes uint64) string {
	switch {
	case bytes >= 1<<30:
		return fmt.Sprintf("%dG", bytes>>30)
	case bytes >= 1<<20:
		return fmt.Sprintf("%dM", bytes>>20)
	}
	return fmt.Sprintf("%dK", bytes>>10)
}

// pageSizes returns for each parameter of a command line the hugepage size in bytes that it is about; 0:
// none. hugepages= is for the size named by hugepagesz= before it, and before any of these for the default
// size (Documentation/admin-guide/mm/hugetlbpage.rst).
func pageSizes(parameters []string) []uint64 {
	current := uint64(2 << 20)
	for _, f := range parameters {
		if value, ok := strings.CutPrefix(f, "default_hugepagesz="); ok {
			current = parseSize(value)
		}
	}
	sizes := make([]uint64, len(parameters))
	for i, f := range parameters {
		name, value, _ := strings.Cut(f, "=")
		if name == "hugepagesz" {
			current = parseSize(value)
		}
		if name == "hugepagesz" || name == "hugepages" {
			sizes[i] = current
		}
	}
	return sizes
}

// reserved returns what parameters say about hugepages of a size; "": nothing.
func reserved(parameters []string, size uint64) string {
	last := ""
	sizes := pageSizes(parameters)
	for i, f := range parameters {
		if value, ok := strings.CutPrefix(f, "hugepages="); ok && sizes[i] == size {
			last = value
		}
	}
	return last
}

// parseSize parses a size as the kernel does (lib/cmdline.c, memparse); invalid text is the largest number.
func parseSize(text string) uint64 {
	digits := strings.TrimRight(text, "kKmMgG")
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || len(text) > len(digits)+1 {
		return ^uint64(0)
	}
	unit := map[string]int{"": 0, "K": 10, "M": 20, "G": 30}
	return n << unit[strings.ToUpper(text[len(digits):])]
}
