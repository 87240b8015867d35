package process

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/cpuset"
)

// StayOff keeps all threads of this process off the CPUs, those to come too: a thread is born with
// the affinity of the one that makes it. It is an error where nothing else is left.
func StayOff(cpus cpuset.Set) error {
	const online = "/sys/devices/system/cpu/online"
	text, err := os.ReadFile(online)
	if err != nil {
		return err
	}
	all, err := cpuset.Parse(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", online, err)
	}
	rest := all.Difference(cpus)
	if own, err := change.Affinity(0); err == nil && own.Intersects(rest) { // no more than it had
		rest = own.Intersection(rest)
	}
	if rest.IsEmpty() {
		return fmt.Errorf("CPUs %s: none is left for isolane itself: leave one out", cpus)
	}
	done := map[int]bool{}
	for grown := true; grown; { // a thread that is not done yet may make others
		grown = false
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		for _, e := range threads {
			tid, err := strconv.Atoi(e.Name())
			if err != nil || done[tid] {
				continue
			}
			done[tid], grown = true, true
			if err = change.SetAffinity(tid, rest); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("thread %d to CPUs %s: %w", tid, rest, err)
			}
		}
	}
	return nil
}
