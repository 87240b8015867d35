// Package spread moves threads of a lane from CPUs on which others wait to CPUs that idle, where the kernel
// does not: it balances no CPUs of isolcpus= (kernel/sched/topology.c), and a thread stays where it was born.
//
//	err := spread.Once(root, "/sys/fs/cgroup/isolane-web", cpus)
//
// A thread that may use only some of the lane's CPUs has been bound by somebody, and stays.
package spread

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/host/task"
)

// thread is a thread that runs or waits for its turn on a CPU.
type thread struct {
	ID, CPU int
	Bound   bool // to some of the lane's CPUs
}

// move moves a thread to another CPU.
type move struct{ Thread, To int }

// moves returns the moves after which no CPU idles while threads queue on another. As long as a CPU has two
// threads more than another, an unbound one of them moves there. The fewest threads move.
func moves(threads []thread, cpus cpuset.Set) []move {
	if cpus.IsEmpty() {
		return nil
	}
	queue := map[int][]thread{}
	for _, t := range threads {
		queue[t.CPU] = append(queue[t.CPU], t)
	}
	var all []move
	for {
		from, to := -1, cpus.First()
		for cpu := range cpus.All() {
			if len(queue[cpu]) < len(queue[to]) {
				to = cpu
			}
			free := slices.ContainsFunc(queue[cpu], func(t thread) bool { return !t.Bound })
			if free && (from < 0 || len(queue[cpu]) > len(queue[from])) {
				from = cpu
			}
		}
		if from < 0 || len(queue[from]) < len(queue[to])+2 {
			return all
		}
		i := slices.IndexFunc(queue[from], func(t thread) bool { return !t.Bound })
		t := queue[from][i]
		queue[from] = slices.Delete(queue[from], i, i+1)
		t.Bound = true // move it only once
		queue[to] = append(queue[to], t)
		all = append(all, move{t.ID, to})
	}
}

// Once checks the threads of a cgroup and of those below it, and moves threads that wait while a CPU idles. A
// moved thread may still use all of the lane's CPUs afterwards.
func Once(root fs.FS, dir string, cpus cpuset.Set) error {
	threads, err := runnable(root, dir, cpus)
	if err != nil {
		return err
	}
	for _, m := range moves(threads, cpus) {
		err = task.SetAffinity(m.Thread, cpuset.Of(m.To))
		if err == nil {
			err = task.ResetAffinity(m.Thread)
		}
		// It has ended or left, or is the kernel's.
		if err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("thread %d to CPU %d: %w", m.Thread, m.To, err)
		}
	}
	return nil
}

// runnable returns the threads that run or wait now.
func runnable(root fs.FS, dir string, cpus cpuset.Set) ([]thread, error) {
	tids, err := cgroup.Threads(root, dir)
	var found []thread
	for _, tid := range tids {
		t, serr := task.ReadThread(root, tid)
		if serr != nil || t.State != 'R' {
			continue // or it has ended
		}
		if may, aerr := task.Affinity(tid); aerr == nil {
			found = append(found, thread{tid, t.Processor, !cpus.IsSubsetOf(may)})
		}
	}
	return found, err
}
