package enforce

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/enforce/attached"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/knob"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
)

func (b bench) open(t *testing.T) *Lanes {
	t.Helper()
	l, err := Open(b.state, b.fs(t), Drivers{Ops: knob.Ops(b.root)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil && !errors.Is(err, os.ErrClosed) { // the test may have closed it
			t.Error(err)
		}
	})
	return l
}

func (b bench) write(t *testing.T, name, text string) {
	t.Helper()
	name = filepath.Join(b.root, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text+"\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func noAttach(attached.Workload) error { return nil }

// The counts of Put: what somebody changed is put back, what a moved lane needs is changed, and a second Put
// does nothing. A lane that goes restores its own settings.
func TestPutCounts(t *testing.T) {
	b := standIn(t, "cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0")
	l := b.open(t)
	one := placement()
	c, err := l.Put(t.Context(), one, noAttach)
	if err != nil || c.Changed != l.Settings() || c.Changed == 0 || len(c.PutBack)+c.TakenBack+len(c.Moved) != 0 || len(c.Added) != 1 {
		t.Fatalf("first: %+v, %v", c, err)
	}
	nothingDone := Change{Added: []string{}, Removed: []string{}, Moved: []Moved{}, PutBack: []Drift{}, Outside: []Outside{}}
	if c, err = l.Put(t.Context(), one, noAttach); err != nil || cmp.Diff(nothingDone, c) != "" {
		t.Errorf("again: %+v, %v", c, err)
	}
	b.write(t, "proc/irq/default_smp_affinity", "0000000f")
	b.write(t, "proc/irq/24/smp_affinity_list", "0-3")
	b.write(t, "sys/fs/cgroup/cpuset/isolane-a/cgroup.procs", "15")
	other := one
	other.Lanes = []plan.Lane{one.Lanes[0]}
	other.Lanes[0].CPUs, other.Lanes[0].Idle = cpuset.Of(3), cpuset.Of(2)
	if c, err = l.Put(t.Context(), other, noAttach); err != nil || len(c.PutBack) != 2 || c.Changed == 0 ||
		cmp.Diff([]Moved{{Lane: "a", From: "2", To: "3", Processes: 1}}, c.Moved) != "" {
		t.Errorf("moved: %+v, %v", c, err)
	}
	settings := l.Settings()
	if c, err = l.Put(t.Context(), noLanes(), noAttach); err != nil || c.TakenBack != settings || len(c.Removed) != 1 {
		t.Errorf("removed: %+v, %v", c, err)
	}
}

// Hugepages that somebody adds to a pool are no drift, and stay when lanes want more, fewer or none any more.
func TestHugepagesAdded(t *testing.T) {
	b := standIn(t, "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0")
	const pool = "sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages" // the pool has 8
	l := b.open(t)
	for _, step := range []struct {
		add     string
		reserve uint64
		want    string
		drifts  bool
	}{{"", 12, "20", false}, {"25", 12, "25", false}, {"", 30, "43", false}, {"", 2, "15", false}, {"10", 2, "15", true},
		{"38", 2, "38", false}, {"", 7, "43", false}, {"44", 7, "44", false}, {"", 0, "37", false}} {
		if step.add != "" {
			b.write(t, pool, step.add)
		}
		p := placement()
		if p.Lanes[0].Hugepages[0].Reserve = step.reserve; step.reserve == 0 {
			p = noLanes()
		}
		s, err := l.Status(t.Context())
		if err != nil || (len(s.Drift) > 0) != step.drifts {
			t.Errorf("%+v: drift %+v, %v", step, s.Drift, err)
		}
		if _, err = l.Put(t.Context(), p, noAttach); err != nil {
			t.Fatal(err)
		}
		if now, err := os.ReadFile(filepath.Join(b.root, pool)); err != nil || strings.TrimSpace(string(now)) != step.want || len(l.Left) > 0 {
			t.Errorf("%+v: %s, %v, left %v", step, now, err, l.Left)
		}
	}
}

type fileOp interface {
	journal.Op
	File(s journal.Step) string
}

// refusing is an operation that refuses one setting, as a kernel may.
type refusing struct {
	fileOp
	target string
}

func (r refusing) Write(ctx context.Context, s journal.Step, value string) error {
	if s.Target == r.target {
		return unix.EIO
	}
	return r.fileOp.Write(ctx, s, value)
}

// Recover finds nothing to do, even if the kernel has refused something, and otherwise names what it repairs.
func TestRecoverNames(t *testing.T) {
	b := standIn(t, "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0")
	l := b.open(t)
	l.ops[change.KindFile] = refusing{l.ops[change.KindFile].(fileOp), "/proc/irq/25/smp_affinity_list"}
	if _, err := l.Put(t.Context(), placement(), noAttach); err != nil || len(l.Refused) == 0 {
		t.Fatal(l.Refused, err)
	}
	found, err := l.Recover(t.Context(), noAttach)
	if err != nil || len(found) != 0 {
		t.Errorf("%v, %v", found, err)
	}
	b.write(t, "proc/irq/default_smp_affinity", "0000000f")
	found, err = l.Recover(t.Context(), noAttach)
	if err != nil || len(found) != 1 || found[0].Name != "/proc/irq/default_smp_affinity" || found[0].Found != "0000000f" {
		t.Errorf("%v, %v", found, err)
	}
}

// --prune removes lanes that are not named in the same change, which frees their CPUs for others.
func TestWantPrune(t *testing.T) {
	b := standIn(t, "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0")
	l := b.open(t)
	three := lane.Lane{Metadata: lane.Metadata{Name: "old"}, Spec: lane.Spec{CPUs: lane.CPUs{Count: 3}}}
	p, _, err := l.Want([]lane.Lane{three}, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = l.Put(t.Context(), p, noAttach); err != nil {
		t.Fatal(err)
	}
	renamed := three
	renamed.Metadata.Name = "new"
	var refusal *plan.Refusal
	if _, _, err = l.Want([]lane.Lane{renamed}, false); !errors.As(err, &refusal) {
		t.Errorf("beside the old one: %v", err)
	}
	if p, _, err = l.Want([]lane.Lane{renamed}, true); err != nil || len(p.Lanes) != 1 {
		t.Fatal(p, err)
	}
	d, err := l.Diff(t.Context(), p)
	want := []LaneChange{{Name: "new", Change: "added", To: "1-3"}, {Name: "old", Change: "removed", From: "1-3"}}
	if err != nil || cmp.Diff(want, d.Lanes) != "" {
		t.Error(err, cmp.Diff(want, d.Lanes))
	}
	if c, err := l.Put(t.Context(), p, noAttach); err != nil || len(c.Added) != 1 || len(c.Removed) != 1 {
		t.Errorf("%+v, %v", c, err)
	}
}

// A lane of isolane run is released when that has ended, and not before.
func TestExpire(t *testing.T) {
	b := standIn(t, "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0")
	before := maps.Clone(b.fingerprint(t))
	l := b.open(t)
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	self := filepath.Join("proc", strings.Fields(string(stat))[0], "stat")
	b.write(t, self, string(stat))
	if err = l.SetOwner("a", os.Getpid()); err != nil {
		t.Fatal(err)
	}
	if _, err = l.Put(t.Context(), placement(), noAttach); err != nil {
		t.Fatal(err)
	}
	names, err := l.Expire(t.Context())
	if err != nil || len(names) != 0 {
		t.Error(names, err)
	}
	if err = os.RemoveAll(filepath.Dir(filepath.Join(b.root, self))); err != nil {
		t.Fatal(err)
	}
	s, err := l.Status(t.Context())
	if err != nil || !s.Lanes[0].Abandoned || s.Settled() {
		t.Error(s, err)
	}
	if names, err = l.Expire(t.Context()); err != nil || len(names) != 1 || len(l.Runs) != 0 {
		t.Error(names, err, l.Runs)
	}
	if d := cmp.Diff(before, b.fingerprint(t)); d != "" {
		t.Errorf("(-before +after):\n%s", d)
	}
}

// Drift of a partition names the other cgroup that made it invalid.
func TestLostPartition(t *testing.T) {
	b := standIn(t, "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0")
	l := b.open(t)
	if _, err := l.Put(t.Context(), placement(), noAttach); err != nil {
		t.Fatal(err)
	}
	b.write(t, "sys/fs/cgroup/app/cpuset.cpus", "1-2")
	b.write(t, "sys/fs/cgroup/isolane-a/cpuset.cpus.partition", "isolated invalid (Cpu list in cpuset.cpus not exclusive)")
	s, err := l.Status(t.Context())
	if err != nil || len(s.Drift) != 1 || s.Drift[0].Note != "/sys/fs/cgroup/app/cpuset.cpus is 1-2: write 1 there, then isolane apply" {
		t.Fatal(s.Drift, err)
	}
	b.write(t, "sys/fs/cgroup/app/cpuset.cpus", "1")
	c, err := l.Put(t.Context(), l.Placement, noAttach)
	if err != nil || len(c.PutBack) != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	if s, err = l.Status(t.Context()); err != nil || !s.Settled() || s.Lanes[0].Partition != knob.Isolated {
		t.Errorf("%+v, %v", s, err)
	}
}

// workloadGroup is the cgroup of a workload in a stand-in. A lane can move into it.
const workloadGroup = "/sys/fs/cgroup/pods/web"

// withWorkload returns a stand-in in which that workload runs and a lane is in force.
func withWorkload(t *testing.T) (bench, *Lanes) {
	t.Helper()
	b := standIn(t, "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0")
	if err := os.RemoveAll(filepath.Join(b.root, "run/systemd")); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"cgroup.procs": "15", "cpuset.cpus": "", "cpuset.mems": "", "cpuset.cpus.exclusive": "",
		"cpuset.cpus.partition": "member", "../cgroup.subtree_control": "", "../cpuset.cpus.exclusive": ""} {
		b.write(t, filepath.Join(workloadGroup, name), text)
	}
	l := b.open(t)
	if _, err := l.Put(t.Context(), placement(), noAttach); err != nil {
		t.Fatal(err)
	}
	return b, l
}

// A lane in the cgroup of an ended workload is one drift, however many settings are gone.
func TestWorkloadEnded(t *testing.T) {
	b, l := withWorkload(t)
	at, why, err := l.Attach(t.Context(), attached.Workload{Lane: "a", Group: workloadGroup, Own: true},
		func(string, attached.Workload) ([]journal.Step, error) { return nil, nil })
	if err != nil || !at.Own {
		t.Fatal(at, why, err)
	}
	found, err := l.Drift(t.Context())
	if err != nil || len(found) > 0 {
		t.Errorf("%+v, %v", found, err)
	}
	b.write(t, "proc/irq/default_smp_affinity", "0000000f")
	for _, end := range []func() error{
		func() error { return os.WriteFile(filepath.Join(b.root, workloadGroup, "cgroup.procs"), nil, 0o600) },
		func() error { return os.RemoveAll(filepath.Join(b.root, workloadGroup)) },
	} {
		if err = end(); err != nil {
			t.Fatal(err)
		}
		found, err = l.Drift(t.Context())
		if err != nil || len(found) != 2 || found[0].Name != "lane a" || found[1].Name != "/proc/irq/default_smp_affinity" {
			t.Errorf("%+v, %v", found, err)
		}
	}
}

// TestBegunIsNotUndone kills isolane when the lane has moved into the workload's cgroup. The lane stays there
// and status reports it. recover completes the rest, and so does apply if the lane's declaration names the
// cgroup.
func TestBegunIsNotUndone(t *testing.T) {
	b, l := withWorkload(t)
	web := attached.Workload{Lane: "a", Group: workloadGroup, Own: true}
	partition := filepath.Join(b.root, workloadGroup, "cpuset.cpus.partition")
	func() {
		defer func() {
			if recover() == nil {
				t.Fatal("expected the test's kill")
			}
		}()
		_, _, _ = l.Attach(t.Context(), web, func(string, attached.Workload) ([]journal.Step, error) { panic("killed") })
	}()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	look, err := Look(b.state, b.fs(t), Drivers{Ops: knob.Ops(b.root)})
	if err != nil {
		t.Fatal(err)
	}
	if found, derr := look.Drift(t.Context()); derr != nil || len(found) != 1 || !strings.Contains(found[0].Note, "isolane recover") {
		t.Errorf("%+v %v", found, derr)
	}
	l = b.open(t)
	asked := 0
	l.ops[change.KindFile] = answering{l.ops[change.KindFile].(fileOp), partition[len(b.root):], map[string]string{}, &asked}
	var at attached.Workload
	goesOn := func(again attached.Workload) (aerr error) {
		at, _, aerr = l.Attach(t.Context(), again, func(string, attached.Workload) ([]journal.Step, error) { return nil, nil })
		return aerr
	}
	l.Attached[0].Declared, l.Placement.Lanes[0].Spec.Cgroup.Path = true, workloadGroup
	came := 0
	if _, err = l.Put(t.Context(), l.Placement, func(attached.Workload) error { came++; return nil }); err != nil || came != 1 {
		t.Errorf("with a declaration %d came in, %v", came, err)
	}
	l.Attached[0].Declared, l.Placement.Lanes[0].Spec.Cgroup.Path = false, ""
	found, err := l.Recover(t.Context(), goesOn)
	if err != nil || len(found) != 1 || !found[0].Repaired || !at.Own || at.Begun || !slices.Equal(l.Attached, []attached.Workload{at}) {
		t.Errorf("%+v %+v %v: %+v", found, at, err, l.Attached)
	}
	if text, rerr := os.ReadFile(partition); rerr != nil || strings.TrimSpace(string(text)) != knob.Isolated || asked > 0 {
		t.Errorf("partition %q, asked for %d times more, %v", text, asked, rerr)
	}
	// If attaching fails, the workload is out, and that is recorded.
	failed := errors.New("no")
	if err = l.Detach(t.Context(), at); err == nil {
		_, _, err = l.Attach(t.Context(), web, func(string, attached.Workload) ([]journal.Step, error) { return nil, failed })
	}
	if cerr := l.Close(); !errors.Is(err, failed) || cerr != nil || len(b.open(t).Attached) > 0 {
		t.Error(err, cerr)
	}
}

// A lane whose partition the kernel refuses gets the other kind or a plain cpuset, and the kernel is not
// asked again while the partition is the same.
func TestNextBest(t *testing.T) {
	const file = "/sys/fs/cgroup/isolane-a/cpuset.cpus.partition"
	for _, c := range []struct {
		name, level string
		answers     map[string]string // by the kind that is asked for
		causes      []Cause
		asked       int
	}{
		{"the other kind", knob.Balanced, map[string]string{knob.Isolated: "isolated invalid (partition config conflicts with housekeeping setup)"},
			[]Cause{BootIsolated}, 2},
		{"neither", knob.Member, map[string]string{knob.Isolated: "isolated invalid (Parent is not a partition root)",
			knob.Balanced: "root invalid (partition config conflicts with housekeeping setup)"}, []Cause{Errno, BootIsolated}, 2},
		{"not exclusive", knob.Member, map[string]string{knob.Isolated: "isolated invalid (Cpu list in cpuset.cpus not exclusive)"},
			[]Cause{NotExclusive}, 1},
	} {
		b := standIn(t, "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0")
		b.write(t, "sys/fs/cgroup/app/cpuset.cpus", "1-2")
		l := b.open(t)
		asked := 0
		l.ops[change.KindFile] = answering{l.ops[change.KindFile].(fileOp), file, c.answers, &asked}
		for range 2 {
			if _, err := l.Put(t.Context(), placement(), noAttach); err != nil {
				t.Fatal(c.name, err)
			}
			var causes []Cause
			for _, r := range l.Refused {
				if r.Target == file && r.Subject == Partition {
					causes = append(causes, r.Cause)
				}
			}
			if of, err := l.RefusedOf("a"); err != nil || len(of) != len(causes) || of[0].Cause != causes[0] {
				t.Errorf("%s: of its lane are %+v, %v", c.name, of, err)
			}
			s, err := l.Status(t.Context())
			if err != nil || !s.Settled() || s.Lanes[0].Partition != c.level || cmp.Diff(c.causes, causes) != "" || asked != c.asked {
				t.Errorf("%s: %+v, %v, asked %d times", c.name, s, err, asked)
			}
		}
		b.write(t, "sys/fs/cgroup/app/cpuset.cpus", "1")
		if _, err := l.Put(t.Context(), placement(), noAttach); err != nil || (asked > c.asked) != (c.causes[0] == NotExclusive) {
			t.Errorf("%s: asked %d times when nobody else has the CPUs, %v", c.name, asked, err)
		}
	}
}

// TestNextBestForAnotherKind changes the kind of a partition. If the kernel refuses the new kind and would
// refuse the old, the lane gets a plain cpuset.
func TestNextBestForAnotherKind(t *testing.T) {
	const file = "/sys/fs/cgroup/isolane-a/cpuset.cpus.partition"
	b := standIn(t, "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0")
	l, asked := b.open(t), 0
	l.ops[change.KindFile] = answering{l.ops[change.KindFile].(fileOp), file, map[string]string{
		knob.Balanced: "root invalid (Cpu list in cpuset.cpus not exclusive)"}, &asked}
	balanced, yes := placement(), true
	balanced.Lanes[0].Spec.CPUs.Balance = &yes
	for i, want := range []plan.Placement{placement(), balanced} {
		if _, err := l.Put(t.Context(), want, noAttach); err != nil {
			t.Fatal(err)
		}
		s, err := l.Status(t.Context())
		if err != nil || !s.Settled() || s.Lanes[0].Partition != []string{knob.Isolated, knob.Member}[i] {
			t.Errorf("%d: %+v, %v", i, s, err)
		}
	}
}

// answering simulates a kernel that answers a request for a kind of partition with what it makes of it.
type answering struct {
	fileOp
	target  string
	answers map[string]string
	asked   *int
}

func (a answering) Write(ctx context.Context, s journal.Step, value string) error {
	switch {
	case s.Target == a.target && value == "": // the kernel prints it so
		value = knob.Member
	case s.Target == a.target && value != knob.Member:
		*a.asked++
		if answer, ok := a.answers[value]; ok {
			value = answer
		}
	}
	return a.fileOp.Write(ctx, s, value)
}

// TestAlone has a workload whose lane is alone but no partition. The cpusets beside it, even later ones, lose
// the lane's CPUs, and get their former CPUs back when the workload leaves.
func TestAlone(t *testing.T) {
	b, l := withWorkload(t)
	p := placement()
	p.Lanes[0].Spec.Cgroup.Partition = knob.Member
	if _, err := l.Put(t.Context(), p, noAttach); err != nil {
		t.Fatal(err)
	}
	beside := func(name string) string {
		text, err := os.ReadFile(filepath.Join(b.root, filepath.Dir(workloadGroup), name, "cpuset.cpus"))
		if err != nil {
			t.Error(err)
		}
		return strings.TrimSpace(string(text))
	}
	b.write(t, filepath.Join(workloadGroup, "../db/cpuset.cpus"), "1-3")
	at, why, err := l.Attach(t.Context(), attached.Workload{Lane: "a", Group: workloadGroup, Own: true, Alone: true},
		func(string, attached.Workload) ([]journal.Step, error) { return nil, nil })
	if err != nil || !at.Own || !at.Alone {
		t.Fatal(at, why, err)
	}
	b.write(t, filepath.Join(workloadGroup, "../late/cpuset.cpus"), "")
	if err = l.Apply(t.Context(), l.Placement); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"web": "2", "db": "1", "late": "0-1"} {
		if has := beside(name); has != want {
			t.Errorf("%s has CPUs %s, expected %s", name, has, want)
		}
	}
	if err = errors.Join(l.Detach(t.Context(), at), l.Apply(t.Context(), l.Placement)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"web": "", "db": "1-3", "late": ""} {
		if has := beside(name); has != want {
			t.Errorf("%s has CPUs %q after its neighbour has left, expected %q", name, has, want)
		}
	}
}
