package enforce

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/knob"
	"isolane.dev/isolane/plan"
)

// machine returns a host with four CPUs whose settings have their usual values.
func machine(t *testing.T, mounts string) (fstest.MapFS, host.Host) {
	t.Helper()
	root := hosttest.Machine{Packages: 1, CoresPerPackage: 4, ThreadsPerCore: 1}.FS()
	files, err := txtar.ParseFile("../knob/testdata/machine.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files.Files {
		root[f.Name] = &fstest.MapFile{Data: f.Data}
	}
	root["proc/mounts"] = &fstest.MapFile{Data: []byte(mounts + "\n")}
	root["sys/class/net/br0"] = &fstest.MapFile{Mode: fs.ModeSymlink, Data: []byte("../../devices/virtual/net/br0")}
	h, err := host.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	return root, h
}

// placement returns a lane with a CPU, that CPU's sibling, hugepages and a queue of its device.
func placement() plan.Placement {
	l := plan.Lane{Name: "a", CPUs: cpuset.Of(2), Idle: cpuset.Of(3), MemoryNodes: cpuset.Of(0),
		Hugepages:  []plan.Hugepages{{Node: 0, PageBytes: 2 << 20, Pages: 20, Reserve: 12}},
		Interrupts: []plan.Interrupt{{IRQ: 26, CPU: 2}}}
	l.Spec.Scheduling.Policy, l.Spec.Scheduling.Priority = "fifo", 1
	l.Spec.CPUs.Count = 1
	return plan.Placement{APIVersion: plan.APIVersion, Kind: plan.Kind, Housekeeping: cpuset.MustParse("0-1"), Lanes: []plan.Lane{l}}
}

// TestLaneOnThisHost does the steps of a lane on this host, checks that none is left to do, and undoes them.
func TestLaneOnThisHost(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.CgroupCpuset, hosttest.CPUs(2))
	root := host.Live()
	h, err := host.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	lane := cpuset.Of(h.Usable().Last())
	p := plan.Placement{Housekeeping: h.Usable().Difference(lane), Lanes: []plan.Lane{
		{Name: "test-lane", CPUs: lane, MemoryNodes: h.MemoryNodes()}}}
	before := knobValues(t)
	j, err := journal.Open(filepath.Join(t.TempDir(), "run"), "test", knob.Ops("/"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err = errors.Join(j.Undo(context.Background()), j.Close()); err != nil {
			t.Error(err)
		}
		if d := cmp.Diff(before, knobValues(t)); d != "" {
			t.Errorf("left changed (-before +after):\n%s", d)
		}
	}()
	steps, err := knob.Steps(knob.View{Root: root, Host: h}, p)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = j.Apply(t.Context(), steps); err != nil {
		t.Fatal(err)
	}
	after, err := host.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	if after.Usable() != p.Housekeeping {
		t.Errorf("this test may still use CPUs %s, want %s", after.Usable(), p.Housekeeping)
	}
	again, err := knob.Steps(knob.View{Root: root, Host: after}, p)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range again {
		inForce, now, err := j.InForce(t.Context(), s)
		if err == nil && !inForce && !s.Optional {
			t.Errorf("not in force: %s (reads %q)", s, now)
		}
	}
}

// knobValues returns the settings of the host that a lane changes.
func knobValues(t *testing.T) map[string]string {
	t.Helper()
	values, err := hosttest.ReadState()
	if err != nil {
		t.Fatal(err)
	}
	values = values.WithoutWorkers()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "Cpus_allowed_list") {
			values["this process"] = line
		}
	}
	return values
}

func writeJSON(t *testing.T, file string, v any) {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err = os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
