package enforce

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"

	"isolane.dev/isolane/enforce/attached"
)

// ShortOfHugepages says from which pools processes outside of the lanes have taken pages that lanes need:
// the kernel gives the pages of a pool to who comes first. Only lanes are counted in which nothing runs yet.
// With names it says so of the pools of these lanes only.
func (l *Lanes) ShortOfHugepages(names ...string) ([]string, error) {
	groups, err := l.Groups()
	if err != nil {
		return nil, err
	}
	wanted, lanes := map[string]uint64{}, map[string][]string{}
	for _, g := range groups {
		has := slices.ContainsFunc(l.Attached, func(at attached.Workload) bool { return at.Lane == g.Lane.Name })
		if g.Processes > 0 || has {
			continue
		}
		for _, h := range g.Lane.Hugepages {
			pool := h.Pool()
			wanted[pool] += h.Pages
			lanes[pool] = append(lanes[pool], g.Lane.Name)
		}
	}
	var short []string
	for _, pool := range slices.Sorted(maps.Keys(wanted)) {
		asked := func(name string) bool { return slices.Contains(names, name) }
		if len(names) > 0 && !slices.ContainsFunc(lanes[pool], asked) {
			continue
		}
		text, err := fs.ReadFile(l.root, pool+"/free_hugepages")
		if err != nil {
			return nil, err
		}
		free, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("/%s/free_hugepages: %w", pool, err)
		}
		if free < wanted[pool] {
			short = append(short, fmt.Sprintf("/%s: %d of the %d pages for lane %s are free, others use the rest: "+
				"end these, or add as many to nr_hugepages", pool, free, wanted[pool],
				strings.Join(lanes[pool], ", ")))
		}
	}
	return short, nil
}
