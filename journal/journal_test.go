package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

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
			if _, _, err := Recover(t.Context(), dir, h.ops()); err != nil {
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
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = j.Apply(ended, list); !errors.Is(err, context.Canceled) {
		t.Errorf("a refusal after the end of the context: %v", err)
	}
	if err := errors.Join(j.Undo(t.Context()), j.Close()); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff(before, h.values); d != "" {
		t.Errorf("after undo (-want +got):\n%s", d)
	}
}

// sticky is a host whose knob1 takes no "newer", or makes something else of it.
type sticky struct {
	*fakeHost
	becomes string
}

func (h sticky) Write(ctx context.Context, s Step, value string) error {
	if s.Target == "knob1" && value == "newer" {
		if value = h.becomes; value == "" {
			return errors.New("managed")
		}
	}
	return h.fakeHost.Write(ctx, s, value)
}

// Where the kernel does not take what is to replace a step, that stays in force, and is taken back in the end.
func TestRefusedReplacement(t *testing.T) {
	for _, becomes := range []string{"", "other"} {
		before, list := steps(3)
		list[1].Optional = true
		h := sticky{&fakeHost{values: maps.Clone(before)}, becomes}
		j, err := Open(stateDirectory(t), "test", map[string]Op{"fake": h})
		if err != nil {
			t.Fatal(err)
		}
		is := func(value string, wantRefused int) {
			t.Helper()
			refused, aerr := j.Apply(t.Context(), list)
			if aerr != nil || len(refused) != wantRefused || h.values["knob1"] != value || len(j.Pending()) != 3 {
				t.Errorf("becomes %q: %v, %v, host %v, %v", becomes, refused, aerr, h.values, j.Pending())
			}
		}
		is("new", 0)
		list[1].After = "newer"
		is("new", 1)
		is("new", 1)
		list[1].After = "new"
		is("new", 0)
		if err = errors.Join(j.Undo(t.Context()), j.Close()); err != nil {
			t.Error(err)
		}
		if d := cmp.Diff(before, h.values); d != "" {
			t.Errorf("becomes %q, after undo (-want +got):\n%s", becomes, d)
		}
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
	if found, _, err := Recover(t.Context(), dir, h.ops()); !errors.Is(err, ErrBusy) || len(found) > 0 ||
		!strings.Contains(err.Error(), fmt.Sprintf("(process %d)", os.Getpid())) {
		t.Errorf("recovered the journal of a living process, or did not name it: %v, %v", found, err)
	}
	if err := errors.Join(j.Undo(t.Context()), j.Close()); err != nil {
		t.Error(err)
	}
}

// Who waits for the lock learns whom it waits for, has it when the other has ended, and gives up with its
// context.
func TestOpenWait(t *testing.T) {
	dir := stateDirectory(t)
	h := &fakeHost{}
	j := open(t, dir, h)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	var busy *BusyError
	if _, err := OpenWait(ctx, dir, "test", h.ops(), nil); !errors.As(err, &busy) || busy.Holder.PID != os.Getpid() {
		t.Errorf("gave up with %v", err)
	}
	var holders []Holder
	next, err := OpenWait(t.Context(), dir, "test", h.ops(), func(by *BusyError) {
		holders = append(holders, by.Holder)
		if cerr := j.Close(); cerr != nil {
			t.Error(cerr)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(holders) != 1 || holders[0].PID != os.Getpid() || !strings.HasPrefix(holders[0].Command, os.Args[0]) {
		t.Errorf("waited for %v", holders)
	}
	waited := false
	err = Await(t.Context(), dir, func(*BusyError) {
		waited = true
		if cerr := next.Close(); cerr != nil {
			t.Error(cerr)
		}
	})
	if err != nil || !waited {
		t.Errorf("Await: %v, waited: %v", err, waited)
	}
	if j, err = Open(dir, "test", h.ops()); err != nil {
		t.Fatal("Await keeps the lock: ", err)
	}
	if err = errors.Join(j.Close(), Await(t.Context(), filepath.Join(dir, "none"), nil)); err != nil {
		t.Error(err)
	}
}

// What somebody else relies on stays as it is, and that is told; the other steps are taken back.
func TestNeeded(t *testing.T) {
	h := &fakeHost{values: map[string]string{"a": "1", "b": "1"}}
	j, err := Open(stateDirectory(t), "test", h.ops())
	if err != nil {
		t.Fatal(err)
	}
	if _, err = j.Apply(t.Context(), []Step{{Kind: "fake", Target: "a", After: "2"}, {Kind: "fake", Target: "b", After: "2"}}); err != nil {
		t.Fatal(err)
	}
	h.refuse = map[string]error{"b": fmt.Errorf("b: %w", &NeededError{"somebody"})}
	err = j.Undo(t.Context())
	if err == nil || err.Error() != `undo fake b: left alone: somebody needs it (it was "1" before)` || h.values["a"] != "1" || len(j.Pending()) > 0 {
		t.Errorf("%v, %v, pending %v", err, h.values, j.Pending())
	}
	if err = j.Close(); err != nil {
		t.Error(err)
	}
}

// A lock that outlives a process that was killed, as what it was about to start has it, is waited for.
func TestLockOfTheDead(t *testing.T) {
	dir := stateDirectory(t)
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	if err := stateDir(dir); err != nil {
		t.Fatal(err)
	}
	l, err := takeLock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err = l.f.Truncate(0); err == nil {
		_, err = l.f.WriteAt(fmt.Appendf(nil, "isolane apply (process %d)\n", dead.ProcessState.Pid()), 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	if Busy(dir) {
		t.Error("busy by a process that has ended")
	}
	time.AfterFunc(200*time.Millisecond, func() { _ = l.f.Close() })
	j, err := Open(dir, "test", (&fakeHost{}).ops())
	if err != nil {
		t.Fatal(err)
	}
	if err = j.Close(); err != nil {
		t.Error(err)
	}
}

func TestHolder(t *testing.T) {
	for text, want := range map[string]Holder{
		"isolane apply (process 12)":             {"isolane apply", 12},
		"/a (process 1)/isolane x (process 345)": {"/a (process 1)/isolane x", 345},
		"":                                       {}, "isolane": {}, "isolane (process x)": {},
	} {
		if got := parseHolder(text); got != want || got != (Holder{}) && got.String() != text {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

// endingHost is a host whose targets may end, and where a target with a dot goes with another one.
type endingHost struct{ *fakeHost }

func (endingHost) Ends(Step) bool              { return true }
func (endingHost) UndoneWithOther(s Step) bool { return strings.Contains(s.Target, ".") }

func TestMissing(t *testing.T) {
	before, list := steps(2)
	before["knob1.part"] = "old"
	list = append(list, Step{Kind: "fake", Target: "knob1.part", After: "new"})
	h := &fakeHost{values: maps.Clone(before)}
	missing := func(op Op, want []Step) string {
		t.Helper()
		j, err := Open(stateDirectory(t), "test", map[string]Op{"fake": h})
		if err != nil {
			t.Fatal(err)
		}
		h.values = maps.Clone(before)
		if _, err = j.Apply(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		h.values["knob0"] = "theirs"
		delete(h.values, "gone")
		j.ops["fake"] = op
		found, err := j.Missing(t.Context(), want)
		if err = errors.Join(err, j.Undo(t.Context()), j.Close()); err != nil && !errors.As(err, new(*LeftAlone)) {
			t.Fatal(err)
		}
		return fmt.Sprint(found)
	}
	want := append(list[:1:1], Step{Kind: "fake", Target: "gone", After: "new"})
	if got := missing(h, want); got != `[fake knob1.part: "new" -> "old" fake knob1: "new" -> "old" `+
		`fake knob0: "theirs" -> "new" fake gone: "" -> "new"]` {
		t.Error(got)
	}
	if got := missing(endingHost{h}, want); got != `[fake knob1: "new" -> "old" fake knob0: "theirs" -> "new"]` {
		t.Error(got)
	}
}

// What a caller has left who was killed while it wrote a file goes with that file.
func TestRemoveState(t *testing.T) {
	dir := t.TempDir()
	if err := WriteState(dir, "state.json", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(fresh(dir, "state.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // none is no error
		if err := RemoveState(dir, "state.json"); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// A record cut in the middle was written before its step was done: it does not count.
func TestTornLog(t *testing.T) {
	const whole = `{"boot":"b"}` + "\n" + `{"done":{"kind":"fake","target":"a","before":"","after":"x"}}` + "\n"
	steps, err := replay([]byte(whole+`{"done":{"ki`), "b")
	if err != nil || len(steps.steps) != 1 {
		t.Errorf("got %v, %v", steps, err)
	}
	if _, err := replay([]byte("{}}\n"), "b"); err == nil {
		t.Error("a damaged line passed")
	}
	if steps, err := replay([]byte(whole), "another"); err != nil || len(steps.steps) > 0 {
		t.Errorf("steps of another boot were believed: %v, %v", steps, err)
	}
	// A crash of the machine may leave anything of what was not on the disk yet.
	const cut = `{"boot":"a"}` + "\n" + "{\"do\x00\x00\n"
	if steps, err := replay([]byte(cut+whole), "b"); err != nil || len(steps.steps) != 1 {
		t.Errorf("after an earlier boot that was cut off: %v, %v", steps, err)
	}
	if _, err := replay([]byte(cut), "a"); err == nil {
		t.Error("a damaged line of this boot passed")
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
	if _, _, err := Recover(t.Context(), dir, h.ops()); err != nil || h.values["knob0"] != "old" || h.values["knob1"] != "old" {
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
		if _, _, err := j.Reconcile(t.Context(), list, false); err != nil {
			t.Fatal(err)
		}
		h.calls = 0
		newer := slices.Clone(list[:2])
		newer[1].After = "newer"
		if when != "" {
			h.killAt, h.after = 2, when == "change" // the first call takes knob2 back
			if !killed(t, j, func() { _, _, _ = j.Reconcile(t.Context(), newer, false) }) {
				t.Fatal("nobody died")
			}
			h.killAt = 0
			j = open(t, dir, h)
		}
		for range 2 {
			if _, _, err := j.Reconcile(t.Context(), newer, false); err != nil {
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

// Two processes are killed one after the other between the record of a change and the change, each with another value
// in mind: what the first was to replace is still known.
func TestKilledTwice(t *testing.T) {
	before, list := steps(1)
	h := &fakeHost{values: maps.Clone(before)}
	dir := stateDirectory(t)
	j := open(t, dir, h)
	if _, _, err := j.Reconcile(t.Context(), list, false); err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"newer", "newest"} {
		h.calls, h.killAt = 0, 1
		list[0].After = value
		if !killed(t, j, func() { _, _, _ = j.Reconcile(t.Context(), list, false) }) || h.values["knob0"] != "new" {
			t.Fatal("nobody died before the change")
		}
		h.killAt = 0
		j = open(t, dir, h)
	}
	if err := errors.Join(j.Undo(t.Context()), j.Close()); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff(before, h.values); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// gathering is a kind whose steps are taken back together, but for those that somebody else has changed.
type gathering struct {
	*fakeHost
	together [][]Step
}

func (*gathering) Gathers(s Step) bool { return s.Target != "alone" }

func (g *gathering) UndoTogether(_ context.Context, steps []Step) (n int) {
	g.together = append(g.together, steps)
	for _, s := range steps {
		if g.values[s.Target] == s.After {
			g.values[s.Target], n = s.Before, n+1
		}
	}
	return n
}

// Steps that are taken back together are so where the first of them was done, and each that this leaves as always.
func TestUndoTogether(t *testing.T) {
	before, list := steps(4)
	before["alone"] = "old"
	list = append(list, Step{Kind: "fake", Target: "alone", After: "new"})
	list[1].Kind = "other"
	g := &gathering{fakeHost: &fakeHost{values: maps.Clone(before)}}
	other := &fakeHost{values: g.values}
	dir := stateDirectory(t)
	j, err := Open(dir, "test", map[string]Op{"fake": g, "other": other})
	if err == nil {
		_, err = j.Apply(t.Context(), list)
	}
	if err != nil {
		t.Fatal(err)
	}
	g.values["knob3"], g.calls, other.killAt = "theirs", 0, other.calls+1
	if !killed(t, j, func() { _ = j.Undo(t.Context()) }) || len(g.together) > 0 || g.values["alone"] != "old" {
		t.Fatalf("nobody died at the step of another kind, or some went before it: %v %v", g.together, g.values)
	}
	other.killAt = 0
	if j, err = Open(dir, "test", map[string]Op{"fake": g, "other": other}); err != nil {
		t.Fatal(err)
	}
	left, err := j.UndoWhere(t.Context(), func(Step) bool { return true })
	if err = errors.Join(err, j.Close()); len(left) != 1 || left[0].Step.Target != "knob3" || err != nil {
		t.Errorf("left %v, %v; want knob3", left, err)
	}
	if len(g.together) != 1 || len(g.together[0]) != 3 || g.calls != 1 { // the call is that of alone
		t.Errorf("%d calls beside %v", g.calls, g.together)
	}
	before["knob3"] = "theirs"
	if d := cmp.Diff(before, g.values); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// A journal that names what its kinds refuse, or that somebody else could have written, changes nothing.
func TestCraftedJournal(t *testing.T) {
	boot, err := BootID()
	if err != nil {
		t.Fatal(err)
	}
	for _, crafted := range []Step{
		{Kind: "fake", Target: "forbidden", Before: "old", After: "new"},
		{Kind: "exec", Target: "/bin/sh"},
	} {
		h := &fakeHost{values: map[string]string{"forbidden": "new", "/bin/sh": ""}}
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
		if _, _, err = Recover(t.Context(), dir, h.ops()); err == nil || h.calls > 0 {
			t.Errorf("%s: %v, %d changes", crafted, err, h.calls)
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

func FuzzReplay(f *testing.F) {
	f.Add([]byte(`{"boot":"b"}` + "\n" + `{"done":{"kind":"a","target":"b"}}` + "\n" + `{"undone":{"kind":"a","target":"b"}}` + "\n"))
	f.Fuzz(func(_ *testing.T, data []byte) { _, _ = replay(data, "b") })
}

// A step that was done once and whose target is gone waits, as that of a card whose driver is loaded anew, and others go on.
// A new one is refused, one that is taken back is done with it.
func TestGone(t *testing.T) {
	values, list := steps(3)
	h := &fakeHost{values: values, refuse: map[string]error{}}
	j := open(t, stateDirectory(t), h)
	gone := &fs.PathError{Op: "open", Path: "knob1", Err: fs.ErrNotExist}
	h.refuse["knob1"] = gone
	if _, err := j.Apply(t.Context(), list); !errors.Is(err, fs.ErrNotExist) || len(j.Waiting()) > 0 {
		t.Error("a new step: ", err, j.Waiting())
	}
	delete(h.refuse, "knob1")
	if _, err := j.Apply(t.Context(), list); err != nil {
		t.Error(err)
	}
	h.refuse["knob1"] = gone
	h.values["knob0"], h.values["knob1"], h.values["knob2"] = "theirs", "theirs", "theirs"
	_, err := j.Apply(t.Context(), list)
	if w := j.Waiting(); err != nil || h.values["knob2"] != "new" || len(w) != 1 || !errors.Is(w[0].Err, gone) {
		t.Error(err, h.values, w)
	}
	h.values["knob1"] = "new"
	if err := errors.Join(j.Undo(t.Context()), j.Close()); err != nil || len(j.Pending()) > 0 {
		t.Error(err, j.Pending())
	}
}

// A step whose program does not answer waits: it stays written down, also when the process is killed then, the
// others go on, and who comes when it answers finishes it. What was never done is refused as before.
func TestStepThatWaits(t *testing.T) {
	values, list := steps(3)
	h := &fakeHost{values: values, refuse: map[string]error{}}
	dir := stateDirectory(t)
	silent := fmt.Errorf("knob1: %w", &UnansweredError{errors.New("is it running?")})
	is := func(j *Journal, want string) {
		t.Helper()
		var got string
		for _, w := range j.Waiting() {
			got += fmt.Sprintln(w.Step, w.Err)
		}
		if got != want {
			t.Errorf("waits %q, want %q", got, want)
		}
	}
	all := func(Step) bool { return true }

	j := open(t, dir, h)
	killed(t, j, func() {
		h.refuse["knob1"] = silent
		if _, err := j.Apply(t.Context(), list); !errors.Is(err, silent) || len(j.Waiting()) > 0 {
			t.Error(err, j.Waiting())
		}
		if err := j.log.undone(list[1]); err != nil {
			t.Error(err)
		}
		j.Wanted = func(s Step) bool { return s.Target == "knob1" } // which somebody else had done
		if _, err := j.Apply(t.Context(), list); err != nil || len(j.Waiting()) != 1 || len(j.Pending()) != 2 {
			t.Error(err, j.Waiting(), j.Pending())
		}
		j.Wanted = nil
		delete(h.refuse, "knob1")
		if _, err := j.Apply(t.Context(), list); err != nil {
			t.Error(err)
		}
		h.refuse["knob1"] = silent
		h.values["knob0"], h.values["knob1"], h.values["knob2"] = "theirs", "theirs", "theirs"
		if _, err := j.Apply(t.Context(), list); err != nil || h.values["knob2"] != "new" {
			t.Error(err, h.values)
		}
		is(j, "fake knob1: \"old\" -> \"new\" is it running?\n")
		h.values["knob1"] = "new"
		if left, err := j.UndoWhere(t.Context(), all); err != nil || len(left) > 0 {
			t.Error(left, err)
		}
		is(j, "fake knob1: \"new\" -> \"old\" is it running?\n")
	})
	want := map[string]string{"knob0": "old", "knob1": "new", "knob2": "old"}
	if diff := cmp.Diff(want, h.values); diff != "" {
		t.Error(diff)
	}
	found, waiting, err := Recover(t.Context(), dir, h.ops())
	if err != nil || len(found) != 1 || len(waiting) != 1 || waiting[0].Step.Target != "knob1" {
		t.Error(found, waiting, err)
	}
	j = open(t, dir, h)
	if err = j.Undo(t.Context()); !strings.Contains(fmt.Sprint(err), "undo fake knob1: is it running?") {
		t.Error(err)
	}
	delete(h.refuse, "knob1")
	if err = j.Undo(t.Context()); err != nil || h.values["knob1"] != "old" || len(j.Pending())+len(j.Waiting()) > 0 {
		t.Error(err, h.values, j.Pending(), j.Waiting())
	}
	if err = j.Close(); err != nil {
		t.Error(err)
	}
}

// Lanes come and go while another is always in force: the log is written anew, with what is pending as it was.
func TestLongLog(t *testing.T) {
	dir, big := filepath.Join(t.TempDir(), "run"), strings.Repeat("x", 100<<10)
	h := &fakeHost{values: map[string]string{"stays": "old", "goes": "old", "later": big}}
	path := filepath.Join(dir, "test"+suffix)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	longest := int64(0)
	for i := range 30 {
		j := open(t, dir, h)
		if _, err := j.Apply(t.Context(), []Step{{Kind: "fake", Target: "stays", After: fmt.Sprint(i / 7)},
			{Kind: "fake", Target: "goes", After: big}, {Kind: "fake", Target: "later", After: "new"}}); err != nil {
			t.Fatal(err)
		}
		if left, err := j.UndoWhere(t.Context(), func(s Step) bool { return s.Target == "goes" }); err != nil || left != nil {
			t.Fatal(left, err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		longest = max(longest, info.Size())
		want := []Step{{Kind: "fake", Target: "stays", Before: "old", After: fmt.Sprint(i / 7)},
			{Kind: "fake", Target: "later", Before: big, After: "new"}}
		if i/7 > 0 {
			want[0].Replaced = fmt.Sprint(i/7 - 1)
		}
		look, err := Look(dir, "test", h.ops())
		if diff := cmp.Diff(want, look.Pending()); diff != "" || err != nil {
			t.Fatal(i, diff, err)
		}
		if err = j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if longest > compactFrom+500<<10 || longest < compactFrom {
		t.Errorf("at most %d bytes", longest)
	}
	data, err := os.ReadFile(path) // a kill may leave a copy
	err = errors.Join(err, os.WriteFile(fresh(dir, "test"+suffix), data, 0o600))
	if found, _, rerr := Recover(t.Context(), dir, h.ops(), "test"); errors.Join(err, rerr) != nil || found != nil || h.values["later"] != "new" {
		t.Error(found, err, rerr, h.values["stays"])
	}
	j := open(t, dir, h)
	if err = errors.Join(j.Undo(t.Context()), j.Close()); err != nil || h.values["stays"] != "old" || h.values["later"] != big {
		t.Error(err)
	}
}

// halfMade is of a kind that says more than its value.
type halfMade struct{ *fakeHost }

func (halfMade) InForce(context.Context, Step, string) (bool, error) { return false, nil }

func (halfMade) DescribeDrift(s Step) (expected, found string) {
	return "all of " + s.After, "half of " + s.Before
}

// What a write has not made is told by the kind, where it can.
func TestHalfMade(t *testing.T) {
	h := &fakeHost{values: map[string]string{"a": "old"}}
	j, err := Open(stateDirectory(t), "test", map[string]Op{"fake": halfMade{h}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = j.Apply(t.Context(), []Step{{Kind: "fake", Target: "a", After: "new"}})
	if want := "fake a: expected all of new, found half of new"; err == nil || err.Error() != want {
		t.Errorf("%v, expected %s", err, want)
	}
	if err = j.Undo(t.Context()); err != nil || h.values["a"] != "old" {
		t.Errorf("undone: %v, %v", h.values, err)
	}
	if err = j.Close(); err != nil {
		t.Error(err)
	}
}

// To ask whether a step was wanted before is to plan all lanes: that is done of none that cannot wait.
func TestAsksOfWhatMayWait(t *testing.T) {
	gone := &UnansweredError{errors.New("switched off")}
	for name, c := range map[string]struct {
		err   error
		asked bool
	}{"refused": {errors.New("input/output error"), false}, "gone": {fs.ErrNotExist, true}, "no answer": {gone, true}} {
		t.Run(name, func(t *testing.T) {
			h := &fakeHost{values: map[string]string{"knob": "old"}, refuse: map[string]error{"knob": c.err}}
			j := open(t, filepath.Join(t.TempDir(), "run"), h)
			asked := false
			j.Wanted = func(Step) bool { asked = true; return false }
			refused, err := j.Apply(t.Context(), []Step{{Kind: "fake", Target: "knob", After: "new", Optional: true}})
			if err = errors.Join(err, j.Close()); err != nil || len(refused) != 1 || !errors.Is(refused[0].Err, c.err) || asked != c.asked {
				t.Errorf("%v, %v, asked: %v", err, refused, asked)
			}
		})
	}
}
