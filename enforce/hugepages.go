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

// keepAdded takes hugepages that somebody has added to a pool of which lanes are to have more, or fewer, for
// pages that were there before the lanes: they stay.
func (l *Lanes) keepAdded(ctx context.Context, want []journal.Step) error {
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

// endReplaced notes of pools of hugepages that what they had for earlier lanes is not there any more: who
// sets that again has added pages.
func (l *Lanes) endReplaced() (err error) {
	for _, s := range l.journal.Pending() {
		if path.Base(s.Target) == "nr_hugepages" && s.Replaced != "" && err == nil {
			s.Replaced = ""
			err = l.journal.Adopt(s)
		}
	}
	return err
}
