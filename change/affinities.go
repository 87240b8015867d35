package change

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/journal"
)

// KindAffinities keeps the threads of the machine that have CPU affinities of their own to these, less the
// CPUs of lanes. After is the CPUs of lanes; the value before has the threads, see pins.
//
// When CPUs become a partition, or cease to be one, the kernel gives every thread all CPUs outside of
// partitions (kernel/cgroup/cpuset.c, update_tasks_cpumask). It does the same to a thread that comes back to
// the root cgroup. That would open the CPUs of isolcpus= to all threads; before Linux 6.2 it also forgets
// what sched_setaffinity(2) asked for. So the affinities are recorded first, and set again at the end.
const KindAffinities = "affinities"

type affinities struct{ kernel }

// AffinitiesTarget is the only target of steps of kind affinities.
const AffinitiesTarget = "threads"

// recordedPrefix begins the value before. The start time of the youngest recorded thread follows, as in
// TaskTarget: a younger thread gets what its parents had.
const recordedPrefix = "noted "

func parseRecorded(value string) (youngest uint64, keep pins, err error) {
	head, keep, err := parsePins(value)
	if err != nil {
		return 0, nil, err
	}
	born, ok := strings.CutPrefix(head, recordedPrefix)
	if youngest, err = strconv.ParseUint(born, 10, 64); err != nil || !ok {
		return 0, nil, fmt.Errorf("%q: expected the CPUs of threads", head)
	}
	return youngest, keep, nil
}

func (affinities) Check(s journal.Step) error {
	var keep pins
	var err error
	if s.Before != "" {
		_, keep, err = parseRecorded(s.Before)
	}
	if s.Target != AffinitiesTarget {
		err = fmt.Errorf("%s: expected %s", s.Target, AffinitiesTarget)
	}
	for target, own := range keep {
		if err = errors.Join(err, checkTask(target)); own.group != "" {
			err = fmt.Errorf("%s: %q: expected CPUs alone", target, own.group)
		}
	}
	_, aerr := cpuset.Parse(s.After)
	_, rerr := cpuset.Parse(s.Replaced)
	return errors.Join(err, aerr, rerr)
}

func (a affinities) Read(_ context.Context, s journal.Step) (string, error) {
	if s.Before != "" {
		return s.After, nil
	}
	if !a.isLive() {
		return recordedPrefix + "0", nil
	}
	keep, youngest := pins{}, uint64(0)
	every, err := host.Online(host.Live())
	if err != nil {
		return "", err
	}
	err = eachThread(func(t thread, all func() cpuset.Set) error {
		youngest = max(youngest, t.start)
		if !every.IsSubsetOf(t.cpus) && !all().IsSubsetOf(t.cpus) {
			if own, there := t.allowedCPUs(); there {
				keep[t.target()] = pin{cpus: own}
			}
		}
		return nil
	})
	return recordedPrefix + strconv.FormatUint(youngest, 10) + keep.String(), err
}

func (a affinities) Write(ctx context.Context, s journal.Step, value string) error {
	if value != s.Before {
		return nil // Finish is called when the cpusets are set
	}
	s.Replaced, s.After = s.After, ""
	return a.Finish(ctx, s)
}

// Describe describes the step without the affinity of each thread.
func (affinities) Describe(s journal.Step) (name, from, to string) {
	name = "CPUs of all other threads"
	if strings.HasPrefix(s.After, recordedPrefix) {
		return name, "theirs without " + s.Before, "theirs"
	}
	return name, "theirs", "theirs without " + s.After
}

// Shell returns a comment: no single command does this.
func (affinities) Shell(s journal.Step) string {
	if strings.HasPrefix(s.After, recordedPrefix) {
		return "# threads have the CPUs again that they had"
	}
	return "# threads that may use only some CPUs keep to these, but for " + s.After
}

// Finish sets the affinities again that the kernel has changed, of recorded threads and their descendants.
func (a affinities) Finish(_ context.Context, s journal.Step) error {
	youngest, keep, err := parseRecorded(s.Before)
	if err != nil || !a.isLive() || len(keep) == 0 {
		return err
	}
	lanes, err := cpuset.Parse(s.After)
	if err != nil {
		return err
	}
	earlier, err := cpuset.Parse(s.Replaced)
	if err != nil {
		return err
	}
	online, err := host.Online(host.Live())
	if err != nil {
		return err
	}
	family := map[int]cpuset.Set{}
	return eachThread(func(t thread, all func() cpuset.Set) error {
		own := keep[t.target()].cpus
		if own.IsEmpty() && t.start > youngest {
			// A thread in a cpuset of its own, such as a container's, keeps what that allows.
			own = keep.inheritedCPUs(t.pid, family)
			if !own.Difference(lanes).Intersection(online).IsSubsetOf(all()) {
				return nil
			}
		}
		if own.IsEmpty() {
			return nil
		}
		may, there := t.allowedCPUs()
		if !there || own.Difference(lanes) == may {
			return nil
		}
		to := cpusToSet(may, own.Difference(lanes), own.Difference(earlier), all(), online)
		if to.IsEmpty() || to == may {
			return nil
		}
		err := task.SetAffinity(t.tid, to)
		// It has ended, is the kernel's, has a deadline, or a security module guards it.
		for _, refused := range []error{unix.ESRCH, unix.EINVAL, unix.EBUSY, unix.EPERM, unix.EACCES} {
			if errors.Is(err, refused) {
				return nil
			}
		}
		return err
	})
}

// thread is a thread of the machine, with the CPUs that it may use.
type thread struct {
	tid, pid int
	start    uint64
	cpus     cpuset.Set // the online ones
}

// allowedCPUs returns the CPUs that the thread may use, offline ones included; false if it has ended.
func (t thread) allowedCPUs() (cpuset.Set, bool) {
	all, err := task.ReadAllowed(host.Live(), task.Dir(t.tid))
	return all, err == nil
}

// cpusToSet returns the CPUs to set for a thread with affinity own. may is what it has now, earlier what the
// step before wanted for it, all what its cpuset has. It returns the empty set if may is neither what the
// kernel has opened nor earlier, as somebody else set it, or if own has no CPU of the cpuset. Offline CPUs
// stay.
func cpusToSet(may, own, earlier, all, online cpuset.Set) cpuset.Set {
	wide := all.IsSubsetOf(may) || may.Intersection(online) == earlier.Intersection(online)
	if !wide || !own.Intersects(all) {
		return cpuset.Set{}
	}
	return own.Difference(online.Difference(all))
}

func (t thread) target() string { return TaskTarget(t.tid, t.start) }

// inheritedCPUs returns the recorded CPUs of a process, or of its nearest ancestor that has some; else none.
func (p pins) inheritedCPUs(pid int, family map[int]cpuset.Set) cpuset.Set {
	if own, known := family[pid]; known || pid <= 0 {
		return own
	}
	family[pid] = cpuset.Set{}
	f, err := task.ReadStat(host.Live(), task.Dir(pid))
	if err != nil {
		return cpuset.Set{}
	}
	own := p[TaskTarget(pid, f.Start)].cpus
	if own.IsEmpty() {
		own = p.inheritedCPUs(f.Parent, family)
	}
	family[pid] = own
	return own
}

// cpusetHierarchy returns this host's cgroup hierarchy with the cpuset controller.
func cpusetHierarchy() (cgroup.Hierarchy, error) {
	mounted, err := cgroup.Mounted(host.Live())
	if err != nil {
		return cgroup.Hierarchy{}, err
	}
	top, _ := mounted.Cpuset()
	if top == "" {
		return cgroup.Hierarchy{},
			errors.New("/proc/self/mounts: expected a cgroup hierarchy with the cpuset controller")
	}
	return cgroup.HierarchyOf(host.Live(), top)
}

// eachThread calls do for each thread whose affinity may be changed. all returns the CPUs of the thread's
// cpuset; none if the thread has ended.
func eachThread(do func(t thread, all func() cpuset.Set) error) error {
	root := host.Live()
	h, err := cpusetHierarchy()
	if err != nil {
		return err
	}
	place := placeFinder(h)
	processes, err := task.Processes(root)
	if err != nil {
		return err
	}
	for _, pid := range processes {
		for _, tid := range task.Threads(root, pid) {
			t, ok := movableThread(pid, tid)
			if !ok {
				continue
			}
			// None if the thread has ended, or its cgroup is removed.
			all := func() cpuset.Set { _, cpus, _ := place(tid); return cpus }
			if err = do(t, all); err != nil {
				return fmt.Errorf("thread %d: %w", tid, err)
			}
		}
	}
	return nil
}

// movableThread returns false for a thread that has ended, may not be moved, or follows its interrupt.
func movableThread(pid, tid int) (thread, bool) {
	f, err := task.ReadThread(host.Live(), tid)
	if err != nil || !f.Movable() {
		return thread{}, false
	}
	may, err := task.Affinity(tid)
	return thread{tid: tid, pid: pid, start: f.Start, cpus: may}, err == nil
}
