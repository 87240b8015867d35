package enforce_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/enforce/attached"
	"isolane.dev/isolane/enforce/guard"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/knob"
	"isolane.dev/isolane/plan"
)

// A guard reports the same drift as the lanes, puts it back at most three times a minute, and does not report
// what the kernel refused.
func TestGuard(t *testing.T) {
	s := enforce.NewStandIn(t)
	ops := knob.Ops(s.Dir())
	ops[change.KindFile] = enforce.Refusing(ops[change.KindFile], "/proc/irq/25/smp_affinity_list")
	s.Apply(t, ops)
	g, err := guard.New(s.State(), s.FS(t), enforce.Drivers{Ops: ops})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	const mask = "proc/irq/default_smp_affinity"
	for n := range 5 {
		found, err := g.Check(t.Context(), false)
		if err != nil || len(found) > 0 || len(g.Left()) > 0 {
			t.Fatalf("before change %d: %+v, %v", n, found, err)
		}
		s.Write(t, mask, "0000000f")
		if found, err = g.Check(t.Context(), false); err != nil || len(found) != 1 || found[0].Name != "/"+mask {
			t.Fatalf("change %d: %+v, %v", n, found, err)
		}
		l, err := enforce.Look(s.State(), s.FS(t), enforce.Drivers{Ops: ops})
		if err != nil {
			t.Fatal(err)
		}
		want, err := l.Drift(t.Context())
		if found[0].By = ""; err != nil || cmp.Diff(want, found) != "" {
			t.Errorf("%v (-lanes +guard):\n%s", err, cmp.Diff(want, found))
		}
		found, err = g.Check(t.Context(), true)
		if err != nil || len(found) != 1 {
			t.Fatalf("repair %d: %+v, %v", n, found, err)
		}
		now, err := os.ReadFile(filepath.Join(s.Dir(), mask))
		switch tired := n >= 3; {
		case err != nil:
			t.Fatal(err)
		case !tired && (!found[0].Repaired || strings.TrimSpace(string(now)) != "00000003"):
			t.Errorf("repair %d: %+v, it is %s", n, found, now)
		case tired && (found[0].Repaired || !strings.Contains(found[0].Note, "has changed this 3 times") || len(g.Left()) != 1):
			t.Errorf("repair %d: %+v", n, found)
		}
		if n >= 3 {
			return
		}
	}
}

// Drift that cannot be put back is reported once. It waits twice as long each time, unless something comes or
// goes. If a lane's CPU is offline, status reports that too, and recover does not say it is repaired.
func TestGuardWaits(t *testing.T) {
	s := enforce.NewStandIn(t)
	s.Apply(t, knob.Ops(s.Dir()))
	const mask, cpus = "/proc/irq/default_smp_affinity", "/sys/devices/system/cpu/online"
	ops := knob.Ops(s.Dir())
	ops[change.KindFile] = enforce.Refusing(ops[change.KindFile], mask)
	g, err := guard.New(s.State(), s.FS(t), enforce.Drivers{Ops: ops})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	records := func() int64 {
		info, serr := os.Stat(filepath.Join(s.State(), "lanes.journal"))
		if serr != nil {
			t.Fatal(serr)
		}
		return info.Size()
	}
	s.Write(t, mask, "0000000f")
	const checks = 10
	tried, told := 0, 0
	for n := range checks + 1 {
		if n == checks {
			if tried == 0 || tried == checks || told != 1 {
				t.Errorf("tried %d times of %d, told %d times", tried, checks, told)
			}
			s.Write(t, cpus, "0-2")
		}
		before := records()
		found, cerr := g.Check(t.Context(), true)
		if cerr != nil {
			t.Fatal(cerr)
		}
		again := records() > before
		if told += len(found); again {
			tried++
		}
		if n == checks && (!again || told != 2 || len(g.Left()) != 2) {
			t.Errorf("a CPU gone: tried again %v, %+v, left %+v", again, found, g.Left())
		}
	}
	s.Write(t, mask, "00000003")
	l := s.Open(t)
	status, err := l.Status(t.Context())
	if err != nil || len(status.Drift) != 1 || status.Drift[0].Name != cpus ||
		status.Drift[0].Note != "lane a has lost CPUs 3, which are offline: bring them online, or release the lane" {
		t.Errorf("status: %+v, %v", status.Drift, err)
	}
	if found, err := l.Recover(t.Context(), noAttach); err != nil || len(found) != 1 || found[0].Repaired {
		t.Errorf("recover: %+v, %v", found, err)
	}
}

// counting counts how often a setting is read.
type counting struct {
	journal.Op
	target string
	reads  *int
}

func (c counting) Read(ctx context.Context, s journal.Step) (string, error) {
	if s.Target == c.target {
		*c.reads++
	}
	return c.Op.Read(ctx, s)
}

// The governor of a lane's offline CPU waits for the CPU, is not tried each second, and is told with its lane.
func TestGuardWaitsForCPU(t *testing.T) {
	s := enforce.NewStandIn(t)
	const policy = "/sys/devices/system/cpu/cpufreq/policy2/"
	governor := filepath.Join(s.Dir(), policy, "scaling_governor")
	s.Write(t, policy+"scaling_governor", "powersave")
	s.Write(t, policy+"affected_cpus", "2")
	s.Apply(t, knob.Ops(s.Dir()))
	if err := errors.Join(os.Remove(governor), os.Mkdir(governor, 0o700)); err != nil { // now it cannot be read
		t.Fatal(err)
	}
	s.Write(t, policy+"affected_cpus", "")
	s.Write(t, "sys/devices/system/cpu/online", "0-1,3")
	ops, tried := knob.Ops(s.Dir()), 0
	ops[change.KindFile] = counting{ops[change.KindFile], policy + "scaling_governor", &tried}
	g, err := guard.New(s.State(), s.FS(t), enforce.Drivers{Ops: ops})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	const checks = 10
	for range checks {
		if _, err = g.Check(t.Context(), true); err != nil {
			t.Fatal(err)
		}
	}
	if tried == 0 || tried == checks {
		t.Errorf("tried %d times of %d", tried, checks)
	}
	l := s.Open(t)
	if _, err = l.Put(t.Context(), l.Placement, noAttach); err != nil {
		t.Fatal(err)
	}
	if w := l.Waiting(); len(w) != 1 || cmp.Diff([]string{"a"}, w[0].Lanes) != "" {
		t.Errorf("waiting: %+v", w)
	}
}

// New interrupts of a lane's queue, after its driver was loaded again, go to the lane's CPU. If the card then
// has fewer queues, that is reported. After the release all fire where they did before.
func TestGuardFindsNewInterrupts(t *testing.T) {
	s := enforce.NewStandIn(t)
	const address = "0000:31:00.0"
	s.Write(t, "sys/bus/pci/devices/"+address+"/class", "0x020000")
	if err := os.MkdirAll(filepath.Join(s.Dir(), "sys/bus/pci/devices", address, "net/eth1"), 0o755); err != nil {
		t.Fatal(err)
	}
	load := func(first int, actions ...string) {
		table := "     CPU0 CPU1 CPU2 CPU3\n"
		for i, action := range actions {
			table += fmt.Sprintf(" %d: 0 0 0 0 PCI-MSIX-%s %d-edge %s\n", first+i, address, i, action)
			s.Write(t, fmt.Sprintf("proc/irq/%d/smp_affinity_list", first+i), "0-3")
			s.Write(t, fmt.Sprintf("proc/irq/%d/%s/nothing", first+i, action), "")
		}
		s.Write(t, "proc/interrupts", table)
	}
	where := func(irq int) string {
		now, err := os.ReadFile(fmt.Sprintf("%s/proc/irq/%d/smp_affinity_list", s.Dir(), irq))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(now))
	}
	load(30, "eth1", "eth1-TxRx-0", "eth1-TxRx-1")
	d := enforce.Drivers{Ops: knob.Ops(s.Dir())}
	l, err := enforce.Open(s.State(), s.FS(t), d)
	if err != nil {
		t.Fatal(err)
	}
	nic := plan.Lane{Name: "nic", CPUs: cpuset.Of(2), Devices: []plan.Device{{Address: address}},
		Interrupts: []plan.Interrupt{{IRQ: 32, CPU: 2}}}
	nic.Spec.CPUs.Count, nic.Spec.Network.Device, nic.Spec.Network.Queues = 1, "eth1", 1
	placed := plan.Placement{APIVersion: plan.APIVersion, Kind: plan.Kind, Lanes: []plan.Lane{nic}}
	if err = errors.Join(l.Apply(t.Context(), placed), l.Close()); err != nil {
		t.Fatal(err)
	}
	if got := where(30) + " " + where(31) + " " + where(32); got != "0-1,3 0-1,3 2" {
		t.Errorf("in force: %s", got)
	}
	g, err := guard.New(s.State(), s.FS(t), d)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	for _, first := range []int{31, 40} { // the same numbers, then others
		for irq := first - 9; irq < first; irq++ {
			if err = os.RemoveAll(fmt.Sprintf("%s/proc/irq/%d", s.Dir(), irq)); irq > 26 && err != nil {
				t.Fatal(err)
			}
		}
		load(first, "eth1", "eth1-TxRx-0")
		var found []enforce.Drift
		if found, err = g.Check(t.Context(), false); err != nil || len(found) != 2 {
			t.Errorf("interrupts from %d: %+v, %v", first, found, err)
		}
		found, err = g.Check(t.Context(), true)
		if got := where(first) + " " + where(first+1); err != nil || got != "0-1,3 2" {
			t.Errorf("interrupts from %d: %s, %+v, %v", first, got, found, err)
		}
	}
	w, err := g.Watched("nic")
	if err != nil || w.Interrupts[41] != 2 {
		t.Errorf("watched: %v, %v", w.Interrupts, err)
	}
	if err = os.RemoveAll(s.Dir() + "/proc/irq/41"); err != nil {
		t.Fatal(err)
	}
	load(40, "eth1")
	found, err := g.Check(t.Context(), true)
	if err != nil || len(found) == 0 || found[0].Expected != "queues of eth1: 1" {
		t.Errorf("no queue: %+v, %v", found, err)
	}
	if l, err = enforce.Open(s.State(), s.FS(t), d); err != nil {
		t.Fatal(err)
	}
	if err = errors.Join(l.Apply(t.Context(), plan.Placement{APIVersion: plan.APIVersion, Kind: plan.Kind}), l.Close()); err != nil || where(40) != "0-3" {
		t.Errorf("released: interrupt 40 on %s, %v", where(40), err)
	}
}

// A cgroup that came after the plan, and has a lane's CPU at two looks, is narrowed. At the first it may be one
// that somebody is making just now.
func TestGuardFindsWidened(t *testing.T) {
	s := enforce.NewStandInOf(t, "cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0")
	d := enforce.Drivers{Ops: knob.Ops(s.Dir())}
	s.Apply(t, d.Ops)
	g, err := guard.New(s.State(), s.FS(t), d)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	const group = "/sys/fs/cgroup/cpuset/late"
	s.Write(t, group+"/cgroup.procs", "")
	for _, cpus := range []string{"0-1", "0-2"} {
		s.Write(t, group+"/cpuset.cpus", cpus)
		if found, cerr := g.Check(t.Context(), true); cerr != nil || len(found) > 0 {
			t.Fatalf("%s: %+v, %v", cpus, found, cerr)
		}
	}
	found, err := g.Check(t.Context(), true)
	now, rerr := os.ReadFile(s.Dir() + group + "/cpuset.cpus")
	if err = errors.Join(err, rerr); err != nil || len(found) != 1 || found[0].Name != group+"/cpuset.cpus" ||
		found[0].Expected != "0-1" || found[0].Found != "0-2" || !found[0].Repaired || strings.TrimSpace(string(now)) != "0-1" {
		t.Errorf("%+v, %v, it has %s", found, err, now)
	}
	if found, err = g.Check(t.Context(), true); err != nil || len(found) > 0 || len(g.Left()) > 0 {
		t.Errorf("again: %+v, %v", found, err)
	}
	// A look that plans anew, for another reason, does not take one that is being made for one that was widened.
	const made = "/sys/fs/cgroup/cpuset/made"
	s.Write(t, made+"/cgroup.procs", "")
	s.Write(t, made+"/cpuset.cpus", "0-2")
	s.Write(t, "proc/irq/77/smp_affinity_list", "0-1")
	for _, want := range []int{0, 1} {
		if found, err = g.Check(t.Context(), true); err != nil || len(found) != want {
			t.Errorf("made just now: %+v, %v; expected %d", found, err, want)
		}
	}
}

// The lane of a workload that has ended gets a cgroup of its own, which is told to nobody as a change by others, and
// hands back what the former one was handed down. The next workload has the lane in its own cgroup again.
func TestGuardMovesOrphan(t *testing.T) {
	s := enforce.NewStandIn(t)
	if err := os.RemoveAll(s.Dir() + "/run/systemd"); err != nil {
		t.Fatal(err)
	}
	s.Apply(t, knob.Ops(s.Dir()))
	const pod, own = "/sys/fs/cgroup/pods", "/sys/fs/cgroup/isolane-a"
	s.Write(t, pod+"/cgroup.subtree_control", "")
	s.Write(t, pod+"/cpuset.cpus.exclusive", "")
	reads := func(file, want string) {
		t.Helper()
		if now, err := os.ReadFile(s.Dir() + file); err != nil || strings.TrimSpace(string(now)) != want {
			t.Errorf("%s: %q %v, expected %q", file, now, err, want)
		}
	}
	begin := func(group string) {
		t.Helper()
		for name, text := range map[string]string{"cgroup.procs": "15", "cpuset.cpus": "", "cpuset.mems": "", "cpuset.cpus.exclusive": "",
			"cpuset.cpus.partition": knob.Member} {
			s.Write(t, filepath.Join(group, name), text)
		}
		l := s.Open(t)
		at, why, err := l.Attach(t.Context(), attached.Workload{Lane: "a", Group: group, Own: true},
			func(string, attached.Workload) ([]journal.Step, error) { return nil, nil })
		if err = errors.Join(err, l.Close()); err != nil || !at.Own {
			t.Fatal(at, why, err)
		}
		reads(group+"/cpuset.cpus.partition", knob.Isolated)
		reads(pod+"/cpuset.cpus.exclusive", "2")
		if _, err = os.Stat(s.Dir() + own); err == nil {
			t.Errorf("%s is still there", own)
		}
	}
	begin(pod + "/first")
	g, err := guard.New(s.State(), s.FS(t), enforce.Drivers{Ops: knob.Ops(s.Dir())})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	look := func() {
		t.Helper()
		found, cerr := g.Check(t.Context(), true)
		found = slices.DeleteFunc(found, func(d enforce.Drift) bool { return d.Step == journal.Step{} }) // that it has ended
		if cerr != nil || len(found) > 0 || len(g.Left()) > 0 {
			t.Errorf("%+v, left %+v, %v", found, g.Left(), cerr)
		}
	}
	look()
	if err = os.RemoveAll(s.Dir() + pod + "/first"); err != nil {
		t.Fatal(err)
	}
	look()
	reads(own+"/cpuset.cpus.partition", knob.Isolated)
	reads(pod+"/cpuset.cpus.exclusive", "")
	begin(pod + "/second")
	look()
}
