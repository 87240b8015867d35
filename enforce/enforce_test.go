package enforce

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
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

// fields are those of a stat file behind what a test cares about.
const fields = " 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"

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
		"proc/mounts":                                                           mounts,
		"sys/fs/cgroup/cgroup.controllers":                                      "cpuset cpu memory",
		"proc/interrupts":                                                       "     CPU0 CPU1 CPU2 CPU3\n 24: 1 0 0 0 IO-APIC 5-edge nic\n 25: 0 0 9 0 PCI-MSI 1-edge disk\n 26: 0 0 0 0 PCI-MSI 2-edge elsewhere\n",
		"proc/irq/24/smp_affinity_list":                                         "0-3",
		"proc/irq/25/smp_affinity_list":                                         "2",
		"proc/irq/26/smp_affinity_list":                                         "0",
		"proc/irq/default_smp_affinity":                                         "0000000f",
		"proc/sys/net/core/busy_poll":                                           "0",
		"proc/sys/net/core/busy_read":                                           "0",
		"sys/devices/virtual/workqueue/cpumask":                                 "f",
		"sys/devices/virtual/workqueue/writeback/cpumask":                       "f",
		"sys/devices/system/cpu/cpu3/cpuidle/state0/disable":                    "0", // an older kernel: no latency to ask for
		"sys/devices/system/cpu/cpu3/cpuidle/state1/disable":                    "0",
		"sys/devices/system/cpu/cpufreq/policy0/affected_cpus":                  "0 1",
		"sys/devices/system/cpu/cpufreq/policy0/scaling_governor":               "powersave",
		"sys/devices/system/cpu/cpufreq/policy2/affected_cpus":                  "2 3",
		"sys/devices/system/cpu/cpufreq/policy2/scaling_governor":               "powersave",
		"sys/devices/virtual/net/br0/queues/rx-0/rps_cpus":                      "f",
		"sys/devices/virtual/net/br0/queues/tx-0/xps_cpus":                      "4",
		"proc/sys/kernel/osrelease":                                             "6.8.0",
		"proc/sys/kernel/watchdog_cpumask":                                      "0-3",
		"proc/sys/kernel/sched_rt_runtime_us":                                   "950000",
		"sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages": "8",
		"sys/fs/cgroup/cgroup.subtree_control":                                  "",
		"proc/swaps":                                                            "Filename Type Size Used Priority\n/dev/sda2 partition 1024 0 -2",
		"sys/fs/cgroup/cpuset/cpuset.sched_load_balance":                        "1",
		// a cpuset of another manager, one in it, and one that would be empty
		"sys/fs/cgroup/cpuset/docker/cpuset.cpus":                    "0-3",
		"sys/fs/cgroup/cpuset/docker/one/cpuset.cpus":                "1-2",
		"sys/fs/cgroup/cpuset/docker/alone/cpuset.cpus":              "2",
		"sys/devices/system/cpu/cpu2/power/pm_qos_resume_latency_us": "0",
		// systemd, with slices that have all CPUs, two of the housekeeping ones, one, and none
		"run/systemd/system/a.slice":              "",
		"sys/fs/cgroup/init.scope/cpuset.cpus":    "",
		"sys/fs/cgroup/system.slice/cpuset.cpus":  "0-2",
		"sys/fs/cgroup/user.slice/cpuset.cpus":    "1-3",
		"sys/fs/cgroup/machine.slice/cpuset.cpus": "3",
		// a movable kernel thread, one bound to its CPU by flag, one by mask, and a program
		"proc/12/stat":   "12 (kworker/u8:0) I 2 0 0 0 -1 2097152 0 0 0 0 0 0 0 0 20 0 1 0 77 0" + fields,
		"proc/12/status": "Cpus_allowed_list:\t0-3\n",
		"proc/13/stat":   "13 (migration/2) S 2 0 0 0 -1 69206016 0 0 0 0 0 0 0 0 20 0 1 0 78 0" + fields,
		"proc/13/status": "Cpus_allowed_list:\t2\n",
		"proc/14/stat":   "14 (rcuog (x) 2) S 2 0 0 0 -1 2097152 0 0 0 0 0 0 0 0 20 0 1 0 79 0" + fields,
		"proc/14/status": "Cpus_allowed_list:\t2\n",
		"proc/16/stat":   "16 (irq/24-nic) S 2 0 0 0 -1 2097152 0 0 0 0 0 0 0 0 20 0 1 0 81 0" + fields,
		"proc/16/status": "Cpus_allowed_list:\t0-3\n",
		"proc/15/stat":   "15 (bash) S 1 0 0 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 80 0" + fields,
		"proc/15/status": "Cpus_allowed_list:\t0-3\n",
	} {
		root[path] = &fstest.MapFile{Data: []byte(content + "\n")}
	}
	root["sys/class/net/br0"] = &fstest.MapFile{Mode: fs.ModeSymlink, Data: []byte("../../devices/virtual/net/br0")}
	h, err := host.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	return root, h
}

// placement is a lane with a CPU, the CPU's sibling, hugepages and a queue of its device.
func placement() plan.Placement {
	l := plan.Lane{Name: "a", CPUs: cpuset.Of(2), Idle: cpuset.Of(3), MemoryNodes: cpuset.Of(0), BusyPoll: true,
		Hugepages:  []plan.Hugepages{{Node: 0, PageBytes: 2 << 20, Pages: 20, Reserve: 12}},
		Interrupts: []plan.Interrupt{{IRQ: 26, CPU: 2}}}
	l.Spec.Scheduling.Policy, l.Spec.Scheduling.Priority = "fifo", 1
	l.Spec.CPUs.Count = 1
	return plan.Placement{APIVersion: plan.APIVersion, Kind: plan.Kind, Housekeeping: cpuset.MustParse("0-1"), Lanes: []plan.Lane{l}}
}

const masks = `affinities threads -> 2-3
task 12:77 -> 0-1 (optional)
file /sys/devices/virtual/workqueue/cpumask -> 3
file /sys/devices/virtual/workqueue/writeback/cpumask -> 3 (optional)
`

const knobSteps = `file /sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages -> 20
file /proc/irq/24/smp_affinity_list -> 0-1 (optional)
file /proc/irq/25/smp_affinity_list -> 0-1 (optional)
file /proc/irq/26/smp_affinity_list -> 2 (optional)
file /proc/irq/default_smp_affinity -> 00000003
file /sys/devices/virtual/net/br0/queues/rx-0/rps_cpus -> 3 (optional)
file /sys/devices/virtual/net/br0/queues/tx-0/xps_cpus -> 0 (optional)
file /proc/sys/kernel/watchdog_cpumask -> 0-1 (optional)
file /sys/devices/system/cpu/cpu2/power/pm_qos_resume_latency_us -> n/a
file /sys/devices/system/cpu/cpu3/cpuidle/state1/disable -> 1
file /sys/devices/system/cpu/cpufreq/policy2/scaling_governor -> performance (optional)
file /proc/sys/net/core/busy_poll -> 50
`

func TestStepsCgroupV1(t *testing.T) {
	root, h := machine(t, "cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\ncgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0")
	got, err := Steps(View{Root: root, Host: h}, placement())
	if err != nil {
		t.Fatal(err)
	}
	const dir = "/sys/fs/cgroup/cpuset/"
	want := masks +
		"cgroup " + dir + "isolane-housekeeping -> present\n" +
		"attribute " + dir + "isolane-housekeeping/cpuset.cpus -> 0-1\n" +
		"attribute " + dir + "isolane-housekeeping/cpuset.mems -> 0\n" +
		"cgroup " + dir + "isolane-a -> present\n" +
		"attribute " + dir + "isolane-a/cpuset.cpus -> 2\n" +
		"attribute " + dir + "isolane-a/cpuset.mems -> 0\n" +
		"cgroup " + dir + "isolane-a~siblings -> present\n" +
		"attribute " + dir + "isolane-a~siblings/cpuset.cpus -> 3\n" +
		"attribute " + dir + "isolane-a~siblings/cpuset.mems -> 0\n" +
		"cgroup /sys/fs/cgroup/memory/isolane-a -> present\n" +
		"attribute /sys/fs/cgroup/memory/isolane-a/memory.swappiness -> 0\n" +
		"attribute " + dir + "isolane-a/cpuset.memory_migrate -> 1\n" +
		"attribute " + dir + "isolane-a/cpuset.sched_load_balance -> 0\n" +
		"attribute " + dir + "isolane-a~siblings/cpuset.memory_migrate -> 1\n" +
		"attribute " + dir + "isolane-a~siblings/cpuset.sched_load_balance -> 0\n" +
		"file " + dir + "docker/one/cpuset.cpus -> 1 (optional)\n" +
		"file " + dir + "docker/cpuset.cpus -> 0-1 (optional)\n" +
		"tasks /sys/fs/cgroup/cpuset -> " + dir + "isolane-housekeeping\n" +
		"file " + dir + "cpuset.sched_load_balance -> 0\n" + knobSteps
	if d := cmp.Diff(want, lines(got)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// Processes that another manager has put on a lane's CPU alone are not left there.
func TestOthersOnTheLane(t *testing.T) {
	root, h := machine(t, "cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0")
	root["sys/fs/cgroup/cpuset/docker/alone/cgroup.procs"] = &fstest.MapFile{Data: []byte("15\n")}
	if _, err := Steps(View{Root: root, Host: h}, placement()); err == nil || !strings.Contains(err.Error(), "docker/alone") {
		t.Error(err)
	}
}

func TestStepsCgroupV2(t *testing.T) {
	root, h := machine(t, "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0")
	const units = `unit init.scope:AllowedCPUs -> 0-1
unit system.slice:AllowedCPUs -> 0-1
unit user.slice:AllowedCPUs -> 1
unit machine.slice:AllowedCPUs -> 0-1
`
	const groups = `controller /sys/fs/cgroup:cpuset -> cpuset
cgroup /sys/fs/cgroup/isolane-a -> present
attribute /sys/fs/cgroup/isolane-a/cpuset.cpus -> 2
attribute /sys/fs/cgroup/isolane-a/cpuset.mems -> 0
cgroup /sys/fs/cgroup/isolane-a~siblings -> present
attribute /sys/fs/cgroup/isolane-a~siblings/cpuset.cpus -> 3
attribute /sys/fs/cgroup/isolane-a~siblings/cpuset.mems -> 0
controller /sys/fs/cgroup:memory -> memory
attribute /sys/fs/cgroup/isolane-a/memory.swap.max -> 0
file /sys/fs/cgroup/isolane-a/cpuset.cpus.partition -> isolated (optional)
file /sys/fs/cgroup/isolane-a~siblings/cpuset.cpus.partition -> isolated (optional)
` + knobSteps
	for _, want := range []string{masks + units + groups, masks + groups} {
		got, err := Steps(View{Root: root, Host: h}, placement())
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, lines(got)); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		delete(root, "run/systemd/system/a.slice") // another process 1
	}
}

// A lane that is balanced is another kind of partition; lanes that share CPUs are in one; a workload's own
// cgroup is one below cgroups that are none, and systemd is told.
func TestKindsOfPartition(t *testing.T) {
	root, h := machine(t, "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0")
	root["proc/swaps"].Data = []byte("Filename Type Size Used Priority\n")
	root["sys/fs/cgroup/system.slice/cpuset.cpus.exclusive"] = &fstest.MapFile{Data: []byte("0\n")}
	two := func(name string, cpus string, share int) plan.Lane {
		l := plan.Lane{Name: name, CPUs: cpuset.MustParse(cpus), MemoryNodes: cpuset.Of(0)}
		l.Spec.CPUs.Count, l.Spec.CPUs.Share = l.CPUs.Len(), share
		return l
	}
	for _, test := range []struct {
		name  string
		lanes []plan.Lane
		own   map[string]string
		want  string
	}{
		{"balanced", []plan.Lane{two("a", "2-3", 0)}, nil, `cgroup isolane-a -> present
attribute isolane-a/cpuset.cpus -> 2-3
attribute isolane-a/cpuset.mems -> 0
file isolane-a/cpuset.cpus.partition -> root (optional)
`},
		{"shared", []plan.Lane{two("a", "2-3", 2), two("b", "3", 2)}, nil, `cgroup isolane-shared~ -> present
attribute isolane-shared~/cpuset.cpus -> 2-3
attribute isolane-shared~/cpuset.mems -> 0
controller isolane-shared~:cpuset -> cpuset
cgroup isolane-shared~/isolane-a -> present
attribute isolane-shared~/isolane-a/cpuset.cpus -> 2-3
attribute isolane-shared~/isolane-a/cpuset.mems -> 0
cgroup isolane-shared~/isolane-b -> present
attribute isolane-shared~/isolane-b/cpuset.cpus -> 3
attribute isolane-shared~/isolane-b/cpuset.mems -> 0
file isolane-shared~/cpuset.cpus.partition -> root (optional)
`},
		{"own", []plan.Lane{two("a", "2-3", 0)}, map[string]string{"a": "/sys/fs/cgroup/system.slice/web.service"},
			`unit system.slice/web.service:AllowedCPUs -> 2-3
controller /sys/fs/cgroup:cpuset -> cpuset
controller system.slice:cpuset -> cpuset
file system.slice/cpuset.cpus.exclusive -> 0,2-3
file system.slice/web.service/cpuset.mems -> 0
file system.slice/web.service/cpuset.cpus.exclusive -> 2-3
file system.slice/web.service/cpuset.cpus -> 2-3
file system.slice/web.service/cpuset.cpus.partition -> root (optional)
`},
	} {
		steps, err := cpusets(View{Root: root, Host: h, Own: test.own}, plan.Placement{Lanes: test.lanes})
		if err != nil {
			t.Fatal(err)
		}
		got := strings.TrimPrefix(lines(steps), "controller /sys/fs/cgroup:cpuset -> cpuset\n")
		if d := cmp.Diff(test.want, strings.ReplaceAll(got, "/sys/fs/cgroup/", "")); d != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, d)
		}
	}
}

// What an administrator has set for good comes back with the next daemon-reload.
func TestUnitSetForGood(t *testing.T) {
	root, h := machine(t, "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0")
	root["etc/systemd/system.control/system.slice.d/50-AllowedCPUs.conf"] = &fstest.MapFile{}
	_, err := Steps(View{Root: root, Host: h}, placement())
	if err == nil || !strings.HasSuffix(err.Error(), "set-property system.slice AllowedCPUs=0-1") {
		t.Error(err)
	}
	root["sys/fs/cgroup/system.slice/cpuset.cpus"].Data = []byte("1\n")
	if _, err = Steps(View{Root: root, Host: h}, placement()); err != nil {
		t.Error(err)
	}
}

func TestNoCpuset(t *testing.T) {
	root, h := machine(t, "proc /proc proc rw 0 0")
	if _, err := Steps(View{Root: root, Host: h}, placement()); !errors.Is(err, ErrNoCpuset) {
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
	j, err := journal.Open(filepath.Join(t.TempDir(), "run"), "test", Ops("/"))
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
	steps, err := Steps(View{Root: root, Host: h}, p)
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
	again, err := Steps(View{Root: root, Host: after}, p)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range again {
		inForce, now, err := j.InForce(t.Context(), s)
		if err == nil && !inForce && !s.Optional {
			t.Errorf("not in force: %s (reads %q)", s, now)
		}
	}
}

// knobValues are the host's settings that a lane changes.
func knobValues(t *testing.T) map[string]string {
	t.Helper()
	values, err := hosttest.ReadState()
	if err != nil {
		t.Fatal(err)
	}
	values = values.WithoutWorkers()
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

func writeJSON(t *testing.T, file string, v any) {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err = os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
