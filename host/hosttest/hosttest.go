// Package hosttest has hosts for tests: made-up machines and snapshots of real ones. It is also the one place
// that decides which tests this machine cannot run.
package hosttest

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/host"
)

// Feature checks something that a test needs of the machine. It returns why that is missing, or "".
type Feature func() string

// Need skips the test, with the reason, if this machine lacks one of the features.
func Need(tb testing.TB, needs ...Feature) {
	tb.Helper()
	for _, missing := range needs {
		if why := missing(); why != "" {
			tb.Skip("skipped: " + why)
		}
	}
}

// Root needs the right to change the host.
func Root() string {
	if os.Geteuid() != 0 {
		return "needs root"
	}
	return ""
}

// BPF needs a kernel that takes eBPF programs from this process.
func BPF() string {
	if err := features.HaveProgramType(ebpf.SchedCLS); err != nil {
		return fmt.Sprintf("needs eBPF: %v", err)
	}
	return ""
}

// CgroupCpuset needs a cgroup hierarchy, v1 or v2, with the cpuset controller.
func CgroupCpuset() string {
	h, err := host.Read(host.Live())
	if err != nil {
		return err.Error()
	}
	if h.Kernel.Cgroup.CpusetV1 == nil && !slices.Contains(h.Kernel.Cgroup.UnifiedControllers, "cpuset") {
		return "needs a cgroup hierarchy with the cpuset controller"
	}
	return ""
}

// CgroupV1Cpuset needs the cpuset controller in a hierarchy of cgroup v1.
func CgroupV1Cpuset() string {
	h, err := host.Read(host.Live())
	if err != nil {
		return err.Error()
	}
	if h.Kernel.Cgroup.CpusetV1 == nil {
		return "needs a cgroup v1 hierarchy with the cpuset controller"
	}
	return ""
}

// Even needs a machine whose CPUs are all alike for the placement of a lane: usable, not isolated, in cores
// of one thread, on one NUMA node.
func Even() string {
	h, err := host.Read(host.Live())
	if err != nil {
		return err.Error()
	}
	usable := h.Usable()
	even := h.MemoryNodes().Len() == 1 && h.BootIsolated().IsEmpty() && len(h.CPUs) == usable.Len()
	for _, core := range h.Cores() {
		even = even && core.Len() == 1
	}
	if !even {
		return "needs a machine with one NUMA node, without SMT, all CPUs usable and none isolated"
	}
	return ""
}

// CPUs needs at least n usable CPUs.
func CPUs(n int) Feature {
	return func() string {
		h, err := host.Read(host.Live())
		if err != nil {
			return err.Error()
		}
		if usable := h.Usable(); usable.Len() < n {
			return fmt.Sprintf("needs %d CPUs, may use %s", n, usable)
		}
		return ""
	}
}

// Systemd needs a machine that systemd has started (sd_booted(3)).
func Systemd() string {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return "needs systemd as the first process, as in the lab"
	}
	return ""
}

// Program needs a program in PATH.
func Program(name string) Feature {
	return func() string {
		if _, err := exec.LookPath(name); err != nil {
			return "needs " + name
		}
		return ""
	}
}

// OwnMounts gives the test private mounts. It locks the test's goroutine to its thread, which ends with it.
func OwnMounts(t *testing.T) {
	t.Helper()
	Need(t, Root)
	runtime.LockOSThread()
	err := unix.Unshare(unix.CLONE_NEWNS)
	if err == nil {
		err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	}
	if err != nil {
		t.Skip("skipped: needs mounts of its own: ", err)
	}
}
