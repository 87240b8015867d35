package process

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/task"
)

// StayOff keeps all threads of this process off the CPUs, future ones too: a thread inherits the affinity of
// its creator. It fails if no other CPU is left.
func StayOff(cpus cpuset.Set) error {
	all, err := host.Online(host.Live())
	if err != nil {
		return err
	}
	rest := all.Difference(cpus)
	if own, aerr := task.Affinity(0); aerr == nil && own.Intersects(rest) { // no more than it had
		rest = own.Intersection(rest)
	}
	if rest.IsEmpty() {
		return fmt.Errorf("CPUs %s: none is left for isolane itself: leave one out", cpus)
	}
	return KeepTo(rest)
}

// KeepTo restricts all threads of this process to the CPUs, future ones too.
func KeepTo(cpus cpuset.Set) error {
	root, done := host.Live(), map[int]bool{}
	for grown := true; grown; { // a thread that is not moved yet may create others
		grown = false
		for _, tid := range task.Threads(root, os.Getpid()) {
			if done[tid] {
				continue
			}
			done[tid], grown = true, true
			if err := task.SetAffinity(tid, cpus); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("thread %d to CPUs %s: %w", tid, cpus, err)
			}
		}
	}
	if len(done) == 0 {
		return errors.New("/proc/self/task: expected the threads of isolane itself")
	}
	return nil
}
