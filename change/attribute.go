package change

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"isolane.dev/isolane/journal"
)

// KindAttribute sets a file of one of Isolane's own cgroups. A file that was empty before is not undone,
// because it goes with its cgroup: a cpuset with tasks would not let go of its CPUs.
const KindAttribute = "attribute"

type attribute struct{ file }

// groupFiles returns the files of a cgroup that steps may write.
func groupFiles() []string {
	return []string{"cpuset.cpus", "cpuset.mems", "cpuset.cpus.partition", "cpuset.cpus.exclusive",
		"cpuset.sched_load_balance", "cpuset.memory_migrate", "cgroup.subtree_control", "cgroup.procs",
		"memory.swap.max", "memory.swappiness", "cpu.max", "cpu.cfs_quota_us"}
}

func checkGroupFile(name string) error {
	if !slices.Contains(groupFiles(), path.Base(name)) {
		return fmt.Errorf("%s: no setting of a cgroup that isolane changes", name)
	}
	return checkPath(name)
}

// Check lets a step name only files of Isolane's own cgroups.
func (attribute) Check(s journal.Step) error {
	return errors.Join(checkOwnGroup(path.Dir(s.Target)), checkGroupFile(s.Target), checkLine(s))
}

func (a attribute) Write(ctx context.Context, s journal.Step, value string) error {
	if value == "" {
		return nil
	}
	return a.file.Write(ctx, s, value)
}

// UndoneWithOther returns true: the file goes with its cgroup.
func (attribute) UndoneWithOther(journal.Step) bool { return true }
