package running

import (
	"errors"
	"io/fs"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/journal"
)

// NoQuota returns the steps that lift the CPU quotas of a cgroup with a cpuset, and of the one above it. A
// quota of all CPUs of a lane gives the workload no less time than these have, but the kernel stops it for
// milliseconds when it has used up what one period has a moment too early
// (Documentation/scheduler/sched-bwc.rst).
func NoQuota(root fs.FS, group string) (steps []journal.Step, err error) {
	mounted, err := cgroup.Mounted(root)
	if err != nil {
		return nil, err
	}
	hier, err := cgroup.HierarchyOf(root, group)
	if err != nil {
		return nil, err
	}
	top := hier.Mount
	if !hier.V2 {
		if mounted.CPUV1 == nil {
			return nil, nil
		}
		top = *mounted.CPUV1
	}
	group = path.Join(top, strings.TrimPrefix(group, hier.Mount))
	for _, dir := range []string{path.Dir(group), group} { // none may have more than the one above it
		name, none := path.Join(dir, "cpu.cfs_quota_us"), "-1"
		if hier.V2 {
			name, none = path.Join(dir, "cpu.max"), "max"
		}
		now, err := fs.ReadFile(root, name[1:])
		// The root, or the controller is not on; or the cgroup has just gone.
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			continue
		}
		if err != nil {
			return nil, err
		}
		has := strings.TrimSpace(string(now))
		if _, period, v2 := strings.Cut(has, " "); v2 {
			none += " " + period
		}
		if has != none {
			steps = append(steps, journal.Step{Kind: change.KindFile, Target: name, Before: has, After: none})
		}
	}
	return steps, nil
}
