package knob

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/plan"
)

// keepOthersOff keeps others off the CPUs of lanes that are in the workload's own cgroup and no partition
// (Alone), with cgroup v2. Next to each cgroup on the way to such a lane, it takes the CPUs of all lanes out
// of the sibling cgroups, which limits those below them too. The cgroups on the way keep the CPUs, because
// the lane needs them; so do processes in the root cgroup.
func (v View) keepOthersOff(root string, p plan.Placement) ([]journal.Step, error) {
	var lanes []string
	for _, l := range p.Lanes {
		if dir := v.Own[l.Name]; dir != "" && slices.Contains(v.Alone, l.Name) {
			lanes = append(lanes, dir)
		}
	}
	if len(lanes) == 0 {
		return nil, nil
	}
	var steps []journal.Step
	err := fs.WalkDir(v.Root, root[1:], func(name string, e fs.DirEntry, err error) error {
		dir := "/" + name
		switch {
		case errors.Is(err, fs.ErrNotExist): // gone meanwhile
			return nil
		case err != nil || !e.IsDir():
			return err
		case dir == root, slices.ContainsFunc(lanes, func(l string) bool { return strings.HasPrefix(l, dir+"/") }):
			return nil
		case strings.HasPrefix(e.Name(), change.GroupPrefix), slices.Contains(lanes, dir),
			v.isSetInSystemd(root, dir):
			return fs.SkipDir
		}
		list, _ := fs.ReadFile(v.Root, path.Join(name, "cpuset.cpus")) // empty: not enabled yet, or gone
		has, err := cpuset.Parse(trim(list))
		if err != nil {
			return fmt.Errorf("%s/cpuset.cpus: %w", dir, err)
		}
		to := has.Difference(p.CPUs())
		if has.IsEmpty() { // it uses all that its parent has
			to = v.Host.Possible().Difference(p.CPUs())
		}
		if to.IsEmpty() { // the kernel empties no cpuset with processes
			to = p.Housekeeping
		}
		if to != has {
			steps = append(steps, optional(fileStep(path.Join(dir, "cpuset.cpus"), to.String())))
		}
		return fs.SkipDir
	})
	return steps, err
}

// isSetInSystemd reports whether systemd is told the CPUs of a cgroup (see units).
func (v View) isSetInSystemd(root, dir string) bool {
	return path.Dir(dir) == root && slices.Contains(ManagedUnits(), path.Base(dir)) &&
		exists(v.Root, "/run/systemd/system") // sd_booted(3)
}
