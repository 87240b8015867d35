package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
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
		if err := j.log.f.Close(); err != nil {
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
			dir := t.TempDir()
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
	j := open(t, t.TempDir(), h)
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
	j := open(t, t.TempDir(), h)
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
	j := open(t, t.TempDir(), h)
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
	dir := t.TempDir()
	h := &fakeHost{values: map[string]string{"knob": "old"}}
	j := open(t, dir, h)
	if _, err := j.Apply(t.Context(), []Step{{Kind: "fake", Target: "knob", After: "new"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, "test", h.ops()); !errors.Is(err, ErrBusy) {
		t.Errorf("opened twice: %v", err)
	}
	if found, err := Recover(t.Context(), dir, h.ops()); err != nil || len(found) > 0 {
		t.Errorf("recovered the journal of a living process: %v, %v", found, err)
	}
	if err := errors.Join(j.Undo(t.Context()), j.Close()); err != nil {
		t.Error(err)
	}
}

// A record cut in the middle was written before its step was done: it does not count.
func TestTornLog(t *testing.T) {
	steps, err := replay([]byte(`{"done":{"kind":"fake","target":"a","before":"","after":"x"}}` + "\n" + `{"done":{"ki`))
	if err != nil || len(steps) != 1 {
		t.Errorf("got %v, %v", steps, err)
	}
	if _, err := replay([]byte("{}}\n")); err == nil {
		t.Error("a damaged line passed")
	}
}

func TestFileAndDir(t *testing.T) {
	root := t.TempDir()
	knob := filepath.Join(root, "knob")
	if err := os.WriteFile(knob, []byte("0-1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	j, err := Open(t.TempDir(), "test", Ops())
	if err != nil {
		t.Fatal(err)
	}
	made := filepath.Join(root, "made")
	_, err = j.Apply(t.Context(), []Step{{Kind: "dir", Target: made, After: "present"}, {Kind: "file", Target: knob, After: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = os.Stat(made); err != nil {
		t.Error(err)
	}
	if err = errors.Join(j.Undo(t.Context()), j.Close()); err != nil {
		t.Error(err)
	}
	data, err := os.ReadFile(knob)
	if err != nil || string(data) != "0-1\n" {
		t.Errorf("knob %q, %v", data, err)
	}
	if _, err := os.Stat(made); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("directory still there: %v", err)
	}
}

func FuzzReplay(f *testing.F) {
	f.Add([]byte(`{"done":{"kind":"a","target":"b"}}` + "\n" + `{"undone":{"kind":"a","target":"b"}}` + "\n"))
	f.Fuzz(func(_ *testing.T, data []byte) { _, _ = replay(data) })
}
