package enforce

import (
	"context"
	"errors"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/enforce/attached"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/knob"
	"isolane.dev/isolane/plan"
)

// killing simulates a kill at one of the writes of a workload's files; 0: at none.
type killing struct {
	fileOp
	at *int
}

func (k killing) Write(ctx context.Context, s journal.Step, value string) error {
	if strings.HasPrefix(s.Target, workloadGroup) {
		if *k.at--; *k.at == 0 {
			panic("killed")
		}
	}
	return k.fileOp.Write(ctx, s, value)
}

// A workload whose leaving was cut off and cannot be completed does not block changes of other lanes, and
// recover says why. A workload that was to come in again afterwards still is.
func TestLeavingFails(t *testing.T) {
	b, l := withWorkload(t)
	s := journal.Step{Kind: change.KindFile, Target: workloadGroup + "/memory.swappiness", After: "0"}
	b.write(t, s.Target, "60")
	todo := []journal.Step{s}
	at, _, err := l.Attach(t.Context(), attached.Workload{Lane: "a", Group: workloadGroup},
		func(string, attached.Workload) (now []journal.Step, _ error) {
			now, todo = todo, nil
			return now, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	l.ops[change.KindFile] = refusing{l.ops[change.KindFile].(fileOp), s.Target}
	if err = l.Detach(t.Context(), at); !errors.Is(err, unix.EIO) {
		t.Error(err)
	}
	if err = l.Apply(t.Context(), placement()); err != nil || len(l.Attached) != 1 || !l.Attached[0].Leaving {
		t.Errorf("%+v %v", l.Attached, err)
	}
	if found, rerr := l.Recover(t.Context(), noAttach); !errors.Is(rerr, unix.EIO) || len(found) != 1 || found[0].Repaired {
		t.Errorf("%+v %v", found, rerr)
	}
	l.Returning = []attached.Workload{at}
	outside, err := l.attachAll(t.Context(), l.Returning, func(again attached.Workload) error { return l.Detach(t.Context(), again) })
	if len(outside) != 1 || err != nil || len(l.Returning) != 1 {
		t.Errorf("%+v %v, coming are %+v", outside, err, l.Returning)
	}
}

// A kill while a workload leaves its lane is reported, and recover completes it. If the lane only got other
// CPUs, the workload comes in again.
func TestLeavingIsNotForgotten(t *testing.T) {
	moved := placement()
	moved.Lanes = []plan.Lane{moved.Lanes[0]}
	moved.Lanes[0].CPUs, moved.Lanes[0].Idle = cpuset.Of(3), cpuset.Of(2)
	steps := []journal.Step{{Kind: change.KindFile, Target: workloadGroup + "/memory.swappiness", After: "0"},
		{Kind: change.KindFile, Target: workloadGroup + "/cpuset.sched_load_balance", After: "0"}}
	before := map[string]string{steps[0].Target: "60", steps[1].Target: "1"}
	const all = 3 // its steps are undone, but that is not recorded yet
	for _, c := range []struct {
		name  string
		to    plan.Placement
		kill  int // at this write on the way out; 0: none
		comes int
	}{
		{"release, at once", noLanes(), 1, 0}, {"release, midway", noLanes(), 2, 0}, {"release, at the end", noLanes(), all, 0},
		{"other CPUs, at once", moved, 1, 1}, {"other CPUs, midway", moved, 2, 1}, {"other CPUs, at the end", moved, all, 1},
		{"other CPUs, then", moved, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, l := withWorkload(t)
			for name, text := range before {
				b.write(t, name, text)
			}
			web := attached.Workload{Lane: "a", Group: workloadGroup}
			todo := steps
			if _, _, err := l.Attach(t.Context(), web, func(string, attached.Workload) (now []journal.Step, _ error) {
				now, todo = todo, nil
				return now, nil
			}); err != nil {
				t.Fatal(err)
			}
			at := min(c.kill, len(steps))
			l.ops[change.KindFile] = killing{l.ops[change.KindFile].(fileOp), &at}
			func() {
				defer func() {
					if recover() == nil {
						t.Fatal("expected the test's kill")
					}
				}()
				_, _ = l.Put(t.Context(), c.to, func(attached.Workload) error { panic("killed") })
			}()
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if c.kill == all {
				for name, text := range before {
					b.write(t, name, text)
				}
				if err := os.Remove(filepath.Join(b.state, "attach-a-1.journal")); err != nil {
					t.Fatal(err)
				}
			}
			look, err := Look(b.state, b.fs(t), Drivers{Ops: knob.Ops(b.root)})
			if err != nil {
				t.Fatal(err)
			}
			s, err := look.Status(t.Context())
			if err != nil || len(s.Lanes) != 1 || len(s.Lanes[0].Attached) > 0 || s.Drift[0].Name != "lane a" ||
				!strings.Contains(s.Drift[0].Note, "isolane recover") {
				t.Errorf("%+v %+v %v", s.Lanes, s.Drift, err)
			}
			l, came := b.open(t), 0
			found, err := l.Recover(t.Context(), func(again attached.Workload) error {
				if came++; !again.Same(web) {
					t.Errorf("%+v comes in", again)
				}
				return nil
			})
			if err != nil || came != c.comes || !found[0].Repaired || len(l.Attached)+len(l.Returning) > 0 {
				t.Errorf("%d came in, %+v %+v %v", came, l.Applied, found, err)
			}
			now := maps.Clone(before)
			for name := range now {
				text, rerr := os.ReadFile(filepath.Join(b.root, name))
				now[name], err = strings.TrimSpace(string(text)), errors.Join(err, rerr)
			}
			if ended := l.Close(); ended != nil || slices.ContainsFunc(driftOf(t, look), func(d Drift) bool { return d.Name == "lane a" }) {
				t.Errorf("it is done, and who has looked before says %+v, %v", driftOf(t, look), ended)
			}
			if drift, derr := l.Drift(t.Context()); err != nil || derr != nil || len(drift) > 0 || !maps.Equal(now, before) {
				t.Errorf("%v %+v %v %v", now, drift, err, derr)
			}
		})
	}
}

func driftOf(t *testing.T, l *Lanes) []Drift {
	t.Helper()
	found, err := l.Drift(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// A quota that somebody has set since a workload came into its lane is lifted once more, as is one that was not
// there then. The workload gets back the last ones.
func TestRedo(t *testing.T) {
	b, l := withWorkload(t)
	const none = "max 100000"
	files := []string{path.Dir(workloadGroup) + "/cpu.max", workloadGroup + "/cpu.max"}
	have := func(want string) {
		t.Helper()
		for _, file := range files {
			if data, err := os.ReadFile(filepath.Join(b.root, file)); err != nil || string(data) != want+"\n" {
				t.Errorf("%s: %q %v, expected %q", file, data, err, want)
			}
		}
	}
	lifted := func(before string) (steps []journal.Step) {
		for _, file := range files {
			b.write(t, file, before)
			steps = append(steps, journal.Step{Kind: change.KindFile, Target: file, Before: before, After: none})
		}
		return steps
	}
	todo := lifted("100000 100000")[1:]
	b.write(t, files[0], none)
	at, _, err := l.Attach(t.Context(), attached.Workload{Lane: "a", Group: workloadGroup, Own: true, NoQuota: true},
		func(string, attached.Workload) (now []journal.Step, _ error) {
			now, todo = todo, nil
			return now, nil
		})
	if have(none); err != nil {
		t.Fatal(err)
	}
	for _, resized := range []string{"150000 100000", "200000 100000"} {
		if err = l.Redo(t.Context(), at, lifted(resized)); err != nil {
			t.Error(err)
		}
		have(none)
	}
	if found, derr := l.Drift(t.Context()); derr != nil || len(found) > 0 {
		t.Errorf("%+v %v", found, derr)
	}
	if err = l.Detach(t.Context(), at); err != nil {
		t.Error(err)
	}
	have("200000 100000")
}
