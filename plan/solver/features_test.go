package solver

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/quantity"
)

// vector is a real machine with two nodes of eight cores with two threads (0,16 … 7,23 on node 0), two
// network cards with virtual functions and 2,048 hugepages of 2 MiB on each node.
func vector(t *testing.T) host.Host {
	t.Helper()
	h, err := host.Read(hosttest.Snapshot(t, "hwloc/32intel64-2p8co2t+8ve.tar.bz2"))
	if err != nil {
		t.Fatal(err)
	}
	device := "0000:60:00.0"
	// The card's link, its queues, and what is neither.
	for i, name := range []string{"enp96s0f0", "enp96s0f0-TxRx-0", "i40e-0000:60:00.0:misc", "enp96s0f0-TxRx-1", "x_comp2@pci:0000:60:00.0"} {
		h.Interrupts = append(h.Interrupts, host.Interrupt{IRQ: 100 + i, Name: &name, Device: &device})
	}
	return h
}

func declare(t *testing.T, text string) []lane.Lane {
	t.Helper()
	var all []string
	for _, l := range strings.Split(strings.TrimSpace(text), "\n") {
		name, spec, _ := strings.Cut(strings.TrimSpace(l), ": ")
		all = append(all, "apiVersion: isolane.dev/v1alpha1\nkind: Lane\nmetadata: {name: "+name+"}\nspec: "+spec)
	}
	lanes, err := lane.Parse("test", strings.NewReader(strings.Join(all, "\n---\n")))
	if err != nil {
		t.Fatal(err)
	}
	return lanes
}

// A lane that may have the boot core, and may share, takes the thread that housekeeping would keep there: no
// core is shared with it then, and no whole core is broken.
func TestTakesTheBootCoresRest(t *testing.T) {
	h := vector(t)
	p, err := Solve(h, plan.Placement{}, declare(t, "a: {cpus: {count: 1, list: 0, boot: true}}\nc: {cpus: {count: 4}, near: {numaNode: 1}}"))
	if err != nil {
		t.Fatal(err)
	}
	p.Lanes[0].Spec.CPUs = lane.CPUs{Count: 1, Share: 2, Boot: true}
	if p, err = Solve(h, p, declare(t, "b: {cpus: {count: 1, share: 2, boot: true}, near: {numaNode: 0}}")); err != nil {
		t.Fatal(err)
	}
	if got := p.Lanes[2].CPUs.String(); got != "16" || p.Cost != (plan.Cost{}) {
		t.Errorf("CPUs %s, cost %+v", got, p.Cost)
	}
}

// Each wish, on a real machine: what the lanes get, and that the reasons say why.
func TestWishes(t *testing.T) {
	for _, c := range []struct{ name, lanes, want, reason string }{
		{"near a device", "a: {cpus: {count: 2}, near: {device: enp96s0f1}}", "a=1,17 idle  node 0", "node 0, because enp96s0f1 is there"},
		{"completes an L3", "a: {cpus: {count: 14}, near: {numaNode: 1}}\nb: {cpus: {count: 2}, near: {lane: a}}",
			"a=8-14,24-30 idle  node 1; b=15,31 idle  node 1", "CPUs 15,31, because they complete L3 8: the rest is of a"},
		{"apart from a lane of the same request", "a: {cpus: {count: 2}}\nb: {cpus: {count: 2}, apart: {lanes: [a], level: node}}",
			"a=1,17 idle  node 0; b=8,24 idle  node 1", ""},
		{"apart by core", "a: {cpus: {count: 1}}\nb: {cpus: {count: 1}, apart: {lanes: [a], level: core}}", "a=1 idle  node 0; b=2 idle  node 0", ""},
		{"four lanes to a CPU", "a: {cpus: {count: 1, share: 4}}\nb: {cpus: {count: 1, share: 4}}\nc: {cpus: {count: 1, share: 2}}\nd: {cpus: {count: 1, share: 4}}",
			"a=1 idle  node 0; b=1 idle  node 0; c=17 idle  node 0; d=1 idle  node 0", "up to 4 lanes share each CPU; 1 of the 1 had a lane already"},
		{"memory is where it fits", "a: {cpus: {count: 2}, memory: {size: 40Gi}}\nb: {cpus: {count: 2}, memory: {size: 20Gi}}",
			"a=1,17 idle  node 0; b=8,24 idle  node 1", "20Gi of memory on node 1"},
		{"memory of two nodes", "a: {cpus: {count: 2}, memory: {size: 60Gi}}", "a=1,17 idle  node 0-1", "memory of nodes 0-1: the nearest that have enough"},
		{"hugepages from the pool, the rest reserved", "a: {cpus: {count: 2}, near: {numaNode: 1}, memory: {hugepages: {2Mi: 5Gi}}}",
			"a=8,24 idle  node 1", "2560 hugepages of 2Mi on node 1, 512 of which have to be reserved"},
		{"a virtual function near by", "a: {cpus: {count: 2}, network: {path: sriov, vfs: 2}}", "a=1,17 idle  node 0",
			"virtual functions [0 1] of enp96s0f0, which have to be created first"},
		{"queues", "a: {cpus: {count: 2}, network: {path: express, device: enp96s0f0, queues: 3}}", "a=1,17 idle  node 0",
			"3 of 3 interrupts of enp96s0f0 go to the lane's CPUs"},
		{"near and apart, one of them preferred", "b: {cpus: {count: 2}}\na: {cpus: {count: 2}, near: {lane: b}, apart: {lanes: [b], level: node}, preferred: {apart: 1}}",
			"b=1,17 idle  node 0; a=2,18 idle  node 0", "without the wish apart"},
		{"a preferred wish that cannot hold", "a: {cpus: {count: 2, kind: efficiency}, preferred: {kind: 1}}", "a=1,17 idle  node 0",
			"without the wish kind, which is preferred (weight 1) and gives way"},
		{"the boot core, when told", "a: {cpus: {count: 16, boot: true, l3: one}, near: {numaNode: 0}}", "a=0-7,16-23 idle  node 0", "all of L3 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := Solve(vector(t), plan.Placement{}, declare(t, c.lanes))
			if err != nil {
				t.Fatal(err)
			}
			got, _, _ := strings.Cut(show(p), "; housekeeping")
			var reasons []string
			for _, l := range p.Lanes {
				reasons = append(reasons, l.Reasons...)
			}
			if got != c.want || !p.Optimal || !strings.Contains(strings.Join(reasons, "\n"), c.reason) {
				t.Errorf("%s, optimal %v, want %s\nreasons: %s\nwant: %s", got, p.Optimal, c.want, strings.Join(reasons, "\n"), c.reason)
			}
		})
	}
}

// What others use of a pool is theirs until they end: whoever reads the plan is told.
func TestPoolInUse(t *testing.T) {
	h := vector(t)
	h.NUMANodes = slices.Clone(h.NUMANodes)
	h.NUMANodes[0].Hugepages = []host.Hugepages{{PageBytes: 2 << 20, Total: new(uint64(2048)), Free: new(uint64(3))}}
	for size, want := range map[string]string{"6Mi": "3 hugepages of 2Mi on node 0", "8Mi": "4 hugepages of 2Mi on node 0; of the 2048 in its pool 3 are free now"} {
		p, err := Solve(h, plan.Placement{}, declare(t, "a: {cpus: {count: 1}, near: {numaNode: 0}, memory: {hugepages: {2Mi: "+size+"}}}"))
		if err != nil || !slices.Contains(p.Lanes[0].Reasons, want) {
			t.Errorf("%s: %v, %v; want %s", size, p, err, want)
		}
	}
}

// A refusal for virtual functions says how many are free, who has the others, and what helps.
func TestFewerFunctions(t *testing.T) {
	h := vector(t)
	h.PCIDevices = slices.Clone(h.PCIDevices)
	card := &h.PCIDevices[h.FindDevice("enp96s0f0")]
	ask := func(vfs int) string {
		_, err := Solve(h, plan.Placement{}, declare(t, fmt.Sprintf("a: {cpus: {count: 1}, network: {path: sriov, device: enp96s0f0, vfs: %d}}", vfs)))
		return fmt.Sprint(err)
	}
	card.SRIOV, card.VFs = &host.SRIOV{TotalVFs: 7}, nil
	const others = ": expected no more than are free, or another card"
	if got, want := ask(8), "spec.network.vfs: enp96s0f0 has 7 free virtual functions, the lane wants 8"+others; !strings.Contains(got, want) {
		t.Errorf("%s; want %s", got, want)
	}
	used := host.PCIDevice{Address: "0000:60:10.0", InUse: "eth2 is up"}
	card.SRIOV, card.VFs = &host.SRIOV{TotalVFs: 7, NumVFs: 2}, []string{used.Address, "0000:60:10.4"}
	h.PCIDevices = append(h.PCIDevices, used)
	if got, want := ask(2), "enp96s0f0 has 1 free virtual functions, the lane wants 2"+others+"; 0000:60:10.0: eth2 is up"; !strings.Contains(got, want) {
		t.Errorf("%s; want %s", got, want)
	}
}

// A refusal for hugepages says how many there are, and names as many as fit.
func TestFewerHugepages(t *testing.T) {
	for lanes, want := range map[string]string{
		"a: {cpus: {count: 1, numa: one}, memory: {hugepages: {2Mi: 100Gi}}}": "spec.memory.hugepages: 100Gi of 2Mi, where pools have 8Gi",
		"a: {cpus: {count: 1}, memory: {hugepages: {16Mi: 32Mi}}}":            "; cheapest change: leave out spec.memory.hugepages.16Mi",
	} {
		declared := declare(t, lanes)
		_, err := Solve(vector(t), plan.Placement{}, declared)
		var r *plan.Refusal
		if !errors.As(err, &r) || !strings.Contains(r.Error(), want) || r.Cheapest == nil {
			t.Fatalf("%s: %v; want %s", lanes, err, want)
		}
		text, named := strings.CutPrefix(r.Cheapest.Change, "spec.memory.hugepages.2Mi: ")
		if !named {
			continue
		}
		most, perr := quantity.ParseBytes(text)
		for more, fits := range map[quantity.Bytes]bool{0: true, 2 << 20: false} {
			declared[0].Spec.Memory.Hugepages = map[string]quantity.Bytes{"2Mi": most + more}
			if _, err = Solve(vector(t), plan.Placement{}, declared); perr != nil || (err == nil) != fits {
				t.Errorf("%s and %s: %v, %v", text, more, err, perr)
			}
		}
	}
}

// Lanes get what boot isolated, while all fit there; housekeeping gets nothing of it.
func TestBootIsolated(t *testing.T) {
	h := vector(t)
	isolated := cpuset.MustParse("4-7,20-23")
	h.Kernel.Cmdline, h.Kernel.Isolated = "isolcpus=managed_irq,domain,4-7,20-23", &isolated
	for lanes, want := range map[string]string{
		"a: {cpus: {count: 4}}": "4-5,20-21",
		"a: {cpus: {count: 2, smt: isolate}, near: {numaNode: 1}, preferred: {near: 1}}": "8-9",
		"a: {cpus: {count: 9}}": "1,4-7,20-23", // one more than there are
	} {
		p, err := Solve(h, plan.Placement{}, declare(t, lanes))
		if err != nil {
			t.Fatal(err)
		}
		if p.Lanes[0].CPUs.String() != want || p.Housekeeping.Intersects(isolated) {
			t.Errorf("%s: CPUs %s, want %s; housekeeping %s", lanes, p.Lanes[0].CPUs, want, p.Housekeeping)
		}
	}
}

// A lane has the CPUs that its list names, also where boot prepared their siblings only.
func TestListWithIsolate(t *testing.T) {
	h := vector(t)
	h.Kernel.Cmdline, h.Kernel.Isolated = "isolcpus=domain,4-7", new(cpuset.MustParse("4-7"))
	p, err := Solve(h, plan.Placement{}, declare(t, `a: {cpus: {count: 2, smt: isolate, list: "20,21"}}`))
	if err != nil || p.Lanes[0].CPUs.String() != "20-21" || p.Lanes[0].Idle.String() != "4-5" || p.Cost.UnpreparedCPUs != 2 {
		t.Errorf("%+v, %v", p, err)
	}
}

// On a machine with very many nodes a wide lane has an answer, and one near to a node that is not considered none.
func TestManyNodes(t *testing.T) {
	h := hosttest.Machine{Packages: 1, CoresPerPackage: 96, ThreadsPerCore: 1, NodesPerPackage: 24}.Host(t)
	p, err := Solve(h, plan.Placement{}, declare(t, "a: {cpus: {count: 48}}"))
	if err != nil || p.Lanes[0].CPUs.Len() != 48 || p.Cost.NUMACrossings != 11 {
		t.Errorf("%+v, %v", p.Cost, err)
	}
	h = hosttest.Machine{Packages: 1, CoresPerPackage: 70, ThreadsPerCore: 1, NodesPerPackage: 70}.Host(t)
	for node, want := range map[string]string{"62": "", "63": "spec.near.numaNode: 63: the machine has nodes 0-62 and others", "69": "spec.near.numaNode: 69"} {
		_, err := Solve(h, plan.Placement{}, declare(t, "a: {cpus: {count: 1}, near: {numaNode: "+node+"}}"))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("near %s: %v; want %q", node, err, want)
		}
	}
}

func TestRolesAndInterrupts(t *testing.T) {
	_, err := Solve(vector(t), plan.Placement{}, declare(t, "a: {cpus: {count: 2}, network: {device: enp96s0f0, queues: 99}}"))
	if err == nil || !strings.Contains(err.Error(), "spec.network.queues: enp96s0f0 has ") {
		t.Errorf("more queues than there are: %v", err)
	}
	p, err := Solve(vector(t), plan.Placement{}, declare(t, "a: {cpus: {count: 4}, roles: {worker: 2, main: 1}, network: {path: express, device: enp96s0f0, queues: 2}}"))
	if err != nil {
		t.Fatal(err)
	}
	a := p.Lanes[0]
	if a.Roles["main"] != cpuset.Of(1) || a.Roles["worker"] != cpuset.MustParse("2,17") ||
		!slices.Equal(a.Interrupts, []plan.Interrupt{{IRQ: 101, CPU: 1}, {IRQ: 103, CPU: 2}}) {
		t.Errorf("roles %v, interrupts %v", a.Roles, a.Interrupts)
	}
}

// What is placed stays; what was read back is what was written; another machine is told apart from one
// that has changed, and Repack leads back.
func TestPlaced(t *testing.T) {
	h := hosttest.Machine{Packages: 2, CoresPerPackage: 4, ThreadsPerCore: 2}.Host(t)
	h.Hostname = "edge-1"
	first, err := Solve(h, plan.Placement{}, declare(t, "a: {cpus: {count: 2, smt: pack}}\nb: {cpus: {count: 4, smt: pack}, near: {numaNode: 1}}"))
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(first)
	if err != nil {
		t.Fatal(err)
	}
	placed, err := plan.Read("placed.json", strings.NewReader(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	next, err := Solve(h, placed, declare(t, "c: {cpus: {count: 2}}"))
	if err != nil || next.Lanes[0].CPUs != first.Lanes[0].CPUs || next.Lanes[1].CPUs != first.Lanes[1].CPUs {
		t.Fatalf("%s, %v", show(next), err)
	}
	changed := hosttest.Machine{Packages: 2, CoresPerPackage: 4, ThreadsPerCore: 2, Offline: first.Lanes[0].CPUs}.Host(t)
	changed.Hostname = "edge-1"
	var m *plan.Mismatch
	if _, err = Solve(changed, placed, nil); !errors.As(err, &m) || !slices.Equal(m.Lost, []string{"a"}) || !strings.Contains(err.Error(), "offline") {
		t.Errorf("got %v", err)
	}
	back, err := Repack(changed, placed, declare(t, "c: {cpus: {count: 2}}"))
	if err != nil || len(back.Moves) != 1 || back.Moves[0].Lane != "a" || !back.CPUs().IsSubsetOf(changed.Usable()) || len(back.Lanes) != 3 {
		t.Errorf("%s, moves %v, %v", show(back), back.Moves, err)
	}
	other := hosttest.Machine{Packages: 1, CoresPerPackage: 2, ThreadsPerCore: 1}.Host(t)
	if _, err = Solve(other, placed, nil); !errors.As(err, &m) || m.Lost != nil || !strings.Contains(err.Error(), `the placement is of "edge-1"`) {
		t.Errorf("got %v", err)
	}
}
