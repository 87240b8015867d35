package enforce

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/plan"
)

func lines(steps []journal.Step) string {
	var b strings.Builder
	for _, s := range steps {
		b.WriteString(s.Kind + " " + s.Target + " -> " + s.After)
		if s.Optional {
			b.WriteString(" (optional)")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// machine is a four-CPU host with the knobs in their usual state.
func machine(t *testing.T, mounts string) (fstest.MapFS, host.Host) {
	t.Helper()
	root := hosttest.Machine{Packages: 1, CoresPerPackage: 4, ThreadsPerCore: 1}.FS()
	for path, content := range map[string]string{
		"proc/mounts":                                                mounts,
		"sys/fs/cgroup/cgroup.controllers":                           "cpuset cpu memory",
		"proc/interrupts":                                            "     CPU0 CPU1 CPU2 CPU3\n 24: 1 0 0 0 IO-APIC 5-edge nic\n 25: 0 0 9 0 PCI-MSI 1-edge disk\n 26: 0 0 0 0 PCI-MSI 2-edge elsewhere\n",
		"proc/irq/24/smp_affinity_list":                              "0-3",
		"proc/irq/25/smp_affinity_list":                              "2",
		"proc/irq/26/smp_affinity_list":                              "0",
		"proc/irq/default_smp_affinity":                              "0000000f",
		"proc/sys/net/core/busy_poll":                                "0",
		"proc/sys/net/core/busy_read":                                "0",
		"sys/devices/virtual/workqueue/cpumask":                      "f",
		"sys/devices/system/cpu/cpu2/power/pm_qos_resume_latency_us": "0",
		// a movable kernel thread, one bound to its CPU by flag, one by mask, and a program
		"proc/12/stat":   "12 (kworker/u8:0) I 2 0 0 0 -1 2097152 0 0 0 0 0 0 0 0 20 0 1 0 77 0",
		"proc/12/status": "Cpus_allowed_list:\t0-3\n",
		"proc/13/stat":   "13 (migration/2) S 2 0 0 0 -1 69206016 0 0 0 0 0 0 0 0 20 0 1 0 78 0",
		"proc/13/status": "Cpus_allowed_list:\t2\n",
		"proc/14/stat":   "14 (rcuog (x) 2) S 2 0 0 0 -1 2097152 0 0 0 0 0 0 0 0 20 0 1 0 79 0",
		"proc/14/status": "Cpus_allowed_list:\t2\n",
		"proc/15/stat":   "15 (bash) S 1 0 0 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 80 0",
		"proc/15/status": "Cpus_allowed_list:\t0-3\n",
	} {
		root[path] = &fstest.MapFile{Data: []byte(content + "\n")}
	}
	h, err := host.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	return root, h
}

func placement() plan.Placement {
	return plan.Placement{Housekeeping: cpuset.MustParse("0-1,3"), Lanes: []plan.Lane{
		{Name: "a", CPUs: cpuset.Of(2), MemoryNodes: cpuset.Of(0), BusyPoll: true}}}
}

const knobs = `file /proc/irq/24/smp_affinity_list -> 0-1,3 (optional)
file /proc/irq/25/smp_affinity_list -> 0-1,3 (optional)
file /proc/irq/default_smp_affinity -> 0000000b
file /sys/devices/virtual/workqueue/cpumask -> b
task 12:77 -> 0-1,3 (optional)
file /sys/devices/system/cpu/cpu2/power/pm_qos_resume_latency_us -> n/a
file /proc/sys/net/core/busy_poll -> 50
`

func TestStepsCgroupV1(t *testing.T) {
	root, h := machine(t, "cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0")
	got, err := Steps(root, h, placement())
	if err != nil {
		t.Fatal(err)
	}
	want := `dir /sys/fs/cgroup/cpuset/isolane-housekeeping -> present
file /sys/fs/cgroup/cpuset/isolane-housekeeping/cpuset.cpus -> 0-1,3
file /sys/fs/cgroup/cpuset/isolane-housekeeping/cpuset.mems -> 0
dir /sys/fs/cgroup/cpuset/isolane-a -> present
file /sys/fs/cgroup/cpuset/isolane-a/cpuset.cpus -> 2
file /sys/fs/cgroup/cpuset/isolane-a/cpuset.mems -> 0
tasks /sys/fs/cgroup/cpuset -> /sys/fs/cgroup/cpuset/isolane-housekeeping
` + knobs
	if d := cmp.Diff(want, lines(got)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestStepsCgroupV2(t *testing.T) {
	root, h := machine(t, "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0")
	got, err := Steps(root, h, placement())
	if err != nil {
		t.Fatal(err)
	}
	want := `controller /sys/fs/cgroup/cgroup.subtree_control -> cpuset
dir /sys/fs/cgroup/isolane-a -> present
file /sys/fs/cgroup/isolane-a/cpuset.cpus -> 2
file /sys/fs/cgroup/isolane-a/cpuset.mems -> 0
file /sys/fs/cgroup/isolane-a/cpuset.cpus.partition -> isolated
` + knobs
	if d := cmp.Diff(want, lines(got)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestNoCpuset(t *testing.T) {
	root, h := machine(t, "proc /proc proc rw 0 0")
	if _, err := Steps(root, h, placement()); !errors.Is(err, ErrNoCpuset) {
		t.Errorf("got %v", err)
	}
}

// On the machine at hand: the steps of a lane are done, nothing is left to do, and all is undone.
func TestLaneOnThisHost(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.CgroupCpuset, hosttest.CPUs(2))
	root := host.Live()
	h, err := host.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	lane := cpuset.Of(h.Usable().Last())
	p := plan.Placement{Housekeeping: h.Usable().Difference(lane), Lanes: []plan.Lane{
		{Name: "test-lane", CPUs: lane, MemoryNodes: h.MemoryNodes()}}}
	before := knobValues(t)
	j, err := journal.Open(t.TempDir(), "test", journal.Ops())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err = errors.Join(j.Undo(context.Background()), j.Close()); err != nil {
			t.Error(err)
		}
		if d := cmp.Diff(before, knobValues(t)); d != "" {
			t.Errorf("left changed (-before +after):\n%s", d)
		}
	}()
	steps, err := Steps(root, h, p)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = j.Apply(t.Context(), steps); err != nil {
		t.Fatal(err)
	}
	after, err := host.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	if after.Usable() != p.Housekeeping {
		t.Errorf("this test may still use CPUs %s, want %s", after.Usable(), p.Housekeeping)
	}
	again, err := Steps(root, after, p)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range again {
		now, err := journal.Ops()[s.Kind].Read(t.Context(), s)
		if err == nil && now != s.After && !s.Optional {
			t.Errorf("not in force: %s (reads %q)", s, now)
		}
	}
}

// knobValues are the host's settings that a lane changes.
func knobValues(t *testing.T) map[string]string {
	t.Helper()
	values := map[string]string{}
	for _, pattern := range []string{"/proc/irq/*/smp_affinity_list", "/proc/irq/default_smp_affinity",
		"/sys/devices/virtual/workqueue/cpumask", "/sys/devices/system/cpu/cpu*/power/pm_qos_resume_latency_us"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range paths {
			data, err := os.ReadFile(p)
			if err == nil {
				values[p] = string(data)
			}
		}
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "Cpus_allowed_list") {
			values["this process"] = line
		}
	}
	return values
}
