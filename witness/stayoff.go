package witness

import (
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"unsafe"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/cpuset"
)

// StayOff keeps all threads of this process off the CPUs, those to come too: a thread is born with
// the affinity of the one that makes it. It is an error where nothing else is left.
func StayOff(root fs.FS, cpus cpuset.Set) error {
	online, err := onlineCPUs(root)
	if err != nil {
		return err
	}
	rest := online.Difference(cpus)
	if rest.IsEmpty() {
		return fmt.Errorf("CPUs %s: none is left for isolane itself: leave one out", cpus)
	}
	mask := make([]uint, rest.Last()/bits.UintSize+1)
	for cpu := range rest.All() {
		mask[cpu/bits.UintSize] |= 1 << (cpu % bits.UintSize)
	}
	done := map[int]bool{}
	for grown := true; grown; { // a thread that is not done yet may make others
		grown = false
		for _, tid := range ids(root, "proc/self/task") {
			if done[tid] {
				continue
			}
			done[tid], grown = true, true
			if err = setAffinity(tid, mask); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("thread %d to CPUs %s: %w", tid, rest, err)
			}
		}
	}
	return nil
}

// setAffinity is sched_setaffinity(2) for any number of CPUs: unix.CPUSet ends at 1024.
func setAffinity(tid int, mask []uint) error {
	_, _, errno := unix.Syscall(unix.SYS_SCHED_SETAFFINITY, uintptr(tid),
		uintptr(len(mask))*unsafe.Sizeof(mask[0]), uintptr(unsafe.Pointer(&mask[0]))) //nolint:gosec // G103: the system call takes a pointer
	if errno != 0 {
		return errno
	}
	return nil
}
