// Package hosttest has hosts for tests: machines that are made up, snapshots of real ones, and the
// one place that decides which tests this machine cannot run.
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

// Feature is something that a test needs of the machine; it returns why that is missing, or "".
type Feature func() string

// Need skips the test with the reason where this machine lacks one of the features.
func Need(tb testing.TB, needs ...Feature) {
	tb.Helper()
	for _, missing := range needs {
		if why := missing(); why != "" {
			tb.Skip("skipped: " + why)
		}
	}
}

// Root is the right to change the host.
func Root() string {
	if os.Geteuid() != 0 {
		return "needs root"
	}
	return ""
}

// BPF is a kernel that takes eBPF programs from this process.
func BPF() string {
	if err := features.HaveProgramType(ebpf.SchedCLS); err != nil {
		return fmt.Sprintf("needs eBPF: %v", err)
	}
	return ""
}

// CgroupCpuset is a cgroup hierarchy, v1 or v2, with the cpuset controller.
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

// CgroupV1Cpuset is the cpuset controller in a hierarchy of cgroup v1.
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

// Even is a machine whose CPUs differ in nothing that a lane's placement depends on: all of them usable, not
// isolated, in cores of one thread on one NUMA node.
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

// CPUs is at least n usable CPUs.
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

// Systemd is a machine that it has started (sd_booted(3)).
func Systemd() string {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return "needs systemd as the first process, as in the lab"
	}
	return ""
}

// Program is a program on the PATH.
func Program(name string) Feature {
	return func() string {
		if _, err := exec.LookPath(name); err != nil {
			return "needs " + name
		}
		return ""
	}
}

// OwnMounts gives the test mounts that nobody else sees. Its goroutine keeps its thread, which ends with it.
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
