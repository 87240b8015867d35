package change

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/journal"
)

// KindTask sets the CPU affinity of one thread, a cpulist. Target is its TaskTarget.
const KindTask = "task"

type taskCPUs struct{ root fs.FS }

// TaskTarget names a thread for steps. It includes the start time (field 22 of /proc/PID/stat), so that a
// later task with the same number is not taken for it.
func TaskTarget(tid int, start uint64) string { return fmt.Sprintf("%d:%d", tid, start) }

// findTask returns the ID of the task that target names, or fs.ErrNotExist if it has ended.
func findTask(root fs.FS, target string) (int, error) {
	tid, _, err := readTask(root, target)
	return tid, err
}

func readTask(root fs.FS, target string) (tid int, stat task.Stat, err error) {
	id, start, _ := strings.Cut(target, ":")
	if tid, err = strconv.Atoi(id); err != nil {
		return 0, stat, fmt.Errorf("%q: expected tid:start", target)
	}
	if stat, err = task.ReadThread(root, tid); err == nil && strconv.FormatUint(stat.Start, 10) != start {
		err = fs.ErrNotExist
	}
	return tid, stat, err
}

// find is findTask of a thread whose CPUs can be set. The kernel makes a worker first and binds it to its CPU
// a moment later (create_worker in kernel/workqueue.c): what was set between counts as gone, like the thread.
func (t taskCPUs) find(target string) (int, error) {
	tid, stat, err := readTask(t.root, target)
	if err == nil && stat.Fixed {
		err = fs.ErrNotExist
	}
	return tid, err
}

func (taskCPUs) Check(s journal.Step) error {
	_, err := cpuset.Parse(s.After)
	_, berr := cpuset.Parse(s.Before)
	return errors.Join(checkTask(s.Target), err, berr)
}

func checkTask(target string) error {
	id, start, ok := strings.Cut(target, ":")
	_, err := strconv.ParseUint(id, 10, 31)
	_, serr := strconv.ParseUint(start, 10, 64)
	if err = errors.Join(err, serr); err != nil || !ok {
		return fmt.Errorf("%q: expected tid:start", target)
	}
	return nil
}

// Read returns After if the thread has all online CPUs of it, because some kernels forget the offline ones
// (cpuset_cpus_allowed in kernel/cgroup/cpuset.c). Otherwise it returns all allowed CPUs with the offline
// ones: most kernel threads may use every possible CPU.
func (t taskCPUs) Read(_ context.Context, s journal.Step) (string, error) {
	tid, err := t.find(s.Target)
	if err != nil {
		return "", err
	}
	may, err := task.Affinity(tid)
	if err != nil || may.String() == s.After {
		return may.String(), task.Ended(err)
	}
	online, err := host.Online(t.root)
	after, aerr := cpuset.Parse(s.After)
	if err = errors.Join(err, aerr); err == nil && may == after.Intersection(online) {
		return s.After, nil
	}
	all, rerr := task.ReadAllowed(t.root, task.Dir(tid))
	return all.String(), errors.Join(err, rerr)
}

// MayOverwrite accepts two changes by the kernel. A thread may have more CPUs than Before: the kernel widens
// the affinities of its threads when a cpuset changes. And a kernel thread may have only some of After, if
// this kernel forgets offline CPUs, see Read.
func (t taskCPUs) MayOverwrite(s journal.Step, now string) bool {
	before, err := cpuset.Parse(s.Before)
	after, aerr := cpuset.Parse(s.After)
	has, herr := cpuset.Parse(now)
	if errors.Join(err, aerr, herr) != nil {
		return false
	}
	return before.IsSubsetOf(has) ||
		!has.IsEmpty() && has.IsSubsetOf(after) && t.isKernelThread(s.Target) && t.kernelForgets()
}

// kernelForgets reports whether the kernel is older than 6.2: only later ones remember affinities
// (user_cpus_ptr).
func (t taskCPUs) kernelForgets() bool {
	var major, minor int
	text, _ := fs.ReadFile(t.root, "proc/sys/kernel/osrelease") // an unknown kernel forgets nothing
	_, err := fmt.Sscanf(string(text), "%d.%d", &major, &minor)
	return err == nil && (major < 6 || major == 6 && minor < 2)
}

func (t taskCPUs) isKernelThread(target string) bool {
	_, stat, err := readTask(t.root, target)
	return err == nil && stat.Kernel
}

// Write resets the affinity of a program's thread if it had all CPUs of its cpuset before. So it follows
// later changes of the cpuset, which an affinity that is set would outlast, see pins.
func (t taskCPUs) Write(_ context.Context, s journal.Step, value string) error {
	tid, err := t.find(s.Target)
	if err != nil {
		return err
	}
	set, err := cpuset.Parse(value)
	if err != nil {
		return err
	}
	if value == s.Before && !t.isKernelThread(s.Target) {
		h, herr := cpusetHierarchy()
		_, all, perr := placeFinder(h)(tid)
		if errors.Join(herr, perr) == nil && !all.IsEmpty() && all.IsSubsetOf(set) {
			return task.Ended(task.ResetAffinity(tid))
		}
	}
	return task.Ended(task.SetAffinity(tid, set))
}

// Ends returns true: any thread may end.
func (taskCPUs) Ends(journal.Step) bool { return true }

// Name names the thread.
func (taskCPUs) Name(s journal.Step) string { return taskName("CPUs of thread", s.Target) }

// taskName says for people what is set of the thread that target names.
func taskName(what, target string) string {
	id, _, _ := strings.Cut(target, ":")
	name, err := os.ReadFile("/proc/" + id + "/comm")
	if err != nil {
		return what + " " + id + ", which has ended"
	}
	return fmt.Sprintf("%s %s (%s)", what, id, strings.TrimSpace(string(name)))
}

// Shell returns a taskset(1) command.
func (taskCPUs) Shell(s journal.Step) string {
	id, _, _ := strings.Cut(s.Target, ":")
	return fmt.Sprintf("taskset -pc %s %s", s.After, id)
}
