package task

import (
	"math/bits"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/cpuset"
)

// Affinity returns the CPUs that a thread may use (sched_getaffinity(2)).
func Affinity(tid int) (cpuset.Set, error) {
	mask := unix.NewCPUSet(cpuset.Max + 1)
	if err := unix.SchedGetaffinityDynamic(tid, mask); err != nil {
		return cpuset.Set{}, err
	}
	var cpus []int
	for i, word := range mask {
		for rest := uint64(word); rest != 0; rest &= rest - 1 {
			cpus = append(cpus, i*64+bits.TrailingZeros64(rest))
		}
	}
	return cpuset.Of(cpus...), nil
}

// SetAffinity restricts a thread to these CPUs (sched_setaffinity(2)).
func SetAffinity(tid int, set cpuset.Set) error {
	mask := unix.NewCPUSet(cpuset.Max + 1)
	for c := range set.All() {
		mask.Set(c)
	}
	return unix.SchedSetaffinityDynamic(tid, mask)
}

// ResetAffinity lets a thread use every CPU of its cpuset, including those that the cpuset gets later.
func ResetAffinity(tid int) error {
	mask := unix.NewCPUSet(cpuset.Max + 1)
	mask.Fill()
	return unix.SchedSetaffinityDynamic(tid, mask)
}
