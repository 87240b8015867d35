package guest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/task"
)

// bind waits until QEMU has a thread for each virtual CPU, and gives each its CPU.
func (g Guest) bind(ctx context.Context, pid int) error {
	may, err := task.Affinity(0)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if st, serr := task.ReadStat(host.Live(), task.Dir(pid)); serr != nil || st.Dead() {
			return nil // its end says why
		}
		threads := virtualCPUs(host.Live(), pid)
		if len(threads) == g.CPUs {
			return g.spread(pid, threads, may)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s has %d threads for virtual CPUs: expected %d", QEMU, len(threads), g.CPUs)
		case <-tick.C:
		}
	}
}

// virtualCPUs returns the threads that run virtual CPUs, by their numbers.
func virtualCPUs(root fs.FS, pid int) map[int]int {
	found := map[int]int{}
	for _, tid := range task.Threads(root, pid) {
		st, err := task.ReadStat(root, task.ThreadDir(pid, tid))
		if n, is := task.VirtualCPU(st.Comm); err == nil && is {
			found[n] = tid
		}
	}
	return found
}

// spread gives virtual CPU i the CPU i of those that may be used, starting again if there are fewer. The
// other threads get what is left, else they stay where they are.
func (g Guest) spread(pid int, threads map[int]int, may cpuset.Set) error {
	all := may.Slice()
	var used cpuset.Set
	is := map[int]bool{}
	for n, tid := range threads {
		cpu := cpuset.Of(all[n%len(all)])
		used, is[tid] = used.Union(cpu), true
		if err := task.SetAffinity(tid, cpu); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("virtual CPU %d on CPU %s: %w", n, cpu, err)
		}
	}
	rest := may.Difference(used)
	if rest.IsEmpty() {
		return nil
	}
	for _, tid := range task.Threads(host.Live(), pid) {
		if is[tid] {
			continue
		}
		if err := task.SetAffinity(tid, rest); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("the emulator's thread %d on CPUs %s: %w", tid, rest, err)
		}
	}
	return nil
}
