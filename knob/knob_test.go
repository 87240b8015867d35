package knob

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"golang.org/x/tools/txtar"

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
	files, err := txtar.ParseFile("testdata/machine.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files.Files {
		root[f.Name] = &fstest.MapFile{Data: f.Data}
	}
	root["proc/mounts"] = &fstest.MapFile{Data: []byte(mounts + "\n")}
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

// spreaderSteps start the process that has the lane's sockets poll.
func spreaderSteps(mount string) string {
	dir := mount + "/isolane-spreader~"
	text := "cgroup " + dir + " -> present\n"
	if mount == "/sys/fs/cgroup/cpuset" {
		text += "attribute " + dir + "/cpuset.cpus -> 0-1\nattribute " + dir + "/cpuset.mems -> 0\n"
	}
	return text + "spreader " + dir + " -> running\n"
}

const knobSteps = `file /sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages -> 20
file /proc/irq/24/smp_affinity_list -> 0-1 (optional)
file /proc/irq/25/smp_affinity_list -> 0-1 (optional)
file /proc/irq/26/smp_affinity_list -> 2 (optional)
file /proc/irq/default_smp_affinity -> 00000003
file /sys/devices/virtual/net/br0/queues/rx-0/rps_cpus -> 3 (optional)
file /proc/sys/kernel/watchdog_cpumask -> 0-1 (optional)
file /sys/devices/system/cpu/cpu2/power/pm_qos_resume_latency_us -> n/a
file /sys/devices/system/cpu/cpufreq/policy2/scaling_governor -> performance (optional)
file /proc/sys/net/core/busy_poll -> 1000
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
		"file " + dir + "cpuset.sched_load_balance -> 0\n" + spreaderSteps("/sys/fs/cgroup/cpuset") + knobSteps
	if d := cmp.Diff(want, lines(got)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// Nothing is set for the whole host where the kernel can say it of one epoll.
func TestBusyPollOfLanesAlone(t *testing.T) {
	root, h := machine(t, "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0")
	for release, want := range map[string]int{"6.8.12": 1, "6.9.0": 0} {
		h.Kernel.Release = release
		steps, err := busyPoll(View{Root: root, Host: h}, placement())
		if err != nil || len(steps) != want {
			t.Errorf("%s: found %v (%v), expected %d steps", release, steps, err, want)
		}
	}
}

// Processes that another manager has put on a lane's CPU alone are in the way of the lane; those that come later get the
// CPUs of housekeeping.
func TestOthersOnTheLane(t *testing.T) {
	root, h := machine(t, "cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0")
	root["sys/fs/cgroup/cpuset/docker/alone/cgroup.procs"] = &fstest.MapFile{Data: []byte("15\n")}
	if _, err := Steps(View{Root: root, Host: h}, placement()); err == nil || !strings.Contains(err.Error(), "docker/alone") {
		t.Error(err)
	}
	v := View{Root: root}
	v.SetHost(h, placement())
	got, err := Steps(v, placement())
	if want := "file /sys/fs/cgroup/cpuset/docker/alone/cpuset.cpus -> 0-1 (optional)\n"; err != nil || !strings.Contains(lines(got), want) {
		t.Errorf("%v, expected %s in\n%s", err, want, lines(got))
	}
}

// A pod's cgroup that was made while lanes were in force lacks their CPUs: a container in it could not have them.
func TestAboveAttached(t *testing.T) {
	root, h := machine(t, "cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0")
	const dir = "/sys/fs/cgroup/cpuset/docker"
	for name, cpus := range map[string]string{"/cpuset.cpus": "0-3", "/pod/cpuset.cpus": "0-1", "/pod/main/cpuset.cpus": "0-1",
		"/pod/pause/cpuset.cpus": "0-1", "/few/cpuset.cpus": "0", "/few/main/cpuset.cpus": "0"} {
		root[dir[1:]+name] = &fstest.MapFile{Data: []byte(cpus)}
	}
	for group, want := range map[string]string{"/pod/main": "file " + dir + "/pod/cpuset.cpus -> 0-3\n", "/few/main": ""} {
		steps, err := Steps(View{Root: root, Host: h, Attached: []string{dir + group}}, placement())
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for line := range strings.Lines(lines(steps)) {
			if strings.Contains(line, dir) && strings.Contains(line, "cpuset.cpus") && !strings.Contains(line, "/one/") {
				got += line
			}
		}
		if got != want {
			t.Errorf("%s: %s", group, got)
		}
	}
}

func TestStepsCgroupV2(t *testing.T) {
	root, h := machine(t, "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0")
	const units = `unit init.scope:AllowedCPUs -> 0-1
unit system.slice:AllowedCPUs -> 0-1
unit user.slice:AllowedCPUs -> 1
unit machine.slice:AllowedCPUs -> 0-1
`
	groups := `controller /sys/fs/cgroup:cpuset -> cpuset
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
` + spreaderSteps("/sys/fs/cgroup") + knobSteps
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
			`unit system.slice/web.service:AllowedMemoryNodes -> 0
controller /sys/fs/cgroup:cpuset -> cpuset
controller system.slice:cpuset -> cpuset
file system.slice/web.service/cpuset.mems -> 0
file system.slice/cpuset.cpus.exclusive -> 0,2-3
file system.slice/web.service/cpuset.cpus.exclusive -> 2-3
file system.slice/web.service/cpuset.cpus.partition -> root (optional)
`},
	} {
		steps, err := Cpusets(View{Root: root, Host: h, Own: test.own}, plan.Placement{Lanes: test.lanes})
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
	if _, err := Steps(View{Root: root, Host: h}, placement()); !errors.Is(err, errNoCpuset) {
		t.Errorf("got %v", err)
	}
}

// busy is a kernel that reads nothing of one frequency policy.
type busy struct {
	fstest.MapFS
	policy string
}

func (b busy) ReadFile(name string) ([]byte, error) {
	if strings.HasPrefix(name, b.policy+"/") {
		return nil, &fs.PathError{Op: "read", Path: name, Err: unix.EBUSY}
	}
	return b.MapFS.ReadFile(name)
}

// A frequency policy whose CPUs are all offline is left out, and the others are not.
func TestGovernorsOffline(t *testing.T) {
	root, h := machine(t, "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0")
	const policy = "sys/devices/system/cpu/cpufreq/policy"
	root[policy+"3/affected_cpus"], root[policy+"3/scaling_governor"] = &fstest.MapFile{Data: []byte("\n")}, &fstest.MapFile{}
	root[policy+"4/affected_cpus"], root[policy+"4/scaling_governor"] = &fstest.MapFile{}, &fstest.MapFile{}
	steps, err := governors(View{Root: busy{root, policy + "4"}, Host: h}, placement())
	if err != nil || lines(steps) != "file /"+policy+"2/scaling_governor -> performance (optional)\n" {
		t.Errorf("%s, %v", lines(steps), err)
	}
}
