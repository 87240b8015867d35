package lanes

import (
	"context"
	"errors"
	"io/fs"
	"path"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/runtime/running"
)

// Widen gives a workload's cgroup the CPUs of the cgroup above it that no lane has. It is for one that was
// made while lanes were in force: with cgroup v1 the kernel or a container runtime makes it with the CPUs
// that the one above has then, and it would lack those of the lanes when they have gone. No release takes
// this back. With cgroup v2 Widen does nothing: there a cgroup without own CPUs follows the one above.
func (l *Lanes) Widen(ctx context.Context, group string) error {
	root := l.o.root
	mounts, err := cgroup.Mounted(root)
	if err != nil {
		return err
	}
	if _, v2 := mounts.Cpuset(); v2 {
		return nil
	}
	dir, err := running.Resolve(host.Host{Kernel: host.Kernel{Cgroup: mounts}}, root, group)
	if errors.Is(err, fs.ErrNotExist) { // it has ended
		return nil
	}
	if err != nil {
		return err
	}
	file := path.Join(dir, "cpuset.cpus")
	has, err := cpuset.Read(root, file[1:])
	above, aerr := cpuset.Read(root, path.Join(path.Dir(dir), "cpuset.cpus")[1:])
	free := above.Difference(l.Placement.CPUs())
	if err = errors.Join(err, aerr); err != nil || free.IsSubsetOf(has) {
		return err
	}
	j, err := l.Beside("widen")
	if err != nil {
		return err
	}
	_, err = j.Set(ctx, journal.Step{Kind: change.KindFile, Target: file, After: has.Union(free).String()})
	return errors.Join(err, j.Close())
}
