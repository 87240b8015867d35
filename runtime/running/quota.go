package running

import (
	"errors"
	"io/fs"
	"path"
	"strings"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/journal"
)

// noQuota lifts the CPU quotas of a cgroup and of the one above it. A quota of all CPUs of a lane gives the
// workload no less time than these have, but the kernel stops it for milliseconds when it has used up what
// one period has a moment too early (Documentation/scheduler/sched-bwc.rst).
func (a *attachment) noQuota(group string) error {
	mounted, err := cgroup.Mounted(a.root)
	if err != nil {
		return err
	}
	top := a.hierarchy.Mount
	if !a.hierarchy.V2 {
		if mounted.CPUV1 == nil {
			return nil
		}
		top = *mounted.CPUV1
	}
	group = path.Join(top, strings.TrimPrefix(group, a.hierarchy.Mount))
	for _, dir := range []string{path.Dir(group), group} { // none may have more than the one above it
		name, none := path.Join(dir, "cpu.cfs_quota_us"), "-1"
		if a.hierarchy.V2 {
			name, none = path.Join(dir, "cpu.max"), "max"
		}
		now, err := fs.ReadFile(a.root, name[1:])
		if errors.Is(err, fs.ErrNotExist) { // the root, or the controller is not on
			continue
		}
		if err != nil {
			return err
		}
		_, period, v2 := strings.Cut(strings.TrimSpace(string(now)), " ")
		if v2 {
			none += " " + period
		}
		if strings.TrimSpace(string(now)) != none {
			a.steps = append(a.steps, journal.Step{Kind: change.KindFile, Target: name, After: none})
		}
	}
	return nil
}
