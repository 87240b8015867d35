package workload

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/hub/desired"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/plan"
)

func TestMain(m *testing.M) {
	hosttest.Main(m, func() (bool, error) {
		if len(os.Args) > 1 && os.Args[1] == "attach" { // as the drop-in of a service does
			return true, Attach(context.Background(), lanes.Options{}, os.Args[2:])
		}
		return lanes.Entry(context.Background(), lanes.Options{}, os.Args)
	})
}

func newInstances(dir string) *Instances {
	return &Instances{lanes: lanes.Options{Dir: filepath.Join(dir, "lanes")}, dir: dir, users: Users{First: 1879048300, Last: 1879048301}, ended: make(chan struct{}, 1),
		beganAt: map[string]time.Time{}, outcomes: map[string]Outcome{}, retriedAt: map[string]time.Time{}, ending: map[string]chan error{},
		storeErrors: map[string]error{}}
}

func sleeping(t *testing.T, seconds int) desired.Instance {
	t.Helper()
	spec := fmt.Sprintf(`{"lane":{"cpus":{"count":1}},"command":["sleep","%d"]}`, seconds)
	return desired.Instance{Name: "hub-test", Generation: 1, Spec: json.RawMessage(spec)}
}

// waitForPID waits until one process is in the lane, and returns it.
func waitForPID(t *testing.T, p *Instances, i desired.Instance, other int) int {
	t.Helper()
	for {
		if err := p.Ensure(t.Context(), "u", i); err != nil && !isNotYet(err) && p.storeErrors[i.Name] == nil {
			t.Fatal(err)
		}
		if _, pids, err := p.laneGroup(i.Name); err == nil && len(pids) == 1 && pids[0] != other {
			return pids[0]
		} else if err != nil && !isNoLane(err) || len(pids) > 1 {
			t.Fatal(pids, err)
		}
		select {
		case <-t.Context().Done():
			t.Fatal("it does not begin")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// endResult returns the result of ending an Instance, once that is no longer under way.
func endResult(p *Instances, uid string, i desired.Instance) error {
	for {
		err := p.End(context.Background(), uid, i)
		if !isNotYet(err) {
			return err
		}
		<-p.ended
	}
}

func isNotYet(err error) bool {
	_, is := errors.AsType[api.NotYet](err)
	return is
}

// A process runs in its lane, outlives its agent, is restarted only for another spec, and ends with its lane.
func TestProcesses(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.CgroupCpuset, hosttest.CPUs(2))
	dir := t.TempDir()
	p, i := newInstances(dir), sleeping(t, 1000)
	first := waitForPID(t, p, i, 0)
	t.Cleanup(func() {
		if err := endResult(p, "u", i); err != nil {
			t.Error(err)
		}
	})
	comes := func() string {
		s, err := task.ReadStatus(host.Live(), task.Dir(first))
		if err != nil {
			t.Fatal(err)
		}
		name, _ := s.Value("Name")
		user, _ := s.Value("Uid")
		return name + " of " + user
	}
	for end := time.Now().Add(time.Minute); !strings.HasPrefix(comes(), "sleep of 1879048300\t1879048300\t1879048300"); {
		if time.Now().After(end) { // by then it has become its program
			t.Fatalf("it is %s", comes())
		}
	}
	p = newInstances(dir) // the next agent
	rooted := i
	rooted.Spec = bytes.Replace(i.Spec, []byte(`{`), []byte(`{"root":true,"tenant":"acme",`), 1)
	if err := p.Ensure(t.Context(), "u", rooted); err == nil || !strings.Contains(err.Error(), "spec.root: ") {
		t.Errorf("a command that is to be root: %v", err)
	}
	if again := waitForPID(t, p, i, 0); again != first {
		t.Errorf("process %d runs, expected still %d", again, first)
	}
	large := i
	large.Spec = bytes.Replace(i.Spec, []byte(`"count":1`), []byte(`"count":1000`), 1)
	err := p.Ensure(t.Context(), "u", large)
	if _, refused := errors.AsType[*plan.Refusal](err); !refused || !strings.HasPrefix(err.Error(), "what ran before goes on: ") {
		t.Errorf("a lane that does not fit: %v", err)
	}
	if err = syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.beganAt = map[string]time.Time{} // long ago
	for first = 0; first == 0; {       // what ran before is restarted, even now
		err = p.Ensure(t.Context(), "u", large)
		if _, in, gerr := p.laneGroup(i.Name); gerr == nil && len(in) == 1 && strings.HasPrefix(err.Error(), "what ran before goes on: ") {
			first = in[0]
		} else if _, refused := errors.AsType[*plan.Refusal](err); !refused || gerr != nil {
			t.Fatal(err, gerr)
		}
	}
	if again := waitForPID(t, p, i, 0); again != first {
		t.Errorf("process %d runs, expected still %d", again, first)
	}
	releaseByHand(t, p, i.Name)
	p.beganAt = map[string]time.Time{} // long ago
	third := waitForPID(t, p, i, first)
	if _, err = os.Stat(fmt.Sprint("/proc/", first)); err == nil {
		t.Errorf("process %d goes on beside %d: its lane was released by hand", first, third)
	}
	i = sleeping(t, 2000)
	second := waitForPID(t, p, i, third)
	releaseByHand(t, p, i.Name)
	if err = p.Restore(t.Context(), map[string]desired.Instance{"u": i}); err != nil {
		t.Error(err)
	}
	if _, in, gerr := p.laneGroup(i.Name); gerr != nil || len(in) > 0 {
		t.Errorf("expected its lane in force again, before anything is in it: %v, %v", in, gerr)
	}
	if err := endResult(p, "u", i); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(fmt.Sprint("/proc/", second)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("process %d is still there: %v", second, err)
	}
	if left, err := filepath.Glob(p.recordFile("*") + "*"); err != nil || len(left) > 0 {
		t.Errorf("files %v are left, %v", left, err)
	}
	if _, err := os.Stat(p.privateDir(i.Name)); err == nil {
		t.Error("its folder is left")
	}
	if _, _, err := p.laneGroup(i.Name); !isNoLane(err) {
		t.Errorf("the lane is still in force: %v", err)
	}
}

// releaseByHand releases a lane, as a person at the site does.
func releaseByHand(t *testing.T, p *Instances, name string) {
	t.Helper()
	l, _, err := lanes.OpenPatiently(t.Context(), p.lanes)
	if err == nil {
		_, err = l.Release(t.Context(), name)
		err = errors.Join(err, l.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Lanes that were in force before a reboot are restored together: the first, which may have any CPU, leaves
// the CPU to the other that names it.
func TestRestore(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.CgroupCpuset, hosttest.CPUs(3))
	p := newInstances(t.TempDir())
	seen, err := lanes.Look(p.lanes)
	if err != nil {
		t.Fatal(err)
	}
	anywhere, err := api.Lane("first", json.RawMessage(`{"cpus":{"count":1}}`))
	if err != nil {
		t.Fatal(err)
	}
	alone, _, err := seen.Want([]lane.Lane{anywhere}, false)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]desired.Instance{}
	for uid, cpus := range map[string]string{"a": `"count":1`, "b": fmt.Sprintf(`"count":1,"list":"%s"`, alone.Lanes[0].CPUs)} {
		all[uid] = desired.Instance{Name: "hub-test-" + uid, Spec: json.RawMessage(`{"lane":{"cpus":{` + cpus + `}}}`)}
		if err = os.WriteFile(p.recordFile(all[uid].Name), all[uid].Spec, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all["c"] = desired.Instance{Name: "hub-test-c", Spec: all["a"].Spec} // it has never begun
	err = p.Restore(t.Context(), all)
	for uid, i := range all {
		if _, _, gerr := p.laneGroup(i.Name); isNoLane(gerr) != (uid == "c") {
			t.Errorf("%s: %v, %v", i.Name, gerr, err)
		}
		if eerr := endResult(p, uid, i); eerr != nil {
			t.Error(eerr)
		}
	}
}

// A reservation that lacks a declared part, because others have the pages, is refused, and nothing of it
// stays.
func TestReserveShort(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.CgroupCpuset, hosttest.CPUs(2))
	const pool, size = "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages", 2 << 20
	was, err := os.ReadFile(pool)
	if err == nil {
		err = os.WriteFile(pool, []byte("4"), 0)
	}
	if err != nil {
		t.Skip("skipped: needs hugepages of 2 MiB: ", err)
	}
	defer func() {
		if err = os.WriteFile(pool, was, 0); err != nil {
			t.Error(err)
		}
	}()
	other, err := unix.Mmap(-1, 0, 2*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_HUGETLB|unix.MAP_POPULATE)
	if err != nil {
		t.Skip("skipped: needs hugepages that nobody has: ", err)
	}
	p := newInstances(t.TempDir())
	i := desired.Instance{Name: "hub-test", Spec: json.RawMessage(`{"lane":{"cpus":{"count":1},"memory":{"hugepages":{"2Mi":"8Mi"}}},"command":["true"]}`)}
	_, err = p.Reserve(t.Context(), "u", i)
	if _, refused := errors.AsType[*plan.Refusal](err); !refused || !strings.Contains(err.Error(), "2 of the 4 pages for lane hub-test are free") {
		t.Errorf("two of its pages are another's: %v", err)
	}
	if _, _, err = p.laneGroup(i.Name); !isNoLane(err) {
		t.Errorf("its lane is in force: %v", err)
	}
	if left, gerr := filepath.Glob(p.recordFile("*") + "*"); gerr != nil || len(left) > 0 {
		t.Errorf("files %v are left, %v", left, gerr)
	}
	path := &daemonPath{is: "off", stuck: true}
	p.lanes.Paths, p.lanes.Ops = []netpath.Path{path}, map[string]journal.Op{"silent": path}
	stuck := i
	stuck.Spec = bytes.Replace(i.Spec, []byte(`"cpus"`), []byte(`"network":{"path":"silent"},"cpus"`), 1)
	_, err = p.Reserve(t.Context(), "u", stuck)
	if _, _, none := p.laneGroup(i.Name); err == nil || none != nil || !p.Marked(i.Name, "u") {
		t.Errorf("what cannot be released is known still: %v, %v", err, none)
	}
	path.stuck = false
	if err = errors.Join(endResult(p, "u", i), p.Unmark(i.Name)); err != nil || p.Marked(i.Name, "u") {
		t.Errorf("its reservation does not end: %v", err)
	}
	if err = unix.Munmap(other); err != nil {
		t.Fatal(err)
	}
	if _, err = p.Reserve(t.Context(), "u", i); err != nil {
		t.Errorf("all pages are free: %v", err)
	}
	if err = endResult(p, "u", i); err != nil {
		t.Error(err)
	}
}

// daemonPath is a path whose setting needs a program that may be away.
type daemonPath struct {
	away, stuck bool
	is          string
}

func (*daemonPath) Name() string                { return "silent" }
func (*daemonPath) Declared(lane.Network) error { return nil }
func (*daemonPath) Possible(netpath.Lane) error { return nil }
func (*daemonPath) Check(journal.Step) error    { return nil }
func (*daemonPath) Steps(all []netpath.Lane) (steps []journal.Step, err error) {
	for range all[:min(1, len(all))] {
		steps = append(steps, journal.Step{Kind: "silent", Target: "switch", After: "on"})
	}
	return steps, nil
}

func (s *daemonPath) Read(context.Context, journal.Step) (string, error) {
	if s.away {
		return "", &journal.UnansweredError{Err: errors.New("it does not answer")}
	}
	return s.is, nil
}

func (s *daemonPath) Write(_ context.Context, _ journal.Step, value string) error {
	if s.stuck && value == "off" {
		return errors.New("it does not let go")
	}
	s.is = value
	return nil
}

// An Instance has not ended before all of its lane is taken back.
func TestEndWaits(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.CgroupCpuset, hosttest.CPUs(2))
	p, path := newInstances(t.TempDir()), &daemonPath{is: "off"}
	p.lanes.Paths, p.lanes.Ops = []netpath.Path{path}, map[string]journal.Op{"silent": path}
	i := desired.Instance{Name: "hub-test", Spec: json.RawMessage(`{"lane":{"cpus":{"count":1},"network":{"path":"silent"}},"command":["true"]}`)}
	if _, err := p.Reserve(t.Context(), "u", i); err != nil || path.is != "on" {
		t.Fatal(path.is, err)
	}
	path.away = true
	for range 2 {
		if err := endResult(p, "u", i); err == nil || !strings.Contains(err.Error(), "is not taken back as a whole: ") || p.outcomes["u"].text == "" {
			t.Errorf("its path is away: %v, %q", err, p.outcomes["u"].text)
		}
		if _, err := os.Stat(p.recordFile(i.Name)); err != nil {
			t.Error("it is forgotten:", err)
		}
	}
	path.away, p.retriedAt[i.Name] = false, time.Time{} // long ago
	if err := endResult(p, "u", i); err != nil || path.is != "off" || p.outcomes["u"].text != "" {
		t.Errorf("its path is there again: it is %s, %v", path.is, err)
	}
	left, err := filepath.Glob(p.recordFile("*") + "*")
	if err != nil || len(left) > 0 {
		t.Errorf("files %v are left, %v", left, err)
	}
	other := i // a lane of the host itself
	other.Name = "other-test"
	if _, err = p.Reserve(t.Context(), "o", other); err != nil {
		t.Fatal(err)
	}
	path.away = true
	releaseByHand(t, p, other.Name)
	if err = os.WriteFile(p.recordFile(i.Name), i.Spec, 0o600); err == nil { // its lane has gone
		err = endResult(p, "u", i)
	}
	if err != nil {
		t.Errorf("only what others have left waits: %v", err)
	}
	path.away = false
	if err = endResult(p, "o", other); err != nil {
		t.Fatal(err)
	}

	// Killed after the lane was released, and before that was stored.
	if _, err = p.Reserve(t.Context(), "u", i); err == nil {
		err = p.writeLeftovers(i.Name, leftovers{})
	}
	if err != nil {
		t.Fatal(err)
	}
	path.away = true
	releaseByHand(t, p, i.Name)
	if err = endResult(p, "u", i); err == nil {
		t.Error("what its release left is forgotten after a kill")
	}
	path.away, p.retriedAt[i.Name] = false, time.Time{}
	if err = endResult(p, "u", i); err != nil || path.is != "off" {
		t.Errorf("it is %s, %v", path.is, err)
	}
}

// What has just begun does not count as running before it is there.
func TestUp(t *testing.T) {
	p := newInstances(t.TempDir())
	for _, row := range []struct {
		w    fixedWorkload
		says string
	}{{fixedWorkload{}, "it has just begun"}, {fixedWorkload{is: true, err: api.NotYet("activating")}, "activating"}} {
		err := p.checkRunning(t.Context(), "web", row.w)
		if _, notYet := errors.AsType[api.NotYet](err); !notYet || err.Error() != row.says {
			t.Errorf("found %v, expected %s", err, row.says)
		}
	}
	if err := p.checkRunning(t.Context(), "web", fixedWorkload{is: true}); err != nil {
		t.Error(err)
	}
}

// fixedWorkload is a workload with a fixed state.
type fixedWorkload struct {
	workload
	is  bool
	err error
}

func (b fixedWorkload) isRunning(context.Context, []int) (bool, error) { return b.is, b.err }

// A command's output is kept up to a bound, its end longest. The command goes on writing to the same file.
func TestPrinted(t *testing.T) {
	log := filepath.Join(t.TempDir(), "router.json.log")
	if err := rotateLog(log); err != nil {
		t.Error("where nothing was printed:", err)
	}
	command, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer command.Close()
	size := func(file string) int64 {
		info, serr := os.Stat(file)
		if serr != nil {
			return -1
		}
		return info.Size()
	}
	for _, step := range []struct {
		prints      int
		now, before int64
	}{{maxLog - 1, maxLog - 1, -1}, {1000, 0, maxLog}, {5, 5, maxLog}, {3 * maxLog, 0, maxLog}} {
		if _, err = command.Write(append(bytes.Repeat([]byte("x"), step.prints-1), 'E')); err == nil {
			err = rotateLog(log)
		}
		if err != nil || size(log) != step.now || size(rotatedLog(log)) != step.before {
			t.Fatalf("after %d bytes more: %d and %d before, %v; expected %d and %d", step.prints, size(log), size(rotatedLog(log)),
				err, step.now, step.before)
		}
	}
	if kept, err := os.ReadFile(rotatedLog(log)); err != nil || kept[len(kept)-1] != 'E' {
		t.Error("what was printed last is not kept:", err)
	}
}

// Each tenant has its own user, always the same one, and none is root unless the host's own flags allow it.
func TestUsers(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	p := newInstances(t.TempDir())
	for _, want := range []struct {
		tenant string
		user   uint32
	}{{"acme", 1879048300}, {"other", 1879048301}, {"acme", 1879048300}} {
		with, err := p.runAs("router", api.InstanceSpec{Tenant: want.tenant})
		if err != nil || with.User != want.user {
			t.Errorf("%s is user %d, %v; expected %d", want.tenant, with.User, err, want.user)
		}
		if info, err := os.Stat(with.Private); err != nil || info.Sys().(*syscall.Stat_t).Uid != want.user {
			t.Errorf("its folder: %v, %v", info, err)
		}
	}
	if _, err := p.runAs("router", api.InstanceSpec{Tenant: "third"}); err == nil || !strings.Contains(err.Error(), "--users ") {
		t.Errorf("a third tenant of two users: %v", err)
	}
	p.users.Root = []string{"acme"}
	if with, err := p.runAs("router", api.InstanceSpec{Tenant: "acme", Workload: api.Workload{Root: true}}); err != nil || with.User != 0 || with.Private != "" {
		t.Errorf("what may be root is %+v, %v", with, err)
	}
	_, err := p.runAs("router", api.InstanceSpec{Tenant: "other", Workload: api.Workload{Root: true}})
	if err == nil || !strings.Contains(err.Error(), "spec.root: this host lets no commands of other be root: expected") {
		t.Errorf("what may not be root: %v", err)
	}
	for _, wrong := range []string{"", "5", "0-5", "6-5", "1-4294967295", "a-b"} {
		if new(Users).Set(wrong) == nil {
			t.Errorf("--users %q is taken", wrong)
		}
	}
}

// The next agent also reports what a lane lacks.
func TestLacking(t *testing.T) {
	dir := t.TempDir()
	if err := newInstances(dir).storeLacks("web", putResult{rest: []string{"governor: why"}}); err != nil {
		t.Fatal(err)
	}
	p := newInstances(dir) // the next agent
	i := desired.Instance{Name: "web"}
	p.outcomes["u"] = outcomeOf(i, nil)
	l, err := lanes.Look(p.lanes)
	if err != nil {
		t.Fatal(err)
	}
	for _, says := range []string{"governor: why", "governor: why; the disk is full"} {
		if s := p.Status("u", i, l); s.Phase != "Running" || s.Message != says {
			t.Errorf("found %+v, expected %s", s, says)
		}
		p.storeErrors["web"] = errors.New("the disk is full")
	}
}

// An Instance counts as running only if its present spec has been looked at, and what has begun is there. Its
// tenant reads no reason that contains lanes of others.
func TestStatusOf(t *testing.T) {
	i := desired.Instance{Name: "default.web", Generation: 2}
	before := i
	before.Generation = 1
	for _, row := range []struct {
		name, phase, message, brief string
		tried                       *Outcome
	}{
		{"not tried", "Starting", "", "", nil},
		{"as it was before", "Starting", "", "", new(outcomeOf(before, nil))},
		{"what was wrong before", "Starting", "", "", new(outcomeOf(before, errors.New("no image")))},
		{"it runs", "Running", "", "", new(outcomeOf(i, nil))},
		{"it does not", "Failed", "no image default.db", "no image default.db", new(outcomeOf(i, asTenantError(errors.New("no image default.db"))))},
		{"by what others have", "Failed", "isolane/secret: busy", "it cannot be brought about on this host: an operator reads why",
			new(outcomeOf(i, errors.New("isolane/secret: busy")))},
		{"no room", "Failed", "what ran before goes on: lane default.web refused: 1 belongs to gone",
			"what ran before goes on: this host has no room for the lane as it is declared",
			new(outcomeOf(i, fmt.Errorf("what ran before goes on: %w", &plan.Refusal{Lane: i.Name, Blocking: []string{"1 belongs to gone"}})))},
		{"not yet", "Starting", "activating", "activating", new(outcomeOf(i, errors.Join(api.NotYet("activating"))))},
	} {
		p := newInstances(t.TempDir())
		if row.tried != nil {
			p.outcomes["u"] = *row.tried
		}
		l, err := lanes.Look(p.lanes)
		if err != nil {
			t.Fatal(err)
		}
		s := p.Status("u", i, l)
		if s.Phase != row.phase || s.Message != row.message || s.Brief != row.brief || s.Generation != 2 {
			t.Errorf("%s: found %+v, expected %s %q, %q", row.name, s, row.phase, row.message, row.brief)
		}
	}
}
