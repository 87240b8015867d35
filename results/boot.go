package results

import (
	"fmt"
	"maps"
	"slices"
)

// Environments returns the environments of all boots.
func (s Session) Environments() []Environment {
	if len(s.Boots) == 0 {
		return []Environment{s.Environment}
	}
	return s.Boots
}

// Made counts the runs, but not those that repeat another one.
func (s Session) Made() int {
	type run struct {
		cell        string
		block, boot int
	}
	found := map[run]bool{}
	for _, r := range s.Runs {
		k := run{r.Cell, r.Block, r.Boot}
		if r.Block > 0 { // each boot has its own warm-up block
			k.boot = 0
		}
		found[k] = true
	}
	return len(found)
}

// BootOf returns the environment in which a run was made.
func (s Session) BootOf(r Run) Environment {
	if r.Boot >= 0 && r.Boot < len(s.Boots) {
		return s.Boots[r.Boot]
	}
	return s.Environment
}

// Setting returns the value of a host setting that a run found; "": none.
func (s Session) Setting(r Run, name string) string {
	if v, changed := r.Changed[name]; changed {
		return v
	}
	return s.BootOf(r).Settings[name]
}

// Differing returns the sorted names of the conditions that differ between two environments.
func Differing(a, b map[string]string) []string {
	both := map[string]string{}
	maps.Copy(both, a)
	maps.Copy(both, b)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(both)), func(k string) bool { return a[k] == b[k] })
}

// Share returns the boot of a block, counted from 0, when the blocks of each cell are spread over the boots.
func (s Scenario) Share(block int) int {
	if s.Blocks < 1 || block < 1 {
		return 0
	}
	return (block - 1) * max(1, s.Boots) / s.Blocks
}

// Await names cells that wait for a boot.
type Await struct {
	Cells []string `json:"cells"`
	Boot  string   `json:"boot"`            // what to boot, in words
	Boots int      `json:"boots,omitempty"` // how many such boots are needed; 0: one
}

// String says what to boot, and how often.
func (a Await) String() string {
	if a.Boots < 2 {
		return a.Boot
	}
	return fmt.Sprintf("%s, in %d boots", a.Boot, a.Boots)
}
