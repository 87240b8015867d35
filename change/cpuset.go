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
	p, err := pinsIn(s.Target)
	return now + p.String(), err
}

func (c cpusetCPUs) Write(ctx context.Context, s journal.Step, value string) error {
	cpus, keep, err := parsePins(value)
	if err != nil {
		return fmt.Errorf("%s: %w", s.Target, err)
	}
	if cpus == s.After {
		if keep, err = pinsIn(s.Target); err != nil {
			return err
		}
	}
	if err = c.file.Write(ctx, s, cpus); err != nil {
		return err
	}
	_, h, tids, err := tasksOf(s.Target)
	if err != nil || len(tids) == 0 {
		return err
	}
	return keep.restore(tids, h)
}

func pinsIn(file string) (pins, error) {
	dir, h, tids, err := tasksOf(file)
	if err != nil || len(tids) == 0 {
		return nil, err
	}
	return pinsOf(tids, h, dir)
}

// tasksOf returns the threads in the cgroup of a file.
func tasksOf(file string) (dir string, h cgroup.Hierarchy, tids []int, err error) {
	dir = path.Dir(file)
	if h, err = cgroup.HierarchyOf(host.Live(), dir); err != nil {
		return "", h, nil, err
	}
	data, err := fs.ReadFile(host.Live(), path.Join(dir, "tasks")[1:])
	if err == nil {
		tids, err = cgroup.IDs(string(data))
	}
	return dir, h, tids, err
}
