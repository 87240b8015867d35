package change

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/journal"
)

// KindCpuset sets the CPUs of a cpuset of cgroup v1 that is not Isolane's. Target is its cpuset.cpus, After a
// cpulist. The value before also holds the affinities of its threads, see pins.
const KindCpuset = "cpuset"

type cpusetCPUs struct{ file file }

// File returns the target.
func (cpusetCPUs) File(s journal.Step) string { return s.Target }

// Check lets a step change only the CPUs of a cpuset.
func (c cpusetCPUs) Check(s journal.Step) error {
	before, p, err := parsePins(s.Before)
	if err == nil && path.Base(s.Target) != "cpuset.cpus" {
		err = fmt.Errorf("%s: expected a cpuset.cpus", s.Target)
	}
	for _, own := range p {
		if own.group != "" {
			err = fmt.Errorf("%q: expected affinities only", own.group)
		}
	}
	return errors.Join(err, c.file.Check(journal.Step{Target: s.Target, Before: before, After: s.After}))
}

func (c cpusetCPUs) Read(ctx context.Context, s journal.Step) (string, error) {
	now, err := c.file.Read(ctx, s)
	if err != nil || now == s.After {
		return now, err
	}
	dir := path.Dir(s.Target)
	h, err := cgroup.HierarchyOf(host.Live(), dir)
	if err != nil {
		return "", err
	}
	p, err := pinsIn(dir, h)
	return now + p.String(), err
}

func (c cpusetCPUs) Write(ctx context.Context, s journal.Step, value string) error {
	cpus, keep, err := parsePins(value)
	if err != nil {
		return fmt.Errorf("%s: %w", s.Target, err)
	}
	dir := path.Dir(s.Target)
	h, err := cgroup.HierarchyOf(host.Live(), dir)
	if err != nil {
		return err
	}
	if cpus == s.After {
		if keep, err = pinsIn(dir, h); err != nil {
			return err
		}
	}
	if err = c.file.Write(ctx, s, cpus); err != nil {
		return err
	}
	tids, err := tasksIn(dir)
	if err != nil || len(tids) == 0 {
		return err
	}
	return keep.restore(tids, h)
}

func pinsIn(dir string, h cgroup.Hierarchy) (pins, error) {
	tids, err := tasksIn(dir)
	if err != nil || len(tids) == 0 {
		return nil, err
	}
	return pinsOf(tids, h, dir)
}

// tasksIn returns the threads that are in a cgroup.
func tasksIn(dir string) (tids []int, err error) {
	data, err := fs.ReadFile(host.Live(), path.Join(dir, "tasks")[1:])
	if err == nil {
		tids, err = cgroup.IDs(string(data))
	}
	return tids, err
}
