package agent

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/hub/desired"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/lanes"
)

func TestMain(m *testing.M) {
	hosttest.Main(m, func() (bool, error) { return lanes.Entry(context.Background(), lanes.Options{}, os.Args) })
}

// The remains of a reservation, as after a kill, do not end an Instance of the same name.
func TestReservationOfAnInstance(t *testing.T) {
	o := Options{Dir: t.TempDir()}
	mark, record := o.file("running/router.reserved"), o.file("running/router.json")
	if err := os.Mkdir(o.file("running"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{mark, record} {
		if err := os.WriteFile(file, []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a := &Agent{instances: o.instances(), server: &server{heard: time.Now()}, desired: &desired.Agent{State: desired.State{
		Instances: map[string]desired.Instance{"new": {Name: "router"}}}}}
	err := a.recall()
	if err != nil || a.reserved["old"].name != "router" {
		t.Fatal(a.reserved, err)
	}
	for uid, r := range a.reserved { // long ago
		r.since = r.since.Add(-time.Hour)
		a.reserved[uid] = r
	}
	if err = a.settle(t.Context()); err != nil || len(a.reserved) != 0 {
		t.Error(a.reserved, err)
	}
	if _, err = os.Stat(record); err != nil {
		t.Error("the Instance was ended:", err)
	}
	if _, err = os.Stat(mark); err == nil {
		t.Error("the reservation is left")
	}
	said, err := a.decide(t.Context(), "other", api.Instance{ObjectMeta: metav1.ObjectMeta{Name: "router"}})
	if err != nil || said.Phase != api.Refused {
		t.Error(said, err)
	}
}

// Asking whether an agent runs keeps no agent from starting.
func TestRuns(t *testing.T) {
	o := Options{Dir: t.TempDir()}
	if o.runs() {
		t.Error("found an agent where none was ever")
	}
	lock, err := o.lock()
	if err != nil || !o.runs() {
		t.Fatalf("expected one that runs, %v", err)
	}
	if _, err = o.lock(); err == nil {
		t.Error("a second agent has the folder")
	}
	if err = lock.Close(); err != nil || o.runs() {
		t.Errorf("expected none any more, %v", err)
	}
	asked, stop := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(asked)
		for {
			select {
			case <-stop:
				return
			default:
				o.runs()
			}
		}
	}()
	for range 2000 {
		if lock, err = o.lock(); err != nil {
			t.Errorf("an agent that begins while somebody asks: %v", err)
			break
		}
		if err = lock.Close(); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	<-asked
}

// When a hold ends, also by itself, what it has put off is asked for at once.
func TestHoldEnds(t *testing.T) {
	a := &Agent{o: Options{Dir: t.TempDir()}, news: make(chan struct{}, 1),
		desired: &desired.Agent{Save: func(desired.State) error { return nil }}}
	now, err := moment()
	if err != nil {
		t.Fatal(err)
	}
	for want, left := range []time.Duration{time.Hour, 1} {
		a.desired.State.Hold = &desired.Hold{Left: left, Since: now}
		if err = a.takeHold(t.Context()); err != nil || len(a.news) != want || (a.desired.State.Hold == nil) != (want == 1) {
			t.Errorf("%s left: %d talks, hold %+v, %v", left, len(a.news), a.desired.State.Hold, err)
		}
	}
}

// A measurement beside a lane is reported with its bound, and no longer as held when another lane has come.
func TestProofs(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.CgroupCpuset, hosttest.CPUs(2))
	o := lanes.Options{Dir: filepath.Join(t.TempDir(), "lanes")}
	want, err := api.Lane("proved", json.RawMessage(`{"cpus":{"count":1,"share":2},"objective":{"rtt":{"p99.9":"50us"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	l, _, err := lanes.OpenPatiently(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err = l.Release(context.Background(), l.Names()...); errors.Join(err, l.Close()) != nil {
			t.Error(err)
		}
	}()
	put := func(want lane.Lane) {
		t.Helper()
		placed, _, perr := l.Want([]lane.Lane{want}, false)
		if perr == nil {
			_, perr = l.Put(t.Context(), placed)
		}
		if perr != nil {
			t.Fatal(perr)
		}
	}
	told := func(verdict lane.Verdict) {
		t.Helper()
		all, perr := proofs(t.Context(), l)
		if perr != nil || len(all) != 1 || all[0].Lane != "proved" || all[0].Bound != "rtt p99.9 at most 50us" || all[0].Verdict != verdict {
			t.Errorf("found %+v, %v; expected one that is %s", all, perr, verdict)
		}
	}
	put(want)
	told(lane.Unproven)
	conditions, err := l.Conditions("proved")
	if err == nil {
		err = l.Proved("proved", lane.Proof{Conditions: conditions,
			Judgements: []lane.Judgement{{Bound: want.Spec.Objective.Bounds()[0], Verdict: lane.Held}}})
	}
	if err != nil {
		t.Fatal(err)
	}
	told(lane.Held)
	other := want
	other.Metadata.Name, other.Spec.Objective = "other", lane.Objective{}
	put(other)
	told(lane.Unproven)
}

// An agent claims its folder even if that is on a read-only disk.
func TestLockOfReadOnlyDisk(t *testing.T) {
	hosttest.OwnMounts(t)
	o := Options{Dir: t.TempDir()}
	lock, err := o.lock() // the file is there from now on
	if err == nil {
		err = errors.Join(lock.Close(), unix.Mount(o.Dir, o.Dir, "", unix.MS_BIND, ""),
			unix.Mount("", o.Dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if uerr := unix.Unmount(o.Dir, 0); uerr != nil {
			t.Error(uerr)
		}
	}()
	lock, err = o.lock()
	if err != nil || !o.runs() {
		t.Fatalf("expected an agent that runs, %v", err)
	}
	if _, err = o.lock(); err == nil {
		t.Error("a second agent has the folder")
	}
	if err = lock.Close(); err != nil || o.runs() {
		t.Errorf("expected none any more, %v", err)
	}
}
