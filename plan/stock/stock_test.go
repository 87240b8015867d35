package stock_test

import (
	"fmt"
	"testing"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/stock"
)

// A lane that is put and popped leaves the machine as it was, also where it shares CPUs with others.
func TestPutAndPop(t *testing.T) {
	h := hosttest.Machine{Packages: 2, CoresPerPackage: 4, ThreadsPerCore: 2}.Host(t) // 0,8 … 3,11 | 4,12 … 7,15
	on := func(name, cpus string, share int) plan.Lane {
		return plan.Lane{Name: name, CPUs: cpuset.MustParse(cpus), Spec: lane.Spec{CPUs: lane.CPUs{Share: share}}}
	}
	m := stock.New(h, []plan.Lane{on("a", "1,9", 1), on("b", "2-3", 2)})
	show := func() string {
		text := fmt.Sprint(m.Free(), m.WholeByNode(), m.LargestBlock(), m.FreeBeside(), len(m.Lanes))
		for id := range h.Usable().All() {
			text += fmt.Sprint(" ", m.Owner(id))
		}
		return text
	}
	const want = "0,4-8,10-15 [0 8] 8 4 2 -1 0 -2 -2 -1 -1 -1 -1 -1 0 -1 -1 -1 -1 -1 -1"
	if got := show(); got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
	for _, l := range []plan.Lane{on("c", "3,11", 2), on("d", "4,12", 1), on("e", "2", 3)} {
		if m.Put(l); show() == want {
			t.Errorf("%s is not on the machine", l.Name)
		}
		if m.Pop(); show() != want {
			t.Errorf("without %s: got %s, want %s", l.Name, show(), want)
		}
	}
}

// Memory that one lane can have only from one node is taken there from a lane that can have it elsewhere.
func TestAllocate(t *testing.T) {
	h := hosttest.Machine{Packages: 2, CoresPerPackage: 2, ThreadsPerCore: 1}.Host(t)
	for i := range h.NUMANodes {
		h.NUMANodes[i].MemoryBytes = 4 << 30
	}
	const node0, both = stock.NodeSet(1), stock.NodeSet(3)
	m := stock.New(h, nil)
	got, ok := m.Allocate([]stock.Need{{Bytes: 3 << 30, Nodes: both, From: node0}, {Bytes: 3 << 30, Nodes: node0, From: node0}})
	if want := "[{[{0 1073741824} {1 2147483648}] []} {[{0 3221225472}] []}]"; !ok || fmt.Sprint(got) != want {
		t.Errorf("got %v %v, want %s", got, ok, want)
	}
	// 512 MiB stay housekeeping's.
	for bytes, want := range map[uint64]bool{7<<30 + 512<<20: true, 7<<30 + 512<<20 + 1: false} {
		if _, ok := m.Allocate([]stock.Need{{Bytes: bytes, Nodes: both}}); ok != want {
			t.Errorf("%d bytes: %v", bytes, ok)
		}
	}
}

// Packages are told apart whatever numbers the kernel has for them: on Arm they may be places in a table of the firmware.
func TestPackages(t *testing.T) {
	h := hosttest.Machine{Packages: 2, CoresPerPackage: 2, ThreadsPerCore: 1}.Host(t)
	for i := range h.CPUs {
		*h.CPUs[i].Package += 20000
	}
	m := stock.New(h, nil)
	for cpus, want := range map[string]bool{"1": true, "2": false} {
		if got := m.OverlapAt(cpuset.Of(0), cpuset.MustParse(cpus), "package"); got != want {
			t.Errorf("CPUs 0 and %s: %v, expected %v", cpus, got, want)
		}
	}
}
