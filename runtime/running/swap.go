package running

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/knob"
)

// noSwap keeps the workload's memory from being swapped out if cgroup v1 has memory in its own hierarchy:
// there the workload stays in its cgroups, with their limits. The lane's own group has that setting too, if
// the machine swaps.
func (a *attachment) noSwap(threads []Thread) error {
	lane := knob.MemoryGroup(a.root, a.host, a.lane.Name)
	if lane == "" {
		return nil
	}
	hier, err := cgroup.HierarchyOf(a.root, lane)
	if err != nil {
		return err
	}
	var done []string
	for _, p := range byProcess(threads) {
		dir, err := hier.Of(a.root, task.Dir(p[0].PID))
		switch {
		case errors.Is(err, fs.ErrNotExist) || slices.Contains(done, dir) || dir == lane:
			continue
		case err != nil:
			return err
		case dir == hier.Mount:
			a.warnings = append(a.warnings,
				fmt.Sprintf("%s: it is in no memory cgroup of its own, and may be swapped out: start it with isolane run",
					name(p)))
			continue
		}
		done = append(done, dir)
		file := path.Join(dir, "memory.swappiness")
		if now, err := fs.ReadFile(a.root, file[1:]); err == nil && strings.TrimSpace(string(now)) != "0" {
			a.steps = append(a.steps, journal.Step{Kind: change.KindFile, Target: file, After: "0"})
		}
	}
	return nil
}
