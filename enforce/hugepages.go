package enforce

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/enforce/attached"
	"isolane.dev/isolane/journal"
)

// ShortOfHugepages returns the pools from which processes outside the lanes have taken pages that lanes need:
// the kernel gives the pages of a pool to whoever comes first. It counts only lanes in which nothing runs
// yet. With names it returns only the pools of these lanes.
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

// adoptAddedPages counts hugepages that somebody else has added to a pool as pages from before the lanes, so
// that they stay. It does so for pools of which the lanes now want another number of pages than before.
func (l *Lanes) adoptAddedPages(ctx context.Context, want []journal.Step) error {
	for _, s := range l.journal.Pending() {
		at := slices.IndexFunc(want, s.Same)
		if at < 0 || want[at].After == s.After || path.Base(s.Target) != "nr_hugepages" {
			continue
		}
		now, err := l.ops[s.Kind].Read(ctx, s)
		if err != nil {
			return err
		}
		if added := change.Added(s, now); added > 0 {
			s.Before, s.After, s.Replaced = change.MorePages(s.Before, added), now, ""
			if err = l.journal.Adopt(s); err != nil {
				return err
			}
			want[at].After = change.MorePages(want[at].After, added)
		}
	}
	return nil
}

// clearReplaced clears Replaced in the steps of hugepage pools, because the number for the earlier lanes is
// no longer there. If it appears again, somebody has added pages.
func (l *Lanes) clearReplaced() (err error) {
	for _, s := range l.journal.Pending() {
		if path.Base(s.Target) == "nr_hugepages" && s.Replaced != "" && err == nil {
			s.Replaced = ""
			err = l.journal.Adopt(s)
		}
	}
	return err
}
