package workload

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

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/hub/desired"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/unit"
)

// What a command starts when it is told to end is ended too, and no processes of others.
func TestKill(t *testing.T) {
	file := filepath.Join(t.TempDir(), "session")
	began := exec.CommandContext(t.Context(), "sh", "-c", "trap 'sleep 1000 & exit 0' TERM; echo; sleep 1000 & wait; wait")
	began.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := began.StdoutPipe()
	if err == nil {
		err = began.Start()
	}
	if err == nil {
		_, err = out.Read(make([]byte, 1)) // it has set its trap
	}
	if err == nil {
		err = writeSession(file, began.Process.Pid)
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := readSession(file)
	for _, wrong := range []session{{}, {"other", s.ID, s.Start}, {s.Boot, s.ID, s.Start - 1}, {s.Boot, os.Getpid(), s.Start}} {
		if pids, perr := wrong.processes(); len(pids) > 0 || perr != nil {
			t.Errorf("%+v: found %v, %v", wrong, pids, perr)
		}
	}
	if pids, perr := s.processes(); len(pids) == 0 || errors.Join(err, perr) != nil {
		t.Errorf("%+v: found %v, %v, %v", s, pids, err, perr)
	}
	late := false // a process that came after the command itself
	err = kill(t.Context(), func() ([]int, error) {
		pids, perr := s.processes()
		late = late || len(pids) > 0 && !slices.Contains(pids, s.ID)
		return pids, perr
	})
	if pids, perr := s.processes(); errors.Join(err, perr) != nil || len(pids) > 0 || !late {
		t.Errorf("%v are left, %v, %v; one came late: %t", pids, err, perr, late)
	}
	_ = began.Wait() // it has written into a pipe that nobody reads
	if err = os.WriteFile(file, []byte(`{"boot":"`), 0o600); err == nil {
		s, err = readSession(file)
	}
	if err != nil || s != (session{}) {
		t.Errorf("a file that was cut short: %+v, %v", s, err)
	}
}

// A session of which nothing is left is forgotten, because its id may become a stranger's.
func TestSessionForgotten(t *testing.T) {
	p := newInstances(t.TempDir())
	if err := os.WriteFile(p.sessionFile("web"), []byte(`{"boot":"other","id":1,"start":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (command{Instances: p, name: "web"}).end(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(p.sessionFile("web")); !errors.Is(err, os.ErrNotExist) {
		t.Error("it is known still:", err)
	}
}

// What a lane lacks: a missing declared part refuses a reservation, the rest is reported.
func TestLack(t *testing.T) {
	of := func(s enforce.Subject, c enforce.Cause, name string) enforce.RefusedStep {
		return enforce.RefusedStep{Subject: s, Cause: c, Name: name, Reason: "why"}
	}
	got := putResult{Applied: lanes.Applied{Refused: []enforce.RefusedStep{of(enforce.Thread, enforce.Bound, "kworker"), of(enforce.Interrupt, enforce.Bound, "7"),
		of(enforce.AnySetting, enforce.Errno, "governor")}, Warnings: []string{"lane a: slow", "lane ab: slow"},
		Waiting: []enforce.Waiting{{Lanes: []string{"b", "a"}, Settings: []string{"x"}, Reason: "r"}, {Lanes: []string{"b"}}}}}
	got.sortRefused("a", []enforce.RefusedStep{of(enforce.Partition, enforce.NotExclusive, "p"), of(enforce.Partition, enforce.OldKernel, "q")}, []string{"pages"})
	if want := []string{"pages", "p: why"}; !slices.Equal(got.missing, want) {
		t.Errorf("missing: %q, expected %q", got.missing, want)
	}
	want := []string{of(enforce.Partition, enforce.OldKernel, "q").String(), "governor: why", "lane a: slow", got.Waiting[0].String()}
	if !slices.Equal(got.rest, want) {
		t.Errorf("the rest: %q, expected %q", got.rest, want)
	}
}

// running returns the processes whose command line ends in this way, once `want` of them may use only the
// lane's CPUs.
func running(t *testing.T, p *Instances, i desired.Instance, program string, want int) (pids []int, users []string) {
	t.Helper()
	var seen string
	ends := strings.ReplaceAll(program, " ", "\x00") + "\x00"
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); {
		err := p.Ensure(t.Context(), "u", i)
		if _, starts := errors.AsType[api.NotYet](err); err != nil && !starts {
			said, _ := os.ReadFile(p.logFile(i.Name)) // a service has none
			t.Fatalf("%v: %s", err, said)
		}
		cpus := cpusOf(t, p, i)
		pids, users, seen = nil, nil, ""
		all, err := task.Processes(host.Live())
		if err != nil {
			t.Fatal(err)
		}
		for _, pid := range all {
			argv, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // it may have ended
			if !strings.HasSuffix(string(argv), ends) {
				continue
			}
			may, aerr := task.Affinity(pid)
			status, serr := task.ReadStatus(host.Live(), task.Dir(pid))
			if errors.Join(aerr, serr) != nil {
				continue
			}
			user, _ := status.Value("Uid")
			seen += fmt.Sprintf("process %d of %s on %s; ", pid, user, may)
			if may == cpus {
				pids, users = append(pids, pid), append(users, strings.Fields(user)[0])
			}
		}
		if len(pids) == want {
			return pids, users
		}
		select {
		case <-t.Context().Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	t.Fatalf("expected %d processes %s in the lane, found %s", want, program, seen)
	return nil, nil
}

// cpusOf returns the CPUs of an Instance's lane.
func cpusOf(t *testing.T, p *Instances, i desired.Instance) cpuset.Set {
	t.Helper()
	l, err := lanes.Look(p.lanes)
	if err != nil {
		t.Fatal(err)
	}
	placed, err := l.Lane(i.Name)
	if err != nil {
		t.Fatal(err)
	}
	return placed.CPUs
}

func instance(t *testing.T, spec api.InstanceSpec) desired.Instance {
	t.Helper()
	spec.Lane = json.RawMessage(`{"cpus":{"count":1}}`)
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	return desired.Instance{Name: "acme.hub-test", Generation: 1, Spec: text}
}

// ownPodman makes Podman keep everything in a folder of this test, with an image that has only busybox.
func ownPodman(t *testing.T) (image string) {
	t.Helper()
	hosttest.Need(t, hosttest.Root, hosttest.CgroupCpuset, hosttest.CPUs(2), hosttest.Program("podman"), hosttest.Program("crun"),
		hosttest.Program("busybox"))
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	storage := fmt.Sprintf("[storage]\ndriver = \"vfs\"\ngraphroot = %q\nrunroot = %q\n", dir+"/graph", dir+"/run")
	t.Setenv("CONTAINERS_STORAGE_CONF", write("storage.conf", storage))
	// Podman's own limits are higher than a test without CAP_SYS_RESOURCE may set.
	t.Setenv("CONTAINERS_CONF", write("containers.conf", fmt.Sprintf("[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]\n[engine]\nlock_type = \"file\"\nstatic_dir = %q\n"+
		"tmp_dir = %q\nvolume_path = %q\nevents_logger = \"none\"\ncgroup_manager = \"cgroupfs\"\n", dir+"/static", dir+"/tmp", dir+"/volumes")))
	image = "localhost/isolane-test:1"
	script := fmt.Sprintf("mkdir -p %[1]s/root/bin %[1]s/root/tmp && cp $(command -v busybox) %[1]s/root/bin/busybox && "+
		"tar -C %[1]s/root -c . | podman import -q -c 'CMD [\"/bin/busybox\",\"sleep\",\"98765\"]' - %[2]s", dir, image)
	out, err := exec.CommandContext(t.Context(), "sh", "-c", script).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err = os.Stat("/run/crun"); errors.Is(err, os.ErrNotExist) { // crun keeps that folder, empty
		t.Cleanup(func() { _ = os.Remove("/run/crun") })
	}
	t.Cleanup(func() { // what Podman has started to clean up may still be at work in the folder
		if rmOut, rmErr := exec.CommandContext(context.Background(), "podman", "rm", "--all", "--force").CombinedOutput(); rmErr != nil {
			t.Errorf("%v: %s", rmErr, rmOut)
		}
		for end := time.Now().Add(time.Minute); ; {
			names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
			if !slices.ContainsFunc(names, func(name string) bool {
				argv, _ := os.ReadFile(name) // it may have ended
				return strings.Contains(string(argv), dir)
			}) {
				return
			}
			if time.Now().After(end) {
				t.Error("Podman does not end")
				return
			}
			<-time.After(50 * time.Millisecond)
		}
	})
	return image
}

// A container of an image on the host runs in its lane with all its processes, as its tenant's user. It is
// restarted when it ends, and nothing of it is left.
func TestContainer(t *testing.T) {
	image := ownPodman(t)
	p := newInstances(t.TempDir())
	missing := instance(t, api.InstanceSpec{Workload: api.Workload{Image: "localhost/none:1"}, Tenant: "acme"})
	if err := p.Ensure(t.Context(), "u", missing); err == nil || !strings.Contains(err.Error(), "localhost/none:1 is not on this host: expected podman pull") {
		t.Errorf("an image that is not there: %v", err)
	}
	if out, err := exec.CommandContext(t.Context(), "podman", "run", "--rm", "--cgroups=disabled", "--runtime=crun",
		"--network=host", "--log-driver=none", image, "/bin/busybox", "true").CombinedOutput(); strings.Contains(string(out), "hybrid mode not supported") {
		t.Skip("skipped: crun needs pure cgroup v1 or v2")
	} else if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const two = "/bin/busybox yes for-the-test > /dev/null & echo $ISOLANE_CPUS; exec /bin/busybox yes for-the-test > /dev/null"
	i := instance(t, api.InstanceSpec{Workload: api.Workload{Image: image, Command: []string{"/bin/busybox", "sh", "-c", two}}, Tenant: "acme"})
	t.Cleanup(func() {
		if err := endResult(p, "u", i); err != nil {
			t.Error(err)
		}
	})
	pids, users := running(t, p, i, "yes for-the-test", 2)
	if slices.Max(users) != "1879048300" || slices.Min(users) != "1879048300" {
		t.Errorf("users of the container: %v", users)
	}
	cpus := cpusOf(t, p, i)
	if said, rerr := os.ReadFile(p.logFile(i.Name)); rerr != nil || strings.TrimSpace(string(said)) != cpus.String() {
		t.Errorf("it printed %q, expected its CPUs %s, %v", said, cpus, rerr)
	}
	_, in, err := p.laneGroup(i.Name)
	if err != nil || !slices.Contains(in, pids[0]) || !slices.Contains(in, pids[1]) {
		t.Errorf("processes %v are not among those of the lane, %v, %v", pids, in, err)
	}
	p.beganAt = map[string]time.Time{} // long ago
	if err = syscall.Kill(pids[0], syscall.SIGKILL); err == nil {
		err = syscall.Kill(pids[1], syscall.SIGKILL)
	}
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := running(t, p, i, "yes for-the-test", 2); slices.Contains(again, pids[0]) || slices.Contains(again, pids[1]) {
		t.Errorf("processes %v, expected others than %v", again, pids)
	}
	i = instance(t, api.InstanceSpec{Workload: api.Workload{Image: image}, Tenant: "acme"})
	running(t, p, i, "sleep 98765", 1)
	if err = endResult(p, "u", i); err != nil {
		t.Fatal(err)
	}
	left, err := exec.CommandContext(t.Context(), "podman", "ps", "--all", "--quiet").CombinedOutput()
	if err != nil || len(left) > 0 {
		t.Errorf("containers are left: %s, %v", left, err)
	}
	if _, _, err = p.laneGroup(i.Name); !isNoLane(err) {
		t.Errorf("the lane is still in force: %v", err)
	}
}

// A service runs in its lane from its first instruction on, each time it is started, and ends with its
// Instance. A service that others have started is left alone.
func TestService(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.CgroupCpuset, hosttest.CPUs(2), hosttest.Systemd)
	const name, file = "isolane-hub-test.service", "/run/systemd/system/isolane-hub-test.service"
	systemctl := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(context.Background(), "systemctl", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("systemctl %v: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	// A file has what it may use when it begins.
	first := filepath.Join(t.TempDir(), "first")
	script := fmt.Sprintf("grep ^Cpus_allowed_list /proc/self/status >> %s; yes for-the-test > /dev/null & exec yes for-the-test > /dev/null", first)
	if err := os.WriteFile(file, fmt.Appendf(nil, "[Service]\nExecStart=/bin/sh -c %q\n", script), 0o600); err != nil {
		t.Fatal(err)
	}
	systemctl("daemon-reload")
	t.Cleanup(func() {
		systemctl("stop", name)
		if err := os.Remove(file); err != nil {
			t.Error(err)
		}
		systemctl("daemon-reload")
	})
	p := newInstances(t.TempDir())
	p.lanes = lanes.Options{} // as the drop-in has it
	p.users.Root = []string{"acme"}
	i := instance(t, api.InstanceSpec{Workload: api.Workload{Service: name, Root: true}, Tenant: "acme"})
	systemctl("start", name)
	if err := p.Ensure(t.Context(), "u", i); err == nil || !strings.Contains(err.Error(), name+" is active and not the hub's: expected systemctl disable") {
		t.Errorf("a service that others have started: %v", err)
	}
	systemctl("stop", name)
	if err := os.Remove(first); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := endResult(p, "u", i); err != nil {
			t.Error(err)
		}
	})
	running(t, p, i, "yes for-the-test", 2)
	cpus := cpusOf(t, p, i)
	systemctl("kill", "--signal=KILL", name) // it ends, and the agent starts it
	p.beganAt = map[string]time.Time{}
	running(t, p, i, "yes for-the-test", 2)
	systemctl("restart", name) // by a person
	running(t, p, i, "yes for-the-test", 2)
	text, err := os.ReadFile(first)
	if err != nil {
		t.Fatal(err)
	}
	began := strings.Fields(string(text))
	for at := 1; at < len(began); at += 2 {
		if set, perr := cpuset.Parse(began[at]); perr != nil || set != cpus {
			t.Errorf("it began with CPUs %s, expected %s, %v", began[at], cpus, perr)
		}
	}
	if len(began) != 6 {
		t.Errorf("it began %d times, expected 3", len(began)/2)
	}
	if err = endResult(p, "u", i); err != nil {
		t.Fatal(err)
	}
	if state := systemctl("show", "-P", "ActiveState", name); state != "inactive" {
		t.Errorf("it is %s", state)
	}
	if _, err = os.Stat("/run/systemd/system/" + name + ".d"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the drop-in is left, %v", err)
	}
	if _, _, err = p.laneGroup(i.Name); !isNoLane(err) {
		t.Errorf("the lane is still in force: %v", err)
	}
}

// A service that systemd restarts again and again, as when its lane cannot be attached, does not count as
// running.
func TestServiceNotYet(t *testing.T) {
	s := unit.Service{Name: "web.service", State: "activating", SubState: "auto-restart"}
	err := checkStarted(s)
	if _, notYet := errors.AsType[api.NotYet](err); !notYet || !strings.Contains(err.Error(), "is activating (auto-restart): expected active") {
		t.Error(err)
	}
	if s.State = "active"; checkStarted(s) != nil {
		t.Error(checkStarted(s))
	}
}
