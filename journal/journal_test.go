package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fakeHost is a host of named values. It dies, as by SIGKILL, in the call number killAt, before or
// after the change.
type fakeHost struct {
	values map[string]string
	refuse map[string]error
	calls  int
	killAt int
	after  bool
}

var errKilled = errors.New("killed")

func (h *fakeHost) Check(s Step) error {
	if s.Target == "forbidden" {
		return errors.New("forbidden")
	}
	return nil
}

func (h *fakeHost) Read(_ context.Context, s Step) (string, error) {
	v, ok := h.values[s.Target]
	if !ok {
		return "", fs.ErrNotExist
	}
	return v, nil
}

func (h *fakeHost) Write(_ context.Context, s Step, value string) error {
	h.calls++
	if h.calls == h.killAt && !h.after {
		panic(errKilled)
	}
	if err := h.refuse[s.Target]; err != nil {
		return err
	}
	h.values[s.Target] = value
	if h.calls == h.killAt {
		panic(errKilled)
	}
	return nil
}

func (h *fakeHost) ops() map[string]Op { return map[string]Op{"fake": h} }

func open(t *testing.T, dir string, h *fakeHost) *Journal {
	t.Helper()
	j, err := Open(dir, "test", h.ops())
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// killed runs f and closes the journal's file as the death of its process would.
func killed(t *testing.T, j *Journal, f func()) (died bool) {
	t.Helper()
	defer func() {
		if r := recover(); r != nil {
			died = true
		}
		l, ok := j.lock.(*lock)
		if err := errors.Join(j.log.f.Close(), l.f.Close()); err != nil || !ok {
			t.Error(err)
		}
	}()
	f()
	return false
}

func steps(n int) (map[string]string, []Step) {
	values := map[string]string{}
	var list []Step
	for i := range n {
		name := fmt.Sprintf("knob%d", i)
		values[name] = "old"
		list = append(list, Step{Kind: "fake", Target: name, After: "new"})
	}
	return values, list
}

// A process that is killed at any step, before or after the change itself, while applying or while
// undoing, leaves a log with which Recover restores the host.
func TestKilledAtEveryStep(t *testing.T) {
	const n = 4
	for _, after := range []bool{false, true} {
		for at := 1; at <= 2*n; at++ {
			before, list := steps(n)
			h := &fakeHost{values: maps.Clone(before), killAt: at, after: after}
			dir := stateDirectory(t)
			j := open(t, dir, h)
			died := killed(t, j, func() {
				_, _ = j.Apply(t.Context(), list)
				_ = j.Undo(t.Context())
			})
			if !died {
				t.Fatalf("call %d: nobody died", at)
			}
			h.killAt = 0
			if _, err := Recover(t.Context(), dir, h.ops()); err != nil {
				t.Errorf("killed at call %d (after the change: %v): %v", at, after, err)
			}
			if d := cmp.Diff(before, h.values); d != "" {
				t.Errorf("killed at call %d (after the change: %v) (-want +got):\n%s", at, after, d)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
				t.Errorf("killed at call %d: left %v", at, left)
			}
		}
	}
}

func TestApplyUndo(t *testing.T) {
	before, list := steps(3)
	before["knob1"] = "new" // in force already: none of ours
	h := &fakeHost{values: maps.Clone(before)}
	j := open(t, stateDirectory(t), h)
	if refused, err := j.Apply(t.Context(), list); err != nil || len(refused) > 0 {
		t.Fatal(refused, err)
	}
	if len(j.Pending()) != 2 || h.values["knob0"] != "new" {
		t.Errorf("pending %v, host %v", j.Pending(), h.values)
	}
	if err := errors.Join(j.Undo(t.Context()), j.Close()); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff(before, h.values); d != "" {
		t.Errorf("after undo (-want +got):\n%s", d)
	}
}

func TestRefusedStep(t *testing.T) {
	before, list := steps(3)
	h := &fakeHost{values: maps.Clone(before), refuse: map[string]error{"knob1": errors.New("managed")}}
	j := open(t, stateDirectory(t), h)
	if _, err := j.Apply(t.Context(), list); err == nil {
		t.Error("a refused step is no error")
	}
	list[1].Optional = true
	refused, err := j.Apply(t.Context(), list)
	if err != nil || len(refused) != 1 || h.values["knob2"] != "new" {
		t.Errorf("refused %v, %v, host %v", refused, err, h.values)
	}
	if err := errors.Join(j.Undo(t.Context()), j.Close()); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff(before, h.values); d != "" {
		t.Errorf("after undo (-want +got):\n%s", d)
	}
}

func TestUndoLeavesTheChangesOfOthers(t *testing.T) {
	before, list := steps(2)
	h := &fakeHost{values: maps.Clone(before)}
	j := open(t, stateDirectory(t), h)
	if _, err := j.Apply(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	h.values["knob0"] = "theirs"
	delete(h.values, "knob1") // gone, as a task that ended
	if err := j.Undo(t.Context()); err == nil {
		t.Error("nothing said of the change of somebody else")
	}
	if h.values["knob0"] != "theirs" {
		t.Errorf("overwrote it: %v", h.values)
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
}

func TestBusyJournal(t *testing.T) {
	dir := stateDirectory(t)
	h := &fakeHost{values: map[string]string{"knob": "old"}}
	j := open(t, dir, h)
	if _, err := j.Apply(t.Context(), []Step{{Kind: "fake", Target: "knob", After: "new"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, "test", h.ops()); !errors.Is(err, ErrBusy) {
		t.Errorf("opened twice: %v", err)
	}
	if found, err := Recover(t.Context(), dir, h.ops()); !errors.Is(err, ErrBusy) || len(found) > 0 ||
		!strings.Contains(err.Error(), fmt.Sprintf("(process %d)", os.Getpid())) {
		t.Errorf("recovered the journal of a living process, or did not name it: %v, %v", found, err)
	}
	if err := errors.Join(j.Undo(t.Context()), j.Close()); err != nil {
		t.Error(err)
	}
}

// A record cut in the middle was written before its step was done: it does not count.
func TestTornLog(t *testing.T) {
	const whole = `{"boot":"b"}` + "\n" + `{"done":{"kind":"fake","target":"a","before":"","after":"x"}}` + "\n"
	steps, err := replay([]byte(whole+`{"done":{"ki`), "b")
	if err != nil || len(steps) != 1 {
		t.Errorf("got %v, %v", steps, err)
	}
	if _, err := replay([]byte("{}}\n"), "b"); err == nil {
		t.Error("a damaged line passed")
	}
	if steps, err := replay([]byte(whole), "another"); err != nil || len(steps) > 0 {
		t.Errorf("steps of another boot were believed: %v, %v", steps, err)
	}
}

// After a line that was cut off, and with a disk that was full, the log goes on with whole records.
func TestLogGoesOn(t *testing.T) {
	before, list := steps(2)
	h := &fakeHost{values: maps.Clone(before)}
	dir := stateDirectory(t)
	j := open(t, dir, h)
	if _, err := j.Apply(t.Context(), list[:1]); err != nil {
		t.Fatal(err)
	}
	killed(t, j, func() { _, _ = j.log.f.WriteAt([]byte(`{"done":{"ki`), j.log.size) })
	j = open(t, dir, h)
	if _, err := j.Apply(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	killed(t, j, func() {})
	if _, err := Recover(t.Context(), dir, h.ops()); err != nil || h.values["knob0"] != "old" || h.values["knob1"] != "old" {
		t.Error(err, h.values)
	}
}

// Other steps take the place of those that are done: only what differs changes, and what there was at
// first comes back.
func TestReconcile(t *testing.T) {
	before, list := steps(3)
	for _, when := range []string{"", "record", "change"} { // of knob1 at which the process is killed
		h := &fakeHost{values: maps.Clone(before)}
		dir := stateDirectory(t)
		j := open(t, dir, h)
		if _, _, err := j.Reconcile(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		h.calls = 0
		newer := slices.Clone(list[:2])
		newer[1].After = "newer"
		if when != "" {
			h.killAt, h.after = 2, when == "change" // the first call takes knob2 back
			if !killed(t, j, func() { _, _, _ = j.Reconcile(t.Context(), newer) }) {
				t.Fatal("nobody died")
			}
			h.killAt = 0
			j = open(t, dir, h)
		}
		for range 2 {
			if _, _, err := j.Reconcile(t.Context(), newer); err != nil {
				t.Fatal(err)
			}
		}
		if d := cmp.Diff(map[string]string{"knob0": "new", "knob1": "newer", "knob2": "old"}, h.values); d != "" {
			t.Errorf("killed at %q (-want +got):\n%s", when, d)
		}
		if when == "" && h.calls != 2 {
			t.Errorf("%d changes, want 2", h.calls)
		}
		if err := errors.Join(j.Undo(t.Context()), j.Close()); err != nil {
			t.Error(err)
		}
		if d := cmp.Diff(before, h.values); d != "" {
			t.Errorf("killed at %q, after undo (-want +got):\n%s", when, d)
		}
	}
}

// A journal that somebody else could have written, or that names what Isolane does not change, is not
// believed.
func TestCraftedJournal(t *testing.T) {
	boot, err := BootID()
	if err != nil {
		t.Fatal(err)
	}
	victim := filepath.Join(t.TempDir(), "cpuset.cpus") // a known name, but a file of a disk
	for _, crafted := range []Step{
		{Kind: "file", Target: "/etc/passwd", Before: "root::0:0::/:/bin/sh", After: "x"},
		{Kind: "file", Target: "/proc/irq/../sys/kernel/core_pattern", Before: "|/bin/sh", After: "core"},
		{Kind: "file", Target: "/proc/irq/1/smp_affinity_list", Before: "0\n1", After: "1"},
		{Kind: "file", Target: victim, Before: "owned", After: "0"},
		{Kind: "attribute", Target: "/sys/fs/cgroup/system.slice/cpuset.cpus", After: "0"},
		{Kind: "cgroup", Target: "/sys/fs/cgroup/system.slice", After: "present"},
		{Kind: "processes", Target: "/sys/fs/cgroup", After: Running},
		{Kind: "tasks", Target: "/sys/fs/cgroup/a", After: "/sys/fs/cgroup/b"},
		{Kind: "task", Target: "1", Before: "0", After: "1"},
		{Kind: "scheduling", Target: "1:2", Before: "deadline 0", After: "fifo 1"},
		{Kind: "affinities", Target: "threads", Before: "noted x", After: "1"},
		{Kind: "affinities", Target: "threads", Before: "noted 1\n1:2=0 /sys/fs/cgroup/a", After: "1"},
		{Kind: "affinities", Target: "1", Before: "noted 1\n1:2=0", After: "1"},
		{Kind: "scheduling", Target: "1:2", Before: "other 0 50000", After: "fifo 100"},
		{Kind: "scheduling", Target: "1", Before: "other 0 50000", After: "fifo 1"},
		{Kind: "member", Target: "1:1", Before: "/etc", After: "/sys/fs/cgroup/isolane-a"},
		{Kind: "member", Target: "1:1", Before: "/sys/fs/cgroup\n1:1= /tmp/x", After: "/sys/fs/cgroup/isolane-a"},
		{Kind: "member", Target: "1:1", Before: "/sys/fs/cgroup\n1:1=0 /sys/fs/cgroup/../../../tmp", After: "/sys/fs/cgroup/isolane-a"},
		{Kind: "cpuset", Target: "/sys/fs/cgroup/cpuset/a/cpuset.cpus", Before: "0\n1:1=0 /sys/fs/cgroup/cpuset/b", After: "1"},
		{Kind: "keeper", Target: "/sys/fs/cgroup/system.slice", After: Running},
		{Kind: "keeper", Target: "/sys/fs/cgroup/system.slice/isolane-1", Before: Running},
		{Kind: "controller", Target: "/sys/fs/cgroup:devices", After: "devices"},
		{Kind: "netns", Target: "../../etc"},
		{Kind: "sysctl", Target: "x:kernel/core_pattern", Before: "|sh"},
		{Kind: "link", Target: "eth0"},
		{Kind: "exec", Target: "/bin/sh"},
		{Kind: "unit", Target: "ssh.service:AllowedCPUs", After: "0"},
		{Kind: "unit", Target: "-.slice:AllowedCPUs", After: "0"},
		{Kind: "unit", Target: "../system.slice:AllowedCPUs", After: "0"},
		{Kind: "unit", Target: "system.slice:ExecStart", After: "0"},
		{Kind: "unit", Target: "system.slice:AllowedCPUs", Before: "0\nExecStart=/bin/sh", After: "0"},
	} {
		if err = os.WriteFile(victim, []byte("0"), 0o600); err != nil {
			t.Fatal(err)
		}
		dir := stateDirectory(t)
		if err = os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		l := &log{}
		if l.f, err = os.OpenFile(filepath.Join(dir, "x"+suffix), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
			t.Fatal(err)
		}
		if err = errors.Join(l.append(record{Boot: boot}, record{Done: &crafted}), l.f.Close()); err != nil {
			t.Fatal(err)
		}
		if _, err = Recover(t.Context(), dir, Ops("/")); err == nil {
			t.Errorf("%s passed", crafted)
		}
		if data, _ := os.ReadFile(victim); string(data) != "0" {
			t.Fatalf("%s wrote %q", crafted, data)
		}
	}
	dir := stateDirectory(t)
	if err = os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	h := &fakeHost{values: map[string]string{}}
	if err = os.WriteFile(filepath.Join(dir, "x"+suffix), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err = os.Chmod(filepath.Join(dir, "x"+suffix), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err = Open(dir, "x", h.ops()); err == nil {
		t.Error("a journal that everybody may write was believed")
	}
	if err = os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err = Open(dir, "y", h.ops()); err == nil {
		t.Error("a directory that others may enter was believed")
	}
}

// stateDirectory is one for journals.
func stateDirectory(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "run")
}

func TestFileAndGroup(t *testing.T) {
	root := t.TempDir()
	const knob, made = "/sys/devices/virtual/workqueue/cpumask", "/sys/isolane-made"
	if err := os.MkdirAll(filepath.Join(root, filepath.Dir(knob)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, knob), []byte("0-1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	j, err := Open(stateDirectory(t), "test", Ops(root))
	if err != nil {
		t.Fatal(err)
	}
	_, err = j.Apply(t.Context(), []Step{{Kind: "cgroup", Target: made, After: "present"},
		{Kind: "attribute", Target: made + "/cpuset.cpus", After: "1"}, {Kind: "file", Target: knob, After: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	if data, rerr := os.ReadFile(filepath.Join(root, made, "cpuset.cpus")); rerr != nil || string(data) != "1\n" {
		t.Error(data, rerr)
	}
	if err = errors.Join(j.Undo(t.Context()), j.Close()); err != nil {
		t.Error(err)
	}
	data, err := os.ReadFile(filepath.Join(root, knob))
	if err != nil || string(data) != "0-1\n" {
		t.Errorf("knob %q, %v", data, err)
	}
	if _, err := os.Stat(filepath.Join(root, made)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("directory still there: %v", err)
	}
}

func FuzzReplay(f *testing.F) {
	f.Add([]byte(`{"boot":"b"}` + "\n" + `{"done":{"kind":"a","target":"b"}}` + "\n" + `{"undone":{"kind":"a","target":"b"}}` + "\n"))
	f.Fuzz(func(_ *testing.T, data []byte) { _, _ = replay(data, "b") })
}

// Whatever a journal says, only what steps may change is named.
func FuzzCheck(f *testing.F) {
	for kind := range Ops("/") {
		f.Add(kind, "/proc/irq/1/smp_affinity_list", "0-1", "0")
		f.Add(kind, "/sys/fs/cgroup/isolane-a/cpuset.cpus", "", "0")
		f.Add(kind, "12:34", "/sys/fs/cgroup\n12:34=0", "/sys/fs/cgroup/isolane-a")
	}
	f.Fuzz(func(t *testing.T, kind, target, before, after string) {
		op, ok := Ops("/")[kind]
		if !ok || op.Check(Step{Kind: kind, Target: target, Before: before, After: after}) != nil {
			return
		}
		switch kind {
		case "file", "attribute", "cgroup", "cpuset", "processes", "tasks":
			if !filepath.IsAbs(target) || filepath.Clean(target) != target {
				t.Errorf("%s %q passed", kind, target)
			}
			known := strings.HasPrefix(target, "/proc/irq/") || strings.HasPrefix(target, "/proc/sys/") || strings.HasPrefix(target, "/sys/devices/") ||
				slices.Contains(ofGroups(), filepath.Base(target)) || kind == "tasks"
			if !known && !strings.HasPrefix(filepath.Base(target), GroupPrefix) {
				t.Errorf("%s %q passed", kind, target)
			}
		}
	})
}
