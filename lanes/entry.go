package lanes

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/runtime/busypoll"
	"isolane.dev/isolane/runtime/process"
	"isolane.dev/isolane/runtime/spread"
)

// The arguments with which a program starts itself again.
const (
	entry     = "isolane-entry"
	entering  = "enter"
	becoming  = "become"
	spreading = "spread"
	entered   = "ISOLANE_ENTRY" // an environment variable, until Entry has been called
)

// Self returns the words that start a program, given by its path, again to become a workload.
func Self(program string) []string { return []string{program, entry, entering} }

// Entry does what this program was started again for by this package: to become a workload, or to look after
// the threads and sockets of lanes. It returns false where it was not. A program that imports this package
// calls it first in main, with the options with which it opens lanes:
//
//	if did, err := lanes.Entry(ctx, o, os.Args); did {
//		log.Fatal(err) // the workload could not be started
//	}
func Entry(ctx context.Context, o Options, args []string) (did bool, err error) {
	if len(args) < 3 || args[1] != entry {
		return false, nil
	}
	if err = os.Unsetenv(entered); err != nil {
		return true, err
	}
	switch {
	case args[2] == entering:
		return true, process.Become(args[3:])
	case args[2] == becoming && len(args) > 6:
		o.Dir = args[3]
		return true, becomeIn(ctx, o, args[4], args[5], args[6:])
	case args[2] == spreading && len(args) == 5:
		o.Dir = args[3]
		return true, spreadThreads(ctx, o.Complete(), args[4])
	}
	return true, fmt.Errorf("%s: expected %s, %s or %s, with arguments", entry, entering, becoming, spreading)
}

// becomeIn runs in the child of RunTemporary.
func becomeIn(ctx context.Context, o Options, name, inside string, argv []string) error {
	var with With
	if err := json.Unmarshal([]byte(inside), &with); err != nil {
		return err
	}
	return Become(ctx, o, name, with, argv, func(warning string) {
		fmt.Fprintln(os.Stderr, "isolane:", warning)
	})
}

// spreadThreads is the spreader: it spreads the threads of lanes that the kernel does not balance, and makes
// the sockets of lanes poll that ask for it. It ends with the context, or if this process is not in its
// cgroup (own): then it belongs to nobody.
func spreadThreads(ctx context.Context, o Options, own string) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	poller := busypoll.New(o.root)
	defer poller.End()
	var groups []enforce.LaneGroup
	var rested time.Time // when to look at the sockets again, so that this takes at most a fiftieth of a CPU
	for n := 0; ; n++ {
		if n%20 == 0 || len(groups) == 0 { // lanes come and go, and the first one may not be in force yet
			l, err := Look(o)
			if err != nil {
				return err
			}
			if groups, err = l.Groups(); err != nil {
				return err
			}
		}
		if n >= 50 && n%20 == 0 && !isIn(o.root, own) { // by now its starter should have put it there
			return nil
		}
		for _, g := range groups {
			if !g.Spread {
				continue
			}
			if err := spread.Once(o.root, g.Dir, g.Lane.CPUs); err != nil {
				return err
			}
		}
		if began := time.Now(); began.After(rested) {
			if err := pollSockets(o, poller, groups); err != nil {
				return err
			}
			rested = time.Now().Add(50 * time.Since(began))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// isIn reports whether this process is in a cgroup.
func isIn(root fs.FS, dir string) bool {
	pids, err := cgroup.Processes(root, dir)
	return err == nil && slices.Contains(pids, os.Getpid())
}

// pollSockets makes the sockets of lanes poll that ask for it.
func pollSockets(o Options, poller *busypoll.Poller, groups []enforce.LaneGroup) error {
	var pids []int
	for _, g := range groups {
		if !g.Lane.BusyPoll {
			continue
		}
		more, err := cgroup.Processes(o.root, g.Dir)
		if err != nil {
			return err
		}
		pids = append(pids, more...)
	}
	poller.Once(pids)
	return nil
}
