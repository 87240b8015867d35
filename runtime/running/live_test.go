package running

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/enforce/attached"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/knob"
	"isolane.dev/isolane/plan"
)

// session is a lane in force on this machine, with what is attached to it.
type session struct {
	host    host.Host
	lane    plan.Lane
	journal *journal.Journal
}

func open(t *testing.T, cpus cpuset.Set) *session {
	t.Helper()
	s := &session{host: read(t, host.Live())}
	s.lane = plan.Lane{Name: "attach-test", CPUs: cpus, MemoryNodes: s.host.MemoryNodes()}
	steps, err := knob.Groups(s.host, knob.Group{Name: s.lane.Name, CPUs: cpus, MemoryNodes: s.lane.MemoryNodes})
	if err != nil {
		t.Fatal(err)
	}
	if s.host.Kernel.Cgroup.CpusetV1 == nil && cpus != s.host.Usable() { // as enforce does; a partition leaves others a CPU
		dir, derr := knob.GroupDir(s.host, s.lane.Name)
		if derr != nil {
			t.Fatal(derr)
		}
		steps = append(steps, journal.Step{Kind: change.KindFile, Target: filepath.Join(dir, "cpuset.cpus.partition"), After: "isolated"})
	}
	if s.journal, err = journal.Open(filepath.Join(t.TempDir(), "run"), "test", change.Ops("/")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.undo(t) })
	if _, err = s.journal.Apply(t.Context(), steps); err != nil {
		t.Fatal(err)
	}
	return s
}

// undo takes all back, once.
func (s *session) undo(t *testing.T) {
	t.Helper()
	if s.journal == nil {
		return
	}
	if err := errors.Join(s.journal.Undo(context.Background()), s.journal.Close()); err != nil {
		t.Error(err)
	}
	s.journal = nil
}

// attach does the steps and checks that none is left.
func (s *session) attach(t *testing.T, group string, look func() ([]Thread, error)) []string {
	t.Helper()
	var told []string
	for i := range 2 {
		threads, err := look()
		if i == 1 && errors.Is(err, ErrEmpty) {
			break // cgroup v2: they are in the lane's
		}
		if err != nil {
			t.Fatal(err)
		}
		steps, warnings, err := missing(s.host, host.Live(), s.lane, threads, group)
		if err != nil {
			t.Fatal(err)
		}
		if i == 1 && len(steps) > 0 {
			t.Errorf("still to do: %v", steps)
		}
		told = warnings
		if refused, err := s.journal.Apply(t.Context(), steps); err != nil || len(refused) > 0 {
			t.Fatal(refused, err)
		}
	}
	return told
}

// until waits for what another process does.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s", what)
		case <-tick.C:
		}
	}
}

func start(t *testing.T, argv ...string) int {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Kill(-cmd.Process.Pid, unix.SIGKILL); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // killed
	})
	return cmd.Process.Pid
}

// allow sets the affinity of a thread.
func allow(t *testing.T, tid, cpu int) {
	t.Helper()
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(tid, &set); err != nil {
		t.Fatal(err)
	}
}

func tree(pid int) func() ([]Thread, error) {
	return func() ([]Thread, error) { return Tree(host.Live(), pid) }
}

// where are the CPUs and the scheduling of threads, and the cgroups of their processes.
func where(t *testing.T, look func() ([]Thread, error)) map[string]string {
	t.Helper()
	threads, err := look()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, th := range threads {
		cgroups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", th.TID))
		if err != nil {
			t.Fatal(err)
		}
		scheduling, err := change.SchedulingOf(th.TID)
		if err != nil {
			t.Fatal(err)
		}
		found[fmt.Sprint(th.TID)] = th.CPUs.String() + "\n" + scheduling.String() + "\n" + string(cgroups) // a name may come late
	}
	return found
}

// A tree goes into the lane and comes back to where it was, with the affinities that its threads had
// of their own; these stay where the lane has the CPUs.
func TestTreeOnThisHost(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.CgroupCpuset, hosttest.CPUs(2))
	usable := read(t, host.Live()).Usable()
	first := cpuset.Of(usable.First())
	for _, lane := range []cpuset.Set{cpuset.Of(usable.Last()), usable} {
		t.Run(lane.String(), func(t *testing.T) {
			pid := start(t, "sh", "-c", "sleep 1000 & wait")
			var child int
			until(t, "the child", func() bool {
				threads, err := Tree(host.Live(), pid)
				at := slices.IndexFunc(threads, func(th Thread) bool { return th.Comm == "sleep" })
				if err == nil && at >= 0 {
					child = threads[at].TID
				}
				return child > 0
			})
			allow(t, child, first.First())
			before := where(t, tree(pid))
			s := open(t, lane)
			s.attach(t, "", tree(pid))
			threads, err := Tree(host.Live(), pid)
			if err != nil {
				t.Fatal(err)
			}
			for _, th := range threads {
				want := lane
				if th.TID == child && first.IsSubsetOf(lane) {
					want = first
				}
				if th.CPUs != want {
					t.Errorf("%s may use CPUs %s, want %s", th.Comm, th.CPUs, want)
				}
			}
			allow(t, pid, lane.Last()) // what is asked for in the lane does not outlast it
			s.undo(t)
			if d := cmp.Diff(before, where(t, tree(pid))); d != "" {
				t.Errorf("left changed (-before +after):\n%s", d)
			}
		})
	}
}

// A child that has ended, for which nobody has waited, keeps nothing from its lane, before and after.
func TestNobodyWaits(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.CgroupCpuset, hosttest.CPUs(2))
	lane := cpuset.Of(read(t, host.Live()).Usable().Last())
	pid := start(t, "sh", "-c", "sleep 1001 & sleep 1002 & exec sleep 1000")
	var children []Thread
	until(t, "the children", func() bool {
		threads, err := Tree(host.Live(), pid)
		children = slices.DeleteFunc(threads, func(th Thread) bool { return th.PID == pid || th.Comm != "sleep" })
		return err == nil && len(children) == 2
	})
	end := func(child Thread) {
		if err := unix.Kill(child.TID, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		until(t, "its end", func() bool {
			stat, err := task.ReadStat(host.Live(), task.Dir(child.TID))
			return err == nil && stat.Dead()
		})
	}
	end(children[0])
	before := where(t, tree(pid))
	s := open(t, lane)
	s.attach(t, "", tree(pid))
	threads, err := Tree(host.Live(), pid)
	if err != nil || len(threads) != 2 || threads[0].CPUs != lane || threads[1].CPUs != lane {
		t.Errorf("in the lane: %+v, %v", threads, err)
	}
	end(children[1])
	left, err := s.journal.NotInForce(t.Context(), s.journal.Pending(), nil)
	for _, step := range left {
		if step.Kind == change.KindMember {
			t.Errorf("not in force: %+v", step)
		}
	}
	delete(before, fmt.Sprint(children[1].TID))
	s.undo(t)
	if d := cmp.Diff(before, where(t, tree(pid))); d != "" || err != nil {
		t.Errorf("left changed (-before +after):\n%s%v", d, err)
	}
}

// A process whose cgroup was removed meanwhile comes back to the one above.
func TestCgroupIsGone(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.CgroupCpuset, hosttest.CPUs(2))
	s := open(t, cpuset.Of(read(t, host.Live()).Usable().Last()))
	lane, err := knob.GroupDir(s.host, s.lane.Name)
	if err != nil {
		t.Fatal(err)
	}
	top := filepath.Dir(lane)
	gone := filepath.Join(top, "isolane-attach-test-gone")
	if err = os.Mkdir(gone, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if rerr := unix.Rmdir(gone); rerr != nil && !errors.Is(rerr, unix.ENOENT) {
			t.Error(rerr)
		}
	})
	pid := start(t, "sleep", "1000")
	for _, f := range [][2]string{{"cpuset.cpus", fmt.Sprint(s.host.Usable().First())}, {"cpuset.mems", s.host.MemoryNodes().String()}, {"cgroup.procs", fmt.Sprint(pid)}} {
		if err = os.WriteFile(filepath.Join(gone, f[0]), []byte(f[1]), 0); err != nil {
			t.Fatal(err)
		}
	}
	s.attach(t, "", tree(pid))
	if err = unix.Rmdir(gone); err != nil {
		t.Fatal(err)
	}
	s.undo(t)
	h, err := cgroup.HierarchyOf(host.Live(), top)
	if err != nil {
		t.Fatal(err)
	}
	if dir, err := h.Of(host.Live(), task.Dir(pid)); dir != top || err != nil {
		t.Errorf("it is in %s, %v, want %s", dir, err, top)
	}
}

// A cgroup v1 that did not have the lane's CPU, with another below it, comes home as it was, with what its
// threads had of their own.
func TestGroupComesHome(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.CgroupCpuset, hosttest.CPUs(2))
	s := open(t, cpuset.Of(read(t, host.Live()).Usable().Last()))
	if s.host.Kernel.Cgroup.CpusetV1 == nil {
		t.Skip("skipped: needs the cpuset controller of cgroup v1")
	}
	lane, err := knob.GroupDir(s.host, s.lane.Name)
	if err != nil {
		t.Fatal(err)
	}
	group := filepath.Join(filepath.Dir(lane), "isolane-attach-test-home")
	has := fmt.Sprint(s.host.Usable().First())
	for _, dir := range []string{group, group + "/below"} {
		if err = os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			until(t, "the end of "+dir, func() bool { return !errors.Is(unix.Rmdir(dir), unix.EBUSY) })
		})
		for _, f := range [][2]string{{"cpuset.cpus", has}, {"cpuset.mems", s.host.MemoryNodes().String()}} {
			if err = os.WriteFile(filepath.Join(dir, f[0]), []byte(f[1]), 0); err != nil {
				t.Fatal(err)
			}
		}
		pid := start(t, "sleep", "1000") // ends before its cgroup
		if err = os.WriteFile(filepath.Join(dir, "cgroup.procs"), fmt.Append(nil, pid), 0); err != nil {
			t.Fatal(err)
		}
	}
	look := func() ([]Thread, error) { return Cgroup(host.Live(), group) }
	before := where(t, look)
	s.attach(t, group, look)
	threads, err := look()
	if err != nil || len(threads) != 2 || threads[0].CPUs != s.lane.CPUs || threads[1].CPUs != s.lane.CPUs {
		t.Errorf("in the lane: %+v, %v", threads, err)
	}
	if left, herr := attached.Home(t.Context(), host.Live(), s.journal); herr != nil || len(left) > 0 {
		t.Error(left, herr)
	}
	for _, dir := range []string{group, group + "/below"} {
		if now, rerr := os.ReadFile(dir + "/cpuset.cpus"); rerr != nil || strings.TrimSpace(string(now)) != has {
			t.Errorf("%s has CPUs %s, want %s (%v)", dir, now, has, rerr)
		}
	}
	if d := cmp.Diff(before, where(t, look)); d != "" {
		t.Errorf("left changed (-before +after):\n%s", d)
	}
}

// The threads of a QEMU's virtual CPUs are found by name and by QMP, and get a CPU each, and alone the lane's
// policy; a thread that has one keeps it.
func TestQEMU(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.CgroupCpuset, hosttest.CPUs(2), hosttest.Program("qemu-system-x86_64"))
	usable := read(t, host.Live()).Usable()
	lane := cpuset.Of(usable.First(), usable.Last())
	for name, options := range map[string][]string{"names": {"-name", "x,debug-threads=on"}, "QMP": nil} {
		t.Run(name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "qmp")
			pid := start(t, slices.Concat([]string{"qemu-system-x86_64", "-accel", "tcg,thread=multi", "-smp", "2", "-display", "none",
				"-nodefaults", "-S", "-qmp", "unix:" + socket + ",server=on,wait=off"}, options)...)
			var vcpus map[int]int
			until(t, "QMP", func() (ok bool) {
				var err error
				vcpus, err = queryCPUs(pid, socket)
				return err == nil && len(vcpus) == 2
			})
			attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 3}
			if err := unix.SchedSetAttr(vcpus[1], &attr, 0); err != nil {
				t.Fatal(err)
			}
			before := where(t, tree(pid))
			s := open(t, lane)
			s.lane.Spec.Scheduling.Policy, s.lane.Spec.Scheduling.Priority = "fifo", 2
			warnings := s.attach(t, "", tree(pid))
			if len(warnings) != 1 || !strings.Contains(warnings[0], "the emulator's threads share CPUs") {
				t.Errorf("warnings %q", warnings)
			}
			threads, err := Tree(host.Live(), pid)
			if err != nil {
				t.Fatal(err)
			}
			for _, th := range threads {
				want, how := cpuset.Of(lane.First()), "other 0 1"
				switch th.NSTID {
				case vcpus[0]:
					how = "fifo 2"
				case vcpus[1]:
					want, how = cpuset.Of(lane.Last()), "rr 3"
				}
				scheduling, err := change.SchedulingOf(th.TID)
				if th.CPUs != want || scheduling.String() != how || err != nil {
					t.Errorf("thread %d (%s) has CPUs %s and %s, want %s and %s (vCPUs %v) %v", th.TID, th.Comm, th.CPUs, scheduling, want, how, vcpus, err)
				}
			}
			s.undo(t)
			if d := cmp.Diff(before, where(t, tree(pid))); d != "" {
				t.Errorf("left changed (-before +after):\n%s", d)
			}
		})
	}
}

// A container is attached by its cgroup, its runtime still knows it, and it gets back what it had.
func TestContainer(t *testing.T) {
	for _, runtime := range []string{"runc", "crun"} {
		t.Run(runtime, func(t *testing.T) {
			hosttest.Need(t, hosttest.Root, hosttest.CgroupCpuset, hosttest.CPUs(2), hosttest.Program(runtime), hosttest.Program("busybox"))
			lane := cpuset.Of(read(t, host.Live()).Usable().Last())
			id := "attach-test-of-isolane-" + runtime
			call := container(t, runtime, id)
			s := open(t, lane)
			group, err := Resolve(s.host, host.Live(), id)
			if err != nil {
				t.Fatal(err)
			}
			look := func() ([]Thread, error) { return Cgroup(host.Live(), group) }
			var threads []Thread
			until(t, "the container's program", func() bool { // runc's own has several threads
				threads, err = look()
				return err != nil || len(threads) == 1
			})
			if err != nil {
				t.Fatal(err)
			}
			allow(t, threads[0].TID, s.host.Usable().First())
			before := where(t, look)
			s.attach(t, group, look)
			line := "Cpus_allowed_list:\t" + lane.String() + "\n"
			if s.host.Kernel.Cgroup.CpusetV1 != nil { // what exec adds is in the lane, too
				line += line
			}
			out := call("exec", id, "/bin/busybox", "grep", "-h", "Cpus_allowed_list", "/proc/1/status", "/proc/self/status")
			if !strings.HasPrefix(out, line) {
				t.Errorf("in the container:\n%s\nwant\n%s", out, line)
			}
			allow(t, threads[0].TID, lane.Last())
			s.undo(t)
			if d := cmp.Diff(before, where(t, look)); d != "" {
				t.Errorf("left changed (-before +after):\n%s", d)
			}
		})
	}
}

// container starts one that sleeps, and returns how to call its runtime.
func container(t *testing.T, runtime, id string) func(args ...string) string {
	t.Helper()
	bundle := t.TempDir()
	call := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(runtime, append([]string{"--root", filepath.Join(bundle, "state")}, args...)...)
		cmd.Dir = bundle
		// A container that goes on keeps its outputs open, which a pipe would wait for.
		out, err := os.CreateTemp(bundle, "out")
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		cmd.Stdout, cmd.Stderr = out, out
		err = cmd.Run()
		text, rerr := os.ReadFile(out.Name())
		if strings.Contains(string(text), "cgroups in hybrid mode not supported") {
			t.Skipf("skipped: %s needs pure cgroup v1 or v2", runtime)
		}
		if err = errors.Join(err, rerr); err != nil {
			t.Fatalf("%s %v: %v: %s", runtime, args, err, text)
		}
		return string(text)
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	if err = errors.Join(os.MkdirAll(filepath.Join(bundle, "rootfs/bin"), 0o755),
		os.WriteFile(filepath.Join(bundle, "rootfs/bin/busybox"), program, 0o755)); err != nil {
		t.Fatal(err)
	}
	call("spec")
	var config map[string]any
	file := filepath.Join(bundle, "config.json")
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, &config)
	}
	if err != nil {
		t.Fatal(err)
	}
	process := config["process"].(map[string]any)
	process["terminal"], process["args"] = false, []string{"/bin/busybox", "sleep", "1000"}
	config["linux"].(map[string]any)["cgroupsPath"] = "/" + id
	if data, err = json.Marshal(config); err == nil {
		err = os.WriteFile(file, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	call("run", "--detach", id)
	t.Cleanup(func() { call("delete", "--force", id) })
	return call
}
