package enforce

import (
	"fmt"
	"io/fs"
	"strconv"

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
