package enforce

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/plan"
)

// hugepages adds the pages that lanes lack to the pools of their nodes
// (Documentation/admin-guide/mm/hugetlbpage.rst).
func hugepages(v View, p plan.Placement) ([]journal.Step, error) {
	reserve := map[string]uint64{}
	var names []string
	for _, l := range p.Lanes {
		for _, h := range l.Hugepages {
			name := fmt.Sprintf("sys/devices/system/node/node%d/hugepages/hugepages-%dkB/nr_hugepages", h.Node, h.PageBytes>>10)
			if h.Reserve > 0 && reserve[name] == 0 {
				names = append(names, name)
			}
			reserve[name] += h.Reserve
		}
	}
	var steps []journal.Step
	for _, name := range names {
		text, err := fs.ReadFile(v.Root, name)
		if err != nil {
			return nil, err
		}
		now, err := strconv.ParseUint(trim(text), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("/%s: %w", name, err)
		}
		steps = append(steps, file("/"+name, strconv.FormatUint(now+reserve[name], 10)))
	}
	return steps, nil
}

// noSwap keeps the lanes' memory from being swapped out, where the machine swaps and its cgroup v2 has the
// memory controller (Documentation/admin-guide/cgroup-v2.rst, memory.swap.max). With cgroup v1 memory is a
// hierarchy of its own, in which the lanes are not.
func noSwap(v View, root string, p plan.Placement) ([]journal.Step, error) {
	swaps, err := fs.ReadFile(v.Root, "proc/swaps")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // a kernel that does not swap
	}
	if err != nil || strings.Count(trim(swaps), "\n") == 0 || !slices.Contains(v.Host.Kernel.Cgroup.UnifiedControllers, "memory") {
		return nil, err
	}
	steps := []journal.Step{{Kind: "controller", Target: journal.ControllerTarget(root, "memory"), After: "memory"}}
	for _, l := range p.Lanes {
		steps = append(steps, attribute(path.Join(root, journal.GroupPrefix+l.Name), "memory.swap.max", "0"))
	}
	return steps, nil
}
