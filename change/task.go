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

// KindTask is the CPU affinity of one thread, as a cpulist: Target is its TaskTarget.
const KindTask = "task"

type taskCPUs struct{ root fs.FS }

// TaskTarget names a thread for steps, so that another task that got the
// same number later is not taken for it. Start is field 22 of /proc/PID/stat.
func TaskTarget(tid int, start uint64) string { return fmt.Sprintf("%d:%d", tid, start) }

// find returns the id of the task that target names, or fs.ErrNotExist when it has ended.
func find(root fs.FS, target string) (int, error) {
	id, start, _ := strings.Cut(target, ":")
	tid, err := strconv.Atoi(id)
	if err != nil {
		return 0, fmt.Errorf("%q: expected tid:start", target)
	}
	now, err := task.StartTime(root, tid)
	if err != nil {
		return 0, err
	}
	if strconv.FormatUint(now, 10) != start {
		return 0, fs.ErrNotExist
	}
	return tid, nil
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

// Read returns After where the thread has all of it that is online: some kernels forget the others of what is
// asked for (cpuset_cpus_allowed in kernel/cgroup/cpuset.c). Else it returns CPUs that are offline too: most
// threads of the kernel may use all that there can be.
func (t taskCPUs) Read(_ context.Context, s journal.Step) (string, error) {
	tid, err := find(t.root, s.Target)
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

// MayOverwrite lets a thread have its own CPUs back that has been given more: so does the kernel with its
// threads when a cpuset changes. And one of the kernel's that has only some of what it was given, where the
// kernel forgets what of that is offline then, see Read.
func (t taskCPUs) MayOverwrite(s journal.Step, now string) bool {
	before, err := cpuset.Parse(s.Before)
	after, aerr := cpuset.Parse(s.After)
	has, herr := cpuset.Parse(now)
	if errors.Join(err, aerr, herr) != nil {
		return false
	}
	return before.IsSubsetOf(has) ||
		!has.IsEmpty() && has.IsSubsetOf(after) && t.ofKernel(s.Target) && t.forgets()
}

// forgets says whether the kernel is older than 6.2, which remembers what threads asked for (user_cpus_ptr).
func (t taskCPUs) forgets() bool {
	var major, minor int
	text, _ := fs.ReadFile(t.root, "proc/sys/kernel/osrelease") // one that is not known forgets nothing
	_, err := fmt.Sscanf(string(text), "%d.%d", &major, &minor)
	return err == nil && (major < 6 || major == 6 && minor < 2)
}

func (t taskCPUs) ofKernel(target string) bool {
	tid, err := find(t.root, target)
	if err != nil {
		return false
	}
	stat, err := task.ReadThread(t.root, tid)
	return err == nil && stat.Kernel
}

// Write gives a program's thread that had all of its cpuset all of it again, whatever that becomes: what is
// set lasts longer than the cpuset of now, see pins.
func (t taskCPUs) Write(_ context.Context, s journal.Step, value string) error {
	tid, err := find(t.root, s.Target)
	if err != nil {
		return err
	}
	set, err := cpuset.Parse(value)
	if err != nil {
		return err
	}
	if value == s.Before && !t.ofKernel(s.Target) {
		h, herr := cpusets()
		_, all, perr := places(h)(tid)
		if errors.Join(herr, perr) == nil && !all.IsEmpty() && all.IsSubsetOf(set) {
			return task.Ended(task.ResetAffinity(tid))
		}
	}
	return task.Ended(task.SetAffinity(tid, set))
}

// Ends is true of each thread.
func (taskCPUs) Ends(journal.Step) bool { return true }

// Name is that of the thread.
func (taskCPUs) Name(s journal.Step) string { return taskName("CPUs of thread", s.Target) }

// taskName says for people what is set of which thread, which a TaskTarget names.
func taskName(what, target string) string {
	id, _, _ := strings.Cut(target, ":")
	name, err := os.ReadFile("/proc/" + id + "/comm")
	if err != nil {
		return what + " " + id + ", which has ended"
	}
	return fmt.Sprintf("%s %s (%s)", what, id, strings.TrimSpace(string(name)))
}

// Shell is taskset(1).
func (taskCPUs) Shell(s journal.Step) string {
	id, _, _ := strings.Cut(s.Target, ":")
	return fmt.Sprintf("taskset -pc %s %s", s.After, id)
}
