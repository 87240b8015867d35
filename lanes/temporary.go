package lanes

import (
	"context"

	"isolane.dev/isolane/lane"
)

// PutFor puts a lane in force that lives as long as a process: whoever opens the lanes afterwards releases
// it. It returns those that it has released so.
func PutFor(ctx context.Context, o Options, pid int, want lane.Lane) (expired []string, err error) {
	l, expired, err := OpenPatiently(ctx, o)
	if err != nil {
		return expired, err
	}
	defer l.Close()
	if err = l.Recorded(); err != nil {
		return expired, err
	}
	if err = l.Lend(want.Metadata.Name, pid); err != nil {
		return expired, err
	}
	p, _, err := l.Want([]lane.Lane{want}, false)
	if err != nil {
		return expired, err
	}
	_, err = l.Put(ctx, p)
	return expired, err
}

// GiveBack releases a lane of PutFor, if nobody else has, and returns how many processes were in it.
func GiveBack(ctx context.Context, o Options, name string) (processes int, err error) {
	l, _, err := OpenPatiently(ctx, o)
	if err != nil {
		return 0, err
	}
	defer l.Close()
	groups, err := l.Groups()
	for _, g := range groups {
		if g.Lane.Name == name {
			processes = g.Processes
		}
	}
	if _, gone := l.Lane(name); err != nil || gone != nil {
		return processes, err
	}
	_, err = l.Release(ctx, name)
	return processes, err
}
