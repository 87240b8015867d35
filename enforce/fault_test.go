package enforce

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/knob"
	"isolane.dev/isolane/plan"
)

// TestMain lets this binary stand in for an isolane that is killed while it applies lanes.
func TestMain(m *testing.M) { hosttest.Main(m, applyAndDie) }

// faulty is an Op in which one call of Write fails or is killed.
type faulty struct {
	journal.Op
	calls *int
	what  *string // the call number at, once it was made
	at    int
	kill  string // "before" or "after" the write; "": the call fails once; repeated: it fails each time
}

// repeated makes a fault occur at each try, not only once.
const repeated = "stays"

var errFault = errors.New("a fault that a test made")

func (f faulty) Write(ctx context.Context, s journal.Step, value string) error {
	*f.calls++
	hit, what := *f.calls == f.at, s.Kind+" "+s.Target+" "+value
	if hit {
		*f.what = what
	}
	switch {
	case hit && f.kill == "", f.kill == repeated && *f.what == what:
		return errFault
	case hit && f.kill == "before":
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	}
	err := f.Op.Write(ctx, s, value)
	if hit {
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	}
	return err
}

// InForce forwards to the wrapped Op.
func (f faulty) InForce(ctx context.Context, s journal.Step, now string) (bool, error) {
	if o, ok := f.Op.(interface {
		InForce(context.Context, journal.Step, string) (bool, error)
	}); ok {
		return o.InForce(ctx, s, now)
	}
	if o, ok := f.Op.(interface {
		Look(context.Context, journal.Step) (bool, string, error)
	}); ok {
		inForce, _, err := o.Look(ctx, s)
		return inForce, err
	}
	return now == s.After, nil
}

// File forwards to the wrapped Op.
func (f faulty) File(s journal.Step) string { return operations{s.Kind: f.Op}.file(s) }

// UndoneWithOther forwards to the wrapped Op.
func (f faulty) UndoneWithOther(s journal.Step) bool {
	op, ok := f.Op.(interface{ UndoneWithOther(s journal.Step) bool })
	return ok && op.UndoneWithOther(s)
}

// Ends forwards to the wrapped Op.
func (f faulty) Ends(s journal.Step) bool {
	op, ok := f.Op.(interface{ Ends(s journal.Step) bool })
	return ok && op.Ends(s)
}

func withFault(root string, at int, kill string) (map[string]journal.Op, *int) {
	calls, what := new(int), new(string)
	ops := knob.Ops(root)
	for kind, op := range ops {
		ops[kind] = faulty{op, calls, what, at, kill}
	}
	return ops, calls
}

func applyAndDie() (bool, error) {
	if os.Getenv("ISOLANE_TEST_DIE_AT") == "" {
		return false, nil
	}
	at, err := strconv.Atoi(os.Getenv("ISOLANE_TEST_DIE_AT"))
	if err != nil {
		return true, err
	}
	ops, _ := withFault(os.Getenv("ISOLANE_TEST_ROOT"), at, os.Getenv("ISOLANE_TEST_DIE"))
	root, err := host.Dir(os.Getenv("ISOLANE_TEST_ROOT"))
	if err != nil {
		return true, err
	}
	data, err := os.ReadFile(os.Getenv("ISOLANE_TEST_PLACEMENT"))
	if err != nil {
		return true, err
	}
	p, err := plan.Read("placement", bytes.NewReader(data))
	if err != nil {
		return true, err
	}
	l, err := Open(os.Getenv("ISOLANE_TEST_STATE"), root, Drivers{Ops: ops})
	if err != nil {
		return true, err
	}
	return true, errors.Join(l.Apply(context.Background(), p), l.Close())
}

// bench is a host for fault tests: the live one, or a directory that stands in for it.
type bench struct {
	root        string
	state       string
	fingerprint func(*testing.T) map[string]string
}

func (b bench) fs(tb testing.TB) fs.FS {
	tb.Helper()
	root, err := host.Dir(b.root)
	if err != nil {
		tb.Fatal(err)
	}
	return root
}

func (b bench) apply(t *testing.T, ops map[string]journal.Op, p plan.Placement) error {
	t.Helper()
	l, err := Open(b.state, b.fs(t), Drivers{Ops: ops})
	if err != nil {
		t.Fatal(err)
	}
	return errors.Join(l.Apply(t.Context(), p), l.Close())
}

func (b bench) recover(t *testing.T) {
	t.Helper()
	l, err := Open(b.state, b.fs(t), Drivers{Ops: knob.Ops(b.root)})
	if err != nil {
		t.Fatal(err)
	}
	_, err = l.Recover(context.Background(), noAttach)
	if err = errors.Join(err, l.Close()); err != nil {
		t.Error(err)
	}
}

// faults goes from one placement to another, and kills the process before and after each change, or lets the
// change fail. Afterwards, when killed with recover's help, the host is as in first or as in second.
func (b bench) faults(t *testing.T, first, second plan.Placement) {
	t.Helper()
	if err := b.apply(t, knob.Ops(b.root), first); err != nil {
		t.Fatal(err)
	}
	before := b.fingerprint(t)
	ops, calls := withFault(b.root, 0, "")
	if err := b.apply(t, ops, second); err != nil {
		t.Fatal(err)
	}
	n := *calls
	after := b.fingerprint(t)
	if cmp.Diff(before, after) == "" || n == 0 {
		t.Fatal("the second placement changes nothing")
	}
	file := filepath.Join(t.TempDir(), "placement.json")
	writeJSON(t, file, second)
	for _, kill := range []string{"before", "after", "", repeated} {
		for at := 1; at <= n; at++ {
			if err := b.apply(t, knob.Ops(b.root), first); err != nil {
				t.Fatal(err)
			}
			if kill == "" || kill == repeated {
				ops, calls := withFault(b.root, at, kill)
				err := b.apply(t, ops, second)
				if *calls < at { // fewer changes than were counted before
					break
				}
				if err == nil { // the kernel may refuse the step: then all other steps are done
					if now := b.fingerprint(t); differences(after, now) > 1 {
						t.Errorf("change %d refused (-asked +now):\n%s", at, cmp.Diff(after, now))
					}
					continue
				}
				if kill == "" && len(second.Lanes) == 0 {
					t.Errorf("release: change %d failed once, and it was not tried again: %v", at, err)
				}
			} else {
				if !b.killAt(t, file, kill, at) { // fewer changes, as above
					break
				}
				b.recover(t)
			}
			now := b.fingerprint(t)
			if d := cmp.Diff(before, now); d != "" && cmp.Diff(after, now) != "" {
				t.Errorf("fault %q in change %d of %d (-before +now):\n%s", kill, at, n, d)
			}
		}
	}
}

// killAt runs a process that is killed at a change, and reports whether it reached that change.
func (b bench) killAt(t *testing.T, file, kill string, at int) bool {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "ISOLANE_TEST_DIE_AT="+strconv.Itoa(at), "ISOLANE_TEST_DIE="+kill,
		"ISOLANE_TEST_ROOT="+b.root, "ISOLANE_TEST_STATE="+b.state, "ISOLANE_TEST_PLACEMENT="+file)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) && err != nil {
		t.Fatal(err)
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); err != nil && (!ok || status.Signal() != syscall.SIGKILL) {
		t.Fatalf("killed %s change %d: %v: %s", kill, at, err, out)
	}
	return err != nil
}

func differences(a, b map[string]string) int {
	n := 0
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			n++
		}
	}
	return n
}

// standIn writes the files of a machine to a directory.
func standIn(t *testing.T, mounts string) bench {
	t.Helper()
	tree, _ := machine(t, mounts)
	dir := t.TempDir()
	for name, f := range tree {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if f.Mode&fs.ModeSymlink != 0 {
			err = os.Symlink(string(f.Data), path)
		} else {
			err = os.WriteFile(path, f.Data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return bench{root: dir, state: filepath.Join(t.TempDir(), "run"), fingerprint: func(t *testing.T) map[string]string {
		t.Helper()
		all := map[string]string{}
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			data, err := os.ReadFile(path)
			all[path] = strings.TrimSpace(string(data))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}}
}

// TestFaultsAtEveryStep has faults on the way to the first lane, to another one, and back.
func TestFaultsAtEveryStep(t *testing.T) {
	one := placement()
	other := one
	other.Lanes = []plan.Lane{{Name: "b", CPUs: cpuset.Of(3), MemoryNodes: cpuset.Of(0), Spec: one.Lanes[0].Spec}}
	other.Housekeeping = cpuset.MustParse("0-2")
	for _, mounts := range []string{"cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0"} {
		version, _, _ := strings.Cut(mounts, " ")
		for _, way := range []struct {
			name          string
			first, second plan.Placement
		}{{"to the first", noLanes(), one}, {"to another", one, other}, {"back", other, noLanes()}} {
			t.Run(version+" "+way.name, func(t *testing.T) { standIn(t, mounts).faults(t, way.first, way.second) })
		}
	}
}

// TestFaultsOnThisHost does the same on this host.
func TestFaultsOnThisHost(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.CgroupCpuset, hosttest.CPUs(2))
	b, lane := thisHost(t)
	b.faults(t, noLanes(), lane)
}

func thisHost(t *testing.T) (bench, plan.Placement) {
	t.Helper()
	h, err := host.Read(host.Live())
	if err != nil {
		t.Fatal(err)
	}
	lane := cpuset.Of(h.Usable().Last())
	p := placement()
	p.Housekeeping = h.Usable().Difference(lane)
	p.Lanes = []plan.Lane{{Name: "test-fault", CPUs: lane, MemoryNodes: h.MemoryNodes(), Spec: p.Lanes[0].Spec}}
	before := knobValues(t)
	b := bench{root: "/", state: filepath.Join(t.TempDir(), "run"), fingerprint: knobValues}
	t.Cleanup(func() {
		if l, err := Open(b.state, host.Live(), Drivers{Ops: knob.Ops("/")}); err == nil {
			if err = errors.Join(l.Apply(context.Background(), plan.Placement{}), l.Close()); err != nil {
				t.Error(err)
			}
		}
		if d := cmp.Diff(before, knobValues(t)); d != "" {
			t.Errorf("left changed (-before +after):\n%s", d)
		}
	})
	return b, p
}

// A disk that is full, at any record, changes nothing in the end.
func TestFullDisk(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	b := standIn(t, "cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0")
	one := placement()
	before := maps.Clone(b.fingerprint(t))
	failed := 0
	for pages := 2; pages < 10; pages++ {
		b.state = t.TempDir()
		if err := unix.Mount("tmpfs", b.state, "tmpfs", 0, fmt.Sprintf("size=%d,mode=700", pages*os.Getpagesize())); err != nil {
			t.Fatal(err)
		}
		l, err := Open(b.state, b.fs(t), Drivers{Ops: knob.Ops(b.root)})
		if err == nil {
			err = errors.Join(l.Apply(t.Context(), one), l.Close())
		}
		if err != nil {
			failed++
		} else if err = b.apply(t, knob.Ops(b.root), plan.Placement{}); err != nil {
			t.Error(err)
		}
		if err != nil && !errors.Is(err, unix.ENOSPC) {
			t.Errorf("%d pages: %v", pages, err)
		}
		if d := cmp.Diff(before, b.fingerprint(t)); d != "" {
			t.Errorf("%d pages (-before +after):\n%s", pages, d)
		}
		if err := unix.Unmount(b.state, 0); err != nil {
			t.Error(err)
		}
	}
	if failed == 0 {
		t.Error("no disk was full")
	}
}

// State files that survive a reboot are ignored: a reboot undoes all lanes.
func TestReboot(t *testing.T) {
	b := standIn(t, "cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0")
	one := placement()
	if err := b.apply(t, knob.Ops(b.root), one); err != nil {
		t.Fatal(err)
	}
	boot, err := journal.BootID()
	if err != nil {
		t.Fatal(err)
	}
	fresh := standIn(t, "cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0")
	fresh.state = b.state
	for _, name := range []string{stateFile, journalName + ".journal"} {
		data, rerr := os.ReadFile(filepath.Join(b.state, name))
		if rerr != nil {
			t.Fatal(rerr)
		}
		if err = os.WriteFile(filepath.Join(b.state, name), bytes.ReplaceAll(data, []byte(boot), []byte("another boot")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := fresh.fingerprint(t)
	fresh.recover(t)
	if d := cmp.Diff(before, fresh.fingerprint(t)); d != "" {
		t.Errorf("(-before +after):\n%s", d)
	}
	if err = fresh.apply(t, knob.Ops(fresh.root), one); err != nil {
		t.Error(err)
	}
}

// No partition is requested on Linux 5.10, where it would hang the host; status says so while the lane is
// in force.
func TestNoPartition(t *testing.T) {
	b := standIn(t, "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0")
	if err := os.WriteFile(filepath.Join(b.root, "proc/sys/kernel/osrelease"), []byte("5.10.0-32-amd64\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Open(b.state, b.fs(t), Drivers{Ops: knob.Ops(b.root)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 2 {
		if err = l.Apply(t.Context(), placement()); err != nil {
			t.Fatal(err)
		}
		if len(l.Refused) < 2 || !strings.Contains(l.Refused[0].Reason, "before Linux 5.11") || len(l.Untested()) > 0 {
			t.Error(l.Refused, l.Untested())
		}
		level, err := os.ReadFile(filepath.Join(b.root, "sys/fs/cgroup/isolane-a/cpuset.cpus.partition"))
		if err != nil || strings.TrimSpace(string(level)) != knob.Member {
			t.Errorf("%s, %v", level, err)
		}
	}
}

// Applying what is in force changes nothing, and a released lane restores only its own settings.
func TestOnlyWhatDiffers(t *testing.T) {
	b := standIn(t, "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0")
	start := b.fingerprint(t)
	two := placement()
	two.Housekeeping = cpuset.MustParse("0")
	two.Lanes = append(two.Lanes, plan.Lane{Name: "b", CPUs: cpuset.Of(1), MemoryNodes: cpuset.Of(0), Spec: two.Lanes[0].Spec})
	one := placement()
	for _, p := range []plan.Placement{one, two, two, one, {}} {
		ops, calls := withFault(b.root, 0, "")
		if err := b.apply(t, ops, p); err != nil {
			t.Fatal(err)
		}
		first := *calls
		if err := b.apply(t, ops, p); err != nil {
			t.Fatal(err)
		}
		if *calls != first {
			t.Errorf("%d lanes: applied again, and %d changes", len(p.Lanes), *calls-first)
		}
	}
	if d := cmp.Diff(start, b.fingerprint(t)); d != "" {
		t.Errorf("(-before +after):\n%s", d)
	}
}

// noLanes returns a placement without lanes.
func noLanes() plan.Placement {
	return plan.Placement{APIVersion: plan.APIVersion, Kind: plan.Kind}
}
