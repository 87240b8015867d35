package enforce

import (
	"context"
	"errors"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/knob"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/plan"
)

// emptyPath is a path that makes nothing.
type emptyPath struct{ netpath.Path }

func (emptyPath) Name() string                                 { return "nowhere" }
func (emptyPath) Declared(lane.Network) error                  { return nil }
func (emptyPath) Steps([]netpath.Lane) ([]journal.Step, error) { return nil, nil }

// hookedFS is a machine that does something before its first file is read.
type hookedFS struct {
	fileOp
	first *func()
}

func (l hookedFS) Read(ctx context.Context, s journal.Step) (string, error) {
	if first := *l.first; first != nil {
		*l.first = nil
		first()
	}
	return l.fileOp.Read(ctx, s)
}

// segment returns a segment with a neighbour in a namespace, and a placement without and one with a lane on
// it. ip runs ip(8).
func segment(t *testing.T) (ip func(string), one, two plan.Placement) {
	t.Helper()
	hosttest.Need(t, hosttest.Root)
	ip = func(line string) {
		if out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %s", line, out)
		}
	}
	ip("netns add isl-test-ask")
	t.Cleanup(func() { ip("netns del isl-test-ask") })
	ip("link add isl-test-ask type veth peer name eth0 netns isl-test-ask")
	t.Cleanup(func() { ip("link del isl-test-ask") }) // which the end of the namespace does some time later
	ip("link set isl-test-ask up")
	ip("-n isl-test-ask link set eth0 up")
	one = placement()
	one.Lanes[0].CPUs, one.Lanes[0].Idle = cpuset.Of(2), cpuset.Set{}
	two = one
	other := plan.Lane{Name: "b", CPUs: cpuset.Of(3), MemoryNodes: cpuset.Of(0)}
	other.Spec.CPUs.Count = 1
	other.Spec.Network = lane.Network{Path: "nowhere", Device: "isl-test-ask",
		Addresses: []lane.Address{{Prefix: netip.MustParsePrefix("198.18.7.9/24")}}}
	two.Lanes = append([]plan.Lane{}, one.Lanes[0], other)
	return ip, one, two
}

// The segment is asked while what is in force is read. A neighbour that gets a lane's address during that
// read is found, and nothing has changed.
func TestReadsWhileTheSegmentIsAsked(t *testing.T) {
	ip, one, two := segment(t)
	b := standIn(t, "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0")
	for try := range 10 { // on a busy machine the read may come after the questions
		var first func()
		ops := knob.Ops(b.root)
		ops[change.KindFile] = hookedFS{ops[change.KindFile].(fileOp), &first}
		l, err := Open(b.state, b.fs(t), Drivers{Ops: ops, Paths: []netpath.Path{emptyPath{}}})
		if err == nil {
			_, err = l.Put(t.Context(), one, noAttach)
		}
		if err != nil {
			t.Fatal(err)
		}
		was := b.fingerprint(t)
		first = func() { ip("-n isl-test-ask addr add 198.18.7.9/24 dev eth0") }
		_, err = l.Put(t.Context(), two, noAttach)
		ip("-n isl-test-ask addr del 198.18.7.9/24 dev eth0")
		var refusal *plan.Refusal
		switch is := errors.As(err, &refusal) && strings.Contains(err.Error(), "198.18.7.9 is in use"); {
		case err != nil && !is:
			t.Fatal(err)
		case is:
			for file, text := range b.fingerprint(t) {
				if was[file] != text {
					t.Errorf("%s was %q and is %q", file, was[file], text)
				}
			}
		}
		if cerr := l.Close(); cerr != nil {
			t.Fatal(cerr)
		}
		if err != nil {
			return
		}
		t.Log("try ", try, ": read too late")
	}
	t.Error("nobody who came while the host was read was found")
}

// Answers from the time of planning count when the lanes are put in force, and only for these lanes.
func TestAskedBeforePlanning(t *testing.T) {
	ip, one, two := segment(t)
	b := standIn(t, "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0")
	l, err := Open(b.state, b.fs(t), Drivers{Ops: knob.Ops(b.root), Paths: []netpath.Path{emptyPath{}}})
	if err == nil {
		_, err = l.Put(t.Context(), one, noAttach)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ask := func() {
		ip("-n isl-test-ask addr add 198.18.7.9/24 dev eth0")
		l.Ask(t.Context(), []lane.Lane{two.Lanes[1].Declaration()}, false)
		l.questions.Close()
		ip("-n isl-test-ask addr del 198.18.7.9/24 dev eth0")
	}
	ask()
	if _, err = l.Put(t.Context(), two, noAttach); err == nil || !strings.Contains(err.Error(), "198.18.7.9 is in use") {
		t.Errorf("%v, expected the address in use", err)
	}
	ask()
	elsewhere := two
	elsewhere.Lanes = slices.Clone(two.Lanes)
	elsewhere.Lanes[1].Spec.Network.Addresses = []lane.Address{{Prefix: netip.MustParsePrefix("198.18.7.8/24")}}
	if _, err = l.Put(t.Context(), elsewhere, noAttach); err != nil {
		t.Errorf("another address: %v", err)
	}
}
