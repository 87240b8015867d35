package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/sched"
)

// Lane is the surroundings of a process. The zero value confines nothing.
type Lane struct {
	Netns        string       // name in /run/netns, or the path of one; "": the caller's namespace
	Cgroup       string       // directory of its cgroup; "": the caller's
	Policy       sched.Policy // fifo, rr or other; "" leaves it as it is
	Priority     int          // 1-99 with fifo and rr
	Memory       string       // directory of its cgroup in the v1 memory hierarchy, if it has one
	MemoryNodes  cpuset.Set   // its memory comes only from these; empty: from all
	Capabilities []string     // that it may have, "NET_ADMIN"; root's others are dropped; nil drops none
	User         uint32       // and group of this number, no others and no capabilities; 0: the caller's
	Private      string       // directory that it sees as /tmp and /var/tmp; it then sees no others' processes
	RealTime     bool         // no transparent huge pages, exact timers
	Parent       int          // the process with which it is killed; 0: none
}

// Enter puts this process into the lane, and then replaces it by argv with the environment env. It returns
// only with an error: an *exec.Error if the program is the reason. The process keeps its ID, so whoever waits
// for it or signals it notices nothing.
func (l Lane) Enter(argv, env []string) error {
	program, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	keep, err := capabilities(l.Capabilities)
	if err != nil {
		return err
	}
	if l.User != 0 {
		keep = []int{}
	}
	runtime.LockOSThread() // what follows changes this thread, and survives its execve
	for _, dir := range []string{l.Cgroup, l.Memory} {
		procs := filepath.Join(dir, "cgroup.procs")
		if dir == "" {
			continue
		}
		if err = os.WriteFile(procs, []byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
			return fmt.Errorf("%s: %w: is the lane in force? isolane status shows it", procs, err)
		}
	}
	// All CPUs of the lane, whatever affinity is inherited: since Linux 6.2 the kernel intersects the cpuset
	// with it.
	if err = task.ResetAffinity(0); err != nil {
		return fmt.Errorf("the lane's CPUs: %w", err)
	}
	// Go's runtime handles SIGPIPE, which systemd makes its services ignore (IgnoreSIGPIPE=, systemd.exec(5)).
	if service := os.Getenv("SYSTEMD_EXEC_PID"); service == strconv.Itoa(os.Getpid()) ||
		service == strconv.Itoa(l.Parent) {
		signal.Ignore(unix.SIGPIPE)
	}
	for _, step := range []func() error{func() error { return enter(l.Netns) }, l.bindMemory, l.realTime,
		l.schedule, l.apart, func() error { return drop(keep) }, l.become, l.dieWithParent} {
		if err = step(); err != nil {
			return err
		}
	}
	return &exec.Error{Name: program, Err: unix.Exec(program, argv, env)}
}

// bindMemory restricts memory to the lane's nodes (set_mempolicy(2)). A kernel without NUMA has only one
// node.
func (l Lane) bindMemory() error {
	if l.MemoryNodes.IsEmpty() {
		return nil
	}
	var mask unix.CPUSet // the kernel has at most 1024 nodes (include/linux/numa.h)
	for n := range l.MemoryNodes.All() {
		mask.Set(n)
	}
	if err := unix.SetMemPolicy(unix.MPOL_BIND, &mask); err != nil && !errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("memory of node %s: %w", l.MemoryNodes, err)
	}
	return nil
}

// dieWithParent also applies to this thread, and survives execve (PR_SET_PDEATHSIG(2const)).
func (l Lane) dieWithParent() error {
	if l.Parent == 0 {
		return nil
	}
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("PR_SET_PDEATHSIG: %w", err)
	}
	if os.Getppid() != l.Parent {
		return fmt.Errorf("process %d, which started this one, has ended", l.Parent)
	}
	return nil
}

func (l Lane) realTime() error {
	if !l.RealTime {
		return nil
	}
	if err := unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("PR_SET_THP_DISABLE: %w", err)
	}
	// 1 ns; the real-time policies have none
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("PR_SET_TIMERSLACK: %w", err)
	}
	return nil
}

// names returns the capabilities of include/uapi/linux/capability.h, indexed by number.
func names() []string {
	return []string{
		"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID",
		"SETPCAP", "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW",
		"IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT",
		"SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE",
		"AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM",
		"BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF", "CHECKPOINT_RESTORE",
	}
}

// Usual returns the capabilities that programs need to handle files, users and sockets: those that container
// runtimes leave them too.
func Usual() []string {
	return []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
		"NET_BIND_SERVICE",
		"NET_RAW", "IPC_LOCK", "SYS_CHROOT", "MKNOD", "AUDIT_WRITE", "SETFCAP"}
}

// capabilities returns the numbers of named ones.
func capabilities(keep []string) ([]int, error) {
	var numbers []int
	for _, name := range keep {
		i := slices.Index(names(), name)
		if i < 0 {
			return nil, fmt.Errorf("capability %q: expected a name as in capabilities(7), without CAP_", name)
		}
		numbers = append(numbers, i)
	}
	return numbers, nil
}

// drop removes capabilities from the bounding set, so that no program gets them by execve any more, and from
// this thread's inheritable set (capabilities(7)).
func drop(keep []int) error {
	if keep == nil {
		return nil
	}
	for c := range 64 {
		if slices.Contains(keep, c) {
			continue
		}
		err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0)
		if errors.Is(err, unix.EINVAL) { // the kernel has no more
			break
		}
		if err != nil {
			return fmt.Errorf("PR_CAPBSET_DROP: %w", err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("PR_CAP_AMBIENT: %w", err)
	}
	return nil
}

// CapabilityError says what needs capabilities that are not in effect for this process, or needs root.
type CapabilityError struct {
	What    string
	Missing []string // none: What says that it needs root
}

func (e *CapabilityError) Error() string {
	if len(e.Missing) == 0 {
		return e.What
	}
	return fmt.Sprintf("%s: %s missing", e.What, strings.Join(e.Missing, ", "))
}

// Need fails with a *CapabilityError if this process lacks one of the named capabilities for what it is to
// do.
func Need(what string, need ...string) error {
	missing, err := missing(need)
	if err == nil && len(missing) > 0 {
		err = &CapabilityError{what, missing}
	}
	return err
}

// NeedRoot fails with a *CapabilityError if this process is not root's.
func NeedRoot(command, why string) error {
	if os.Geteuid() != 0 {
		return &CapabilityError{What: command + " needs root: " + why}
	}
	return nil
}

func missing(need []string) ([]string, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return nil, fmt.Errorf("capget: %w", err)
	}
	var missing []string
	numbers, err := capabilities(need)
	for i, c := range numbers {
		if data[c/32].Effective&(1<<(c%32)) == 0 {
			missing = append(missing, "CAP_"+need[i])
		}
	}
	return missing, err
}
