package running

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/enforce/attached"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/knob"
	"isolane.dev/isolane/plan"
)

const mountsV1 = `31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
`
const mountsV2 = "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"

// fields are those of a stat file behind what a test cares about.
const fields = " 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"

// machine has 8 CPUs, two of each core, a lane's cgroup and a container's.
func machine(t *testing.T, v2 bool) fstest.MapFS {
	t.Helper()
	root := hosttest.Machine{Packages: 1, CoresPerPackage: 4, ThreadsPerCore: 2}.FS()
	files := map[string]string{
		"proc/self/mountinfo": mountsV1, "proc/self/mounts": "cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\ncgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n",
	}
	top, effective := "sys/fs/cgroup/cpuset", "cpuset.effective_cpus"
	if v2 {
		files = map[string]string{"proc/self/mountinfo": mountsV2, "proc/self/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
			"sys/fs/cgroup/cgroup.controllers": "cpuset cpu"}
		top, effective = "sys/fs/cgroup", "cpuset.cpus.effective"
	}
	for dir, cpus := range map[string]string{"": "0-7", "/isolane-a": "2-5", "/docker": "0-7", "/docker/c1": "0-3", "/docker/c1/init": "0-1"} {
		for name, content := range map[string]string{effective: cpus, "cpuset.cpus": cpus, "cpuset.mems": "0", "cgroup.procs": ""} {
			files[top+dir+"/"+name] = content
		}
	}
	write(root, files)
	return root
}

func write(root fstest.MapFS, files map[string]string) {
	for name, content := range files {
		root[name] = &fstest.MapFile{Data: []byte(content + "\n")}
	}
}

// process adds one; its threads have the ids after its own.
func process(root fstest.MapFS, pid, parent int, cgroup, cmdline string, comms ...string) {
	for i, comm := range comms {
		tid := pid + i
		for _, dir := range []string{fmt.Sprintf("proc/%d/task/%d", pid, tid), fmt.Sprintf("proc/%d", pid)} {
			if i > 0 && !strings.Contains(dir, "task") {
				continue
			}
			write(root, map[string]string{
				dir + "/stat":   fmt.Sprintf("%d (%s) S %d 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 %d 0"+fields, tid, comm, parent, 1000+tid),
				dir + "/status": fmt.Sprintf("NSpid:\t%d\t%d\nCpus_allowed_list:\t0-7\n", tid, i+1),
				dir + "/cgroup": "4:memory:/x\n3:cpuset:" + cgroup + "\n0::" + cgroup,
			})
		}
	}
	root[fmt.Sprintf("proc/%d/cmdline", pid)] = &fstest.MapFile{Data: []byte(strings.ReplaceAll(cmdline, " ", "\x00") + "\x00")}
}

func tids(threads []Thread) (ids []int) {
	for _, t := range threads {
		ids = append(ids, t.TID)
	}
	return ids
}

func TestTree(t *testing.T) {
	root := machine(t, false)
	process(root, 100, 1, "/", "/usr/bin/app --x", "app (main) x", "worker")
	process(root, 50, 100, "/", "child", "child") // the numbers of processes begin again
	process(root, 60, 50, "/", "grandchild", "grandchild")
	process(root, 70, 1, "/", "other", "other")
	threads, err := Tree(root, 100)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]int{50, 60, 100, 101}, tids(threads)); d != "" {
		t.Errorf("threads (-want +got):\n%s", d)
	}
	want := Thread{TID: 100, PID: 100, NSTID: 1, Start: 1100, Comm: "app (main) x", Program: "app", CPUs: cpuset.MustParse("0-7"), parent: 1}
	if got := threads[2]; got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if _, err := Tree(root, 99); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a process that is not there: %v", err)
	}
	if _, err := Tree(root, 1); err == nil {
		t.Error("took init")
	}
}

func TestCgroup(t *testing.T) {
	root := machine(t, false)
	process(root, 100, 1, "/docker/c1", "app", "app", "worker")
	process(root, 110, 100, "/docker/c1/init", "child", "child")
	process(root, 120, 2, "/docker/c1", "", "vhost-100")
	write(root, map[string]string{
		"sys/fs/cgroup/cpuset/docker/c1/cgroup.procs":      "100\n120",
		"sys/fs/cgroup/cpuset/docker/c1/init/cgroup.procs": "110",
		"sys/fs/cgroup/cpuset/docker/outside/cgroup.procs": "0",
		"proc/120/task/120/stat":                           "120 (vhost-100) S 2 0 0 0 -1 2097152 0 0 0 0 0 0 0 0 20 0 1 0 1 0" + fields,
	})
	threads, err := Cgroup(root, "/sys/fs/cgroup/cpuset/docker/c1")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]int{100, 101, 110}, tids(threads)); d != "" {
		t.Errorf("threads (-want +got):\n%s", d)
	}
	for _, dir := range []string{"isolane-a", "none", "docker/outside"} {
		if got, err := Cgroup(root, "/sys/fs/cgroup/cpuset/"+dir); err == nil {
			t.Errorf("%s: %v", dir, got)
		}
	}
}

func TestResolve(t *testing.T) {
	root := machine(t, false)
	root["sys/fs/cgroup/cpuset/link"] = &fstest.MapFile{Data: []byte("docker"), Mode: fs.ModeSymlink}
	h := read(t, root)
	const want = "/sys/fs/cgroup/cpuset/docker/c1"
	for _, group := range []string{"docker/c1", "docker/c1/", want} {
		if got, err := Resolve(h, root, group); got != want || err != nil {
			t.Errorf("%s: %s, %v", group, got, err)
		}
	}
	for _, group := range []string{"", "/", ".", "docker/../docker", "link/c1", "none", "docker/c1/cgroup.procs",
		"/sys/fs/cgroup/memory/x", "/sys/fs/cgroup/cpuset", "/sys/fs/cgroup/cpusets", "isolane-a", "isolane-a/b"} {
		if got, err := Resolve(h, root, group); err == nil {
			t.Errorf("%q: took %s", group, got)
		}
	}
}

func read(t *testing.T, root fs.FS) host.Host {
	t.Helper()
	h, err := host.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func lines(steps []journal.Step) string {
	var b strings.Builder
	for _, s := range steps {
		fmt.Fprintf(&b, "%s %s -> %s", s.Kind, strings.TrimPrefix(s.Target, "/sys/fs/cgroup/cpuset/"), s.After)
		if s.Optional {
			b.WriteString(" (optional)")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// missing are the steps for a group, or for a process tree, which is "".
func missing(h host.Host, root fs.FS, l plan.Lane, threads []Thread, group string) ([]journal.Step, []string, error) {
	dir, err := knob.GroupDir(h, l.Name)
	if err != nil {
		return nil, nil, err
	}
	return Steps(h, root, l, dir, attached.Workload{Group: group, Journal: "attach-a-1"}, threads)
}

func laneA(roles map[string]string) plan.Lane {
	l := plan.Lane{Name: "a", CPUs: cpuset.MustParse("2-5"), Roles: map[string]cpuset.Set{}}
	for name, cpus := range roles {
		l.Roles[name] = cpuset.MustParse(cpus)
	}
	return l
}

// Siblings of the machine are 0,1; 2,3; 4,5; 6,7.
func TestRoles(t *testing.T) {
	for name, c := range map[string]struct {
		cmdline string
		comms   []string
		roles   map[string]string
		cpus    string // of the lane, 2-5 where empty
		want    string // CPUs of the threads, "" for the lane's
		warning string
	}{
		"QEMU": {"qemu-system-x86_64", []string{"qemu-system-x86", "call_rcu", "CPU 1/KVM", "CPU 0/KVM", "IO mon_iothread", "vhost-100"},
			nil, "", "4-5 4-5 3 2 4-5 4-5", ""},
		"QEMU, roles": {"qemu-system-x86_64", []string{"qemu-system-x86", "CPU 0/KVM", "CPU 1/KVM", "CPU 2/KVM"},
			map[string]string{"emulator": "2", "vcpu": "3-5"}, "", "2 3 4 5", ""},
		"QEMU, no CPU for the emulator": {"qemu-system-x86_64", []string{"qemu-system-x86", "CPU 0/TCG", "CPU 1/TCG"},
			nil, "4-5", "4 4 5", "the emulator's threads share CPUs 4"},
		"QEMU, too few CPUs": {"qemu-system-x86_64", []string{"qemu-system-x86", "CPU 0/TCG", "CPU 1/TCG", "CPU 2/TCG"},
			map[string]string{"vcpu": "2-3"}, "", "4-5 2 3 2", "3 vCPUs share CPUs 2-3"},
		"QEMU, one thread": {"kvm", []string{"kvm", "ALL CPUs/TCG"}, nil, "", "3-5 2", ""},
		"QEMU, no names":   {"/usr/bin/kvm -m 1G", []string{"kvm", "kvm"}, nil, "", " ", "no QMP socket"},
		"QEMU, dead QMP":   {"kvm -qmp unix:/none/q,server=on", []string{"kvm", "kvm"}, nil, "", " ", "QMP at /none/q: "},
		"Firecracker":      {"firecracker", []string{"firecracker", "fc_api", "fc_vcpu 0"}, nil, "", "3-5 3-5 2", ""},
		"DPDK": {"dpdk-testpmd", []string{"dpdk-testpmd", "rte_mp_handle", "lcore-worker-4", "lcore-worker-3"},
			nil, "", "2 2 4 3", ""},
		"DPDK 23": {"l3fwd", []string{"l3fwd", "dpdk-intr", "dpdk-worker9"}, map[string]string{"main": "5", "worker": "3"}, "", "5 5 3", ""},
		"DPDK, one CPU": {"l3fwd", []string{"l3fwd", "dpdk-worker9"}, nil, "3", "3 3",
			"lane a has no CPU besides 3"},
		"VPP": {"/usr/bin/vpp -c x", []string{"vpp_main", "vpp_wk_0", "vpp_wk_1", "vpp_stats"}, nil, "", "2 3 4 2", ""},
		"OVS": {"ovs-vswitchd", []string{"ovs-vswitchd", "pmd-c03/id:9", "lcore-worker-3"}, nil, "", "  ", ""},
		"OVS in its lane": {"ovs-vswitchd", []string{"ovs-vswitchd", "pmd-c03/id:9", "pmd-c04/id:10", "pmd-c07/id:11", "revalidator5"},
			map[string]string{"pmd": "3-4"}, "", "2 3 4 2 2", ""},
		"any": {"nginx: worker", []string{"nginx", "CPU watcher"}, nil, "", " ", ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := machine(t, false)
			process(root, 100, 1, "/", c.cmdline, c.comms...)
			threads, err := Tree(root, 100)
			if err != nil {
				t.Fatal(err)
			}
			l := laneA(c.roles)
			if c.roles["pmd"] != "" {
				l.Spec.Switch = "ovs-dpdk"
			}
			if c.cpus != "" {
				l.CPUs = cpuset.MustParse(c.cpus)
			}
			want, warnings := roles(read(t, root), root, l, threads)
			var got []string
			for _, th := range threads {
				got = append(got, want[th.TID].cpus.String())
			}
			if d := cmp.Diff(c.want, strings.Join(got, " ")); d != "" {
				t.Errorf("CPUs (-want +got):\n%s", d)
			}
			if text := strings.Join(warnings, "\n"); !strings.Contains(text, c.warning) || (text == "") != (c.warning == "") {
				t.Errorf("warnings %q, want %q", text, c.warning)
			}
		})
	}
}

// A guest's siblings are siblings, also where their numbers are far apart.
func TestByCore(t *testing.T) {
	id := func(n int) *int { return &n }
	var h host.Host
	for cpu := range 8 {
		h.CPUs = append(h.CPUs, host.CPU{ID: cpu, Online: true, Core: id(cpu % 4)})
	}
	m := mapping{host: h}
	if d := cmp.Diff([]int{1, 5, 2, 6}, m.byCore(cpuset.MustParse("1-2,5-6"))); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestStepsTree(t *testing.T) {
	root := machine(t, false)
	process(root, 100, 1, "/", "vpp", "vpp_main", "vpp_wk_0")
	process(root, 110, 100, "/isolane-a", "helper", "helper")
	process(root, 120, 100, "/docker", "helper", "helper")
	l := laneA(nil)
	threads, err := Tree(root, 100)
	if err != nil {
		t.Fatal(err)
	}
	steps, warnings, err := missing(read(t, root), root, l, threads, "")
	if err != nil || len(warnings) > 0 {
		t.Fatal(warnings, err)
	}
	want := `member 100:1100 -> /sys/fs/cgroup/cpuset/isolane-a
member 120:1120 -> /sys/fs/cgroup/cpuset/isolane-a (optional)
task 100:1100 -> 2 (optional)
task 101:1101 -> 3
`
	if d := cmp.Diff(want, lines(steps)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestStepsContainerV1(t *testing.T) {
	root := machine(t, false)
	process(root, 100, 1, "/docker/c1", "app", "app")
	threads, err := Tree(root, 100)
	if err != nil {
		t.Fatal(err)
	}
	h, group := read(t, root), "/sys/fs/cgroup/cpuset/docker/c1"
	steps, _, err := missing(h, root, laneA(nil), threads, group)
	if err != nil {
		t.Fatal(err)
	}
	want := `cpuset docker/c1/cpuset.cpus -> 0-5
cpuset docker/c1/init/cpuset.cpus -> 0-5
cpuset docker/c1/init/cpuset.cpus -> 2-5
cpuset docker/c1/cpuset.cpus -> 2-5
`
	if d := cmp.Diff(want, lines(steps)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	// A machine that swaps: the lane has a memory cgroup, and the container keeps its own.
	write(root, map[string]string{"sys/fs/cgroup/memory/isolane-a/memory.swappiness": "0", "sys/fs/cgroup/memory/x/memory.swappiness": "60"})
	if steps, _, err = missing(h, root, laneA(nil), threads, group); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want+"file /sys/fs/cgroup/memory/x/memory.swappiness -> 0\n", lines(steps)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	write(root, map[string]string{"sys/fs/cgroup/cpuset/docker/cpuset.cpus": "0-3"})
	if _, _, err := missing(h, root, laneA(nil), threads, group); err == nil || !strings.Contains(err.Error(), "docker/cpuset.cpus: expected 2-5 of lane a") {
		t.Errorf("CPUs that the cgroup above does not have: %v", err)
	}
	if _, _, err := missing(h, root, laneA(nil), threads, "/sys/fs/cgroup/cpuset/isolane-a"); err == nil {
		t.Error("attached the lane to itself")
	}
}

// cpusets are those of cgroup v1 as the kernel keeps them: each has no more than the one above, and no less than
// those below. A test's kill comes at one of the writes.
type cpusets struct {
	root         fstest.MapFS
	writes, kill *int
}

func (cpusets) Check(journal.Step) error { return nil }

func (c cpusets) Read(_ context.Context, s journal.Step) (string, error) {
	text, err := fs.ReadFile(c.root, s.Target[1:])
	return strings.TrimSpace(string(text)), err
}

func (c cpusets) Write(_ context.Context, s journal.Step, value string) error {
	if *c.writes++; *c.writes == *c.kill {
		panic("killed")
	}
	file, want := s.Target[1:], cpuset.MustParse(value)
	for name := range c.root {
		if path.Base(name) != path.Base(file) || name == file {
			continue
		}
		has, err := cpuset.Read(c.root, name)
		switch {
		case err != nil:
			return err
		case strings.HasPrefix(path.Dir(file), path.Dir(name)+"/") && !want.IsSubsetOf(has):
			return fmt.Errorf("%s %s: %w", s.Target, value, unix.EACCES)
		case strings.HasPrefix(path.Dir(name), path.Dir(file)+"/") && !has.IsSubsetOf(want):
			return fmt.Errorf("%s %s: %w", s.Target, value, unix.EBUSY)
		}
	}
	write(c.root, map[string]string{file: value})
	return nil
}

// Cpusets that did not have the lane's CPUs come home from the lane, also after a kill on the way.
func TestHomeV1(t *testing.T) {
	lane := laneA(nil) // CPUs 2-5
	lane.MemoryNodes = cpuset.Of(1)
	for _, c := range []struct{ name, group, init, worker string }{
		{"none has any", "0-1,6", "0-1", "0"},
		{"the first has all", "0-7", "0-1,6", "0-1"},
		{"the first has some", "0-3", "0-2", "1"},
		{"all have all", "0-7", "0-5", "2-5"},
	} {
		kill := 0
		for killed := true; killed; kill++ {
			root, writes := machine(t, false), 0
			const group = "sys/fs/cgroup/cpuset/docker/c1"
			for dir, cpus := range map[string]string{"": c.group, "/init": c.init, "/init/worker": c.worker} {
				write(root, map[string]string{group + dir + "/cpuset.cpus": cpus, group + dir + "/cpuset.mems": "0"})
			}
			write(root, map[string]string{"sys/fs/cgroup/cpuset/cpuset.mems": "0-1", "sys/fs/cgroup/cpuset/docker/cpuset.mems": "0-1",
				"sys/fs/cgroup/cpuset/isolane-a/cpuset.mems": "1"})
			before := maps.Clone(root)
			steps, _, err := missing(read(t, root), root, lane, nil, "/"+group)
			if err != nil {
				t.Fatal(err)
			}
			dir, never := filepath.Join(t.TempDir(), "run"), 0
			kernel := cpusets{root, &writes, &never}
			ops := map[string]journal.Op{change.KindFile: kernel, change.KindCpuset: kernel}
			j, err := journal.Open(dir, "test", ops)
			if err == nil {
				_, err = j.Apply(t.Context(), steps)
			}
			if in := string(root[group+"/init/worker/cpuset.cpus"].Data); err != nil || in != "2-5\n" {
				t.Fatal(c.name, in, err)
			}
			writes, *kernel.kill = 0, kill
			killed = home(t, root, j)
			*kernel.kill = 0
			if err = j.Close(); err == nil {
				j, err = journal.Open(dir, "test", ops)
			}
			if err != nil {
				t.Fatal(err)
			}
			if home(t, root, j); len(j.Pending()) > 0 {
				t.Errorf("%s, killed at write %d: left %v", c.name, kill, j.Pending())
			}
			if d := cmp.Diff(before, root); d != "" {
				t.Errorf("%s, killed at write %d (-before +after):\n%s", c.name, kill, d)
			}
			killed = killed || kill == 0
			if err = j.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if kill < 4 {
			t.Errorf("%s: killed at %d writes only", c.name, kill-2)
		}
	}
}

// home says whether the test's kill has come on the way.
func home(t *testing.T, root fs.FS, j *journal.Journal) (killed bool) {
	t.Helper()
	defer func() { killed = recover() != nil }()
	if left, err := attached.Home(t.Context(), root, j); err != nil || len(left) > 0 {
		t.Error(left, err)
	}
	return false
}

func TestStepsV2(t *testing.T) {
	root := machine(t, true)
	process(root, 100, 1, "/docker/c1", "app", "app")
	h := read(t, root)
	threads, err := Tree(root, 100)
	if err != nil {
		t.Fatal(err)
	}
	steps, warnings, err := missing(h, root, laneA(nil), threads, "/sys/fs/cgroup/docker/c1")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff("cgroup /sys/fs/cgroup/isolane-a/isolane-attach-a-1 -> present\nmember 100:1100 -> /sys/fs/cgroup/isolane-a/isolane-attach-a-1\n", lines(steps)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], "MOVED out of cgroup /sys/fs/cgroup/docker/c1") {
		t.Errorf("warnings %q", warnings)
	}
	l := laneA(nil)
	l.Name = "b"
	if _, _, err := missing(h, root, l, threads, ""); err == nil || !strings.Contains(err.Error(), "apply it first") {
		t.Errorf("a lane that is not applied: %v", err)
	}
}

// A lane in the workload's own cgroup is missing nothing when each thread has the CPUs of its role.
func TestStepsOwn(t *testing.T) {
	root := machine(t, true)
	const group = "/docker/c1"
	process(root, 100, 1, group, "qemu-system-x86_64", "qemu-system-x86", "CPU 0/TCG")
	write(root, map[string]string{"sys/fs/cgroup" + group + "/cgroup.procs": "100"})
	l := laneA(map[string]string{"emulator": "5", "vcpu": "2-4"})
	h, at := read(t, root), attached.Workload{Group: "/sys/fs/cgroup" + group, Own: true, Journal: "attach-a-1"}
	own := func() string {
		threads, err := Cgroup(root, at.Group)
		if err != nil {
			t.Fatal(err)
		}
		steps, _, err := Steps(h, root, l, at.Group, at, threads)
		if err != nil {
			t.Fatal(err)
		}
		return lines(steps)
	}
	if found := own(); found != "task 100:1100 -> 5 (optional)\ntask 101:1101 -> 2\n" {
		t.Errorf("at first: %s", found)
	}
	for tid, cpus := range map[int]string{100: "5", 101: "2"} {
		status := fmt.Sprintf("NSpid:\t%d\nCpus_allowed_list:\t%s\n", tid, cpus)
		write(root, map[string]string{fmt.Sprintf("proc/100/task/%d/status", tid): status})
	}
	if found := own(); found != "" {
		t.Errorf("then: %s", found)
	}
}

// A service's cgroup is that of its first process, also where others of it have lost their parent; not that of
// what somebody has started there later.
func TestOwnGroup(t *testing.T) {
	for name, c := range map[string]struct {
		group, marker string
		want          map[int]bool
	}{
		"service":             {"/system.slice/a.service", "run/systemd/system/a.slice", map[int]bool{100: true, 110: false, 120: false}},
		"service, no systemd": {"/system.slice/a.service", "run/x", map[int]bool{100: false, 110: false, 120: false}},
		"scope":               {"/system.slice/a.scope", "run/systemd/system/a.slice", map[int]bool{100: false, 110: false, 120: false}},
	} {
		root := machine(t, true)
		process(root, 100, 1, c.group, "first", "first")
		process(root, 110, 100, c.group, "child", "child")
		process(root, 120, 1, c.group, "orphan", "orphan")
		write(root, map[string]string{"sys/fs/cgroup" + c.group + "/cgroup.procs": "100\n110\n120", c.marker: ""})
		for pid, want := range c.want {
			if _, own := OwnGroup(read(t, root), root, pid); own != want {
				t.Errorf("%s, process %d: own is %v", name, pid, own)
			}
		}
	}
}

// libvirt's: below systemd's scope a domain of threaded cgroups. The processes move as a whole, and leave one
// behind that keeps the scope.
func TestStepsThreaded(t *testing.T) {
	root := machine(t, true)
	const scope = "/machine.slice/qemu.scope"
	process(root, 100, 1, scope+"/libvirt/emulator", "qemu-system-x86_64", "qemu", "CPU 0/TCG", "IO iothread1")
	process(root, 110, 1, scope+"/isolane-100", "sleep", "sleep")
	write(root, map[string]string{
		"proc/100/task/101/cgroup":                                    "0::" + scope + "/libvirt/vcpu0",
		"sys/fs/cgroup" + scope + "/cgroup.procs":                     "",
		"sys/fs/cgroup" + scope + "/libvirt/cgroup.procs":             "100\n110",
		"sys/fs/cgroup" + scope + "/libvirt/cgroup.type":              "domain threaded",
		"sys/fs/cgroup" + scope + "/libvirt/emulator/cgroup.type":     "threaded",
		"sys/fs/cgroup" + scope + "/libvirt/vcpu0/cgroup.type":        "threaded",
		"sys/fs/cgroup" + scope + "/libvirt/isolane-7/cgroup.threads": "110", // another lane's keeper
		"run/systemd/system/x":                                        "",
	})
	h := read(t, root)
	for _, group := range []string{"/sys/fs/cgroup" + scope, "/sys/fs/cgroup" + scope + "/libvirt"} {
		threads, err := Cgroup(root, group)
		if err != nil {
			t.Fatal(err)
		}
		steps, warnings, err := missing(h, root, laneA(nil), threads, group)
		if err != nil {
			t.Fatal(err)
		}
		want := `cgroup /sys/fs/cgroup/isolane-a/isolane-attach-a-1 -> present
cgroup /sys/fs/cgroup/machine.slice/qemu.scope/isolane-100 -> present
keeper /sys/fs/cgroup/machine.slice/qemu.scope/isolane-100 /sys/fs/cgroup/isolane-a/isolane-attach-a-1 -> running
member 100:1100 -> /sys/fs/cgroup/isolane-a/isolane-attach-a-1
task 100:1100 -> 3-5 (optional)
task 101:1101 -> 2
task 102:1102 -> 3-5 (optional)
`
		if d := cmp.Diff(want, lines(steps)); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		if len(warnings) != 1 || !strings.Contains(warnings[0], "MOVED out of cgroup /sys/fs/cgroup"+scope+"/libvirt") {
			t.Errorf("warnings %q", warnings)
		}
	}
	if _, err := Cgroup(root, "/sys/fs/cgroup"+scope+"/libvirt/vcpu0"); err == nil || !strings.Contains(err.Error(), "found a threaded one") {
		t.Errorf("a threaded cgroup: %v", err)
	}
}

// A process whose threads are in several cgroups of v1 could not be put back.
func TestSplitProcess(t *testing.T) {
	root := machine(t, false)
	process(root, 100, 1, "/docker", "app", "app", "worker")
	write(root, map[string]string{"proc/100/task/101/cgroup": "3:cpuset:/docker/c1"})
	threads, err := Tree(root, 100)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := missing(read(t, root), root, laneA(nil), threads, ""); err == nil || !strings.Contains(err.Error(), "attach its cgroup instead") {
		t.Errorf("got %v", err)
	}
}

func FuzzReadThread(f *testing.F) {
	f.Add("NSpid:\t12\t3\nCpus_allowed_list:\t0-3\n")
	f.Fuzz(func(t *testing.T, status string) {
		root := fstest.MapFS{"proc/7/stat": {Data: []byte("7 (x) S 1 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 1 0" + fields)},
			"proc/7/status": {Data: []byte(status)}}
		th, err := readThread(root, "proc/7")
		if err == nil && (!strings.Contains(status, "Cpus_allowed_list:") || th.TID != 7) {
			t.Errorf("%q: %+v", status, th)
		}
	})
}
