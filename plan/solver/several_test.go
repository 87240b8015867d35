package solver

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/stock"
)

// hostOf is a machine with some of its files replaced; a text of "" takes away what begins with the name.
func hostOf(t *testing.T, m hosttest.Machine, files map[string]string) host.Host {
	t.Helper()
	root := m.FS()
	for name, text := range files {
		for has := range root {
			if text == "" && strings.HasPrefix(has, name) {
				delete(root, has)
			}
		}
		if text != "" {
			root[name] = &fstest.MapFile{Data: []byte(text + "\n")}
		}
	}
	h, err := host.Read(root)
	if err != nil || len(h.Warnings) > 0 {
		t.Fatal(err, h.Warnings)
	}
	return h
}

// gibibytes gives nodes their memory.
func gibibytes(sizes ...int) map[string]string {
	files := map[string]string{}
	for n, size := range sizes {
		files[fmt.Sprintf("sys/devices/system/node/node%d/meminfo", n)] = fmt.Sprintf("Node %d MemTotal: %d kB", n, size<<20)
	}
	return files
}

// Rules that several lanes together have to keep, in both orders of the file.
func TestSeveralLanes(t *testing.T) {
	one := hosttest.Machine{Packages: 1, CoresPerPackage: 4, ThreadsPerCore: 1}
	two := hosttest.Machine{Packages: 2, CoresPerPackage: 3, ThreadsPerCore: 1}
	three := hosttest.Machine{Packages: 3, CoresPerPackage: 4, ThreadsPerCore: 1}
	for _, c := range []struct {
		name    string
		machine hosttest.Machine
		files   map[string]string
		lanes   string
		want    string // the lanes' CPUs and nodes, or what the refusal says
		cost    plan.Cost
		reason  string
	}{
		{"a preference lets go no wish of another lane", one, nil,
			"a: {cpus: {count: 1}, apart: {lanes: [b], level: node}}\n" +
				"b: {cpus: {count: 1}, apart: {lanes: [c], level: core}, preferred: {apart: 1}}\nc: {cpus: {count: 1}}",
			"lane b refused: asks for 1 CPU; of 4 usable, 1 belongs to lanes placed before it (a), 1 stays housekeeping's (the boot core, CPUs 0), " +
				"2 are free; spec.apart of a: not beside this lane; cheapest change: lane a: spec.preferred: {apart: 1}", plan.Cost{}, ""},
		{"a preference towards a lane further down counts", two, nil,
			"a: {cpus: {count: 1}, apart: {lanes: [b], level: node}, preferred: {apart: 3}}\nb: {cpus: {count: 1}, near: {numaNode: 0}}",
			"a=3 node 1; b=1 node 0", plan.Cost{BlockLost: 1}, ""},
		{"what gives way is weighed and said", one, nil,
			"a: {cpus: {count: 1}, apart: {lanes: [b], level: node}, preferred: {apart: 3}}\nb: {cpus: {count: 1}}",
			"a=1 node 0; b=2 node 0", plan.Cost{BrokenWishes: 3, BlockLost: 2}, "a: without the wish apart, which is preferred (weight 3) and gives way"},
		{"near each other counts both ways", two, nil,
			"a: {cpus: {count: 3}, near: {lane: b}, preferred: {near: 1}}\nb: {cpus: {count: 1}, near: {lane: a}, apart: {lanes: [a]}, preferred: {near: 1}}",
			"a=3-5 node 1; b=1 node 0", plan.Cost{BrokenWishes: 2, DeviceDistance: 24, BlockLost: 2}, ""},
		{"memory of one lane comes from where another does not need it", three, gibibytes(1, 8, 8),
			"a: {cpus: {count: 2}, near: {numaNode: 0}, memory: {size: 6Gi}}\nb: {cpus: {count: 2, numa: one}, near: {numaNode: 1}, memory: {size: 6Gi}}",
			"a=1-2 node 0,2; b=4-5 node 1", plan.Cost{NUMACrossings: 1, MemoryDistance: 11, BlockLost: 0}, "a: memory of nodes 0,2: the nearest that have enough for all lanes"},
		{"and crosses the fewest nodes", three, gibibytes(1, 8, 8),
			"a: {cpus: {count: 2}, near: {numaNode: 0}, memory: {size: 6Gi}}\nb: {cpus: {count: 2}, near: {numaNode: 1}, memory: {size: 6Gi}}",
			"a=1-2 node 0,2; b=4-5 node 1", plan.Cost{NUMACrossings: 1, MemoryDistance: 11, BlockLost: 0}, ""},
		{"housekeeping keeps a CPU", one, nil, "a: {cpus: {count: 2, boot: true}}\nb: {cpus: {count: 2}}",
			"lane b refused: asks for 2 CPUs; of 4 usable, 2 belong to lanes placed before it (a), 1 has to stay housekeeping's, 1 is free; " +
				"cheapest change: spec.cpus.count: 1", plan.Cost{}, ""},
		{"housekeeping keeps memory", one, gibibytes(8), "a: {cpus: {count: 1}, memory: {size: 4Gi}}\nb: {cpus: {count: 1}, memory: {size: 3.75Gi}}",
			"spec.memory.size: 3840Mi (4Gi are free, of which 512Mi stay housekeeping's); cheapest change: spec.memory.size: 3584Mi", plan.Cost{}, ""},
		{"half of a core is housekeeping's", hosttest.Machine{Packages: 1, CoresPerPackage: 4, ThreadsPerCore: 2}, nil, "a: {cpus: {count: 3}}",
			"a=1-2,5 node 0", plan.Cost{BlockLost: 4}, "a: shares a core with housekeeping: CPUs 6 are siblings of 2; spec.cpus.smt: isolate or pack keeps others off them"},
		{"performance cores come first", hosttest.Machine{Packages: 1, CoresPerPackage: 4, ThreadsPerCore: 2, EfficiencyCores: 4}, nil,
			"a: {cpus: {count: 3, smt: isolate}}", "a=1-3 node 0", plan.Cost{BlockLost: 6}, "a: on performance cores, which come first"},
		{"but kinds are not mixed for it", hosttest.Machine{Packages: 1, CoresPerPackage: 4, ThreadsPerCore: 2, EfficiencyCores: 4}, nil,
			"a: {cpus: {count: 4, smt: isolate}}", "a=4-7 node 0", plan.Cost{EfficiencyCPUs: 4, BlockLost: 4}, "a: on efficiency cores: performance cores come first, but"},
	} {
		lanes := declare(t, c.lanes)
		for range 2 {
			t.Run(c.name, func(t *testing.T) {
				h := hostOf(t, c.machine, c.files)
				p, err := Solve(h, plan.Placement{}, lanes)
				if err != nil {
					if !strings.Contains(err.Error(), c.want) {
						t.Errorf("got %v, want %s", err, c.want)
					}
					return
				}
				var got, reasons []string
				for _, l := range p.Lanes {
					got = append(got, fmt.Sprintf("%s=%s node %s", l.Name, l.CPUs, l.MemoryNodes))
					for _, r := range l.Reasons {
						reasons = append(reasons, l.Name+": "+r)
					}
				}
				slices.Sort(got)
				if text := strings.Join(got, "; "); text != c.want || p.Cost != c.cost || !p.Optimal {
					t.Errorf("got %s, cost %s, optimal %v; want %s, %s", text, p.Cost, p.Optimal, c.want, c.cost)
				}
				if !strings.Contains(strings.Join(reasons, "\n"), c.reason) {
					t.Errorf("want %s among:\n%s", c.reason, strings.Join(reasons, "\n"))
				}
			})
			slices.Reverse(lanes)
		}
	}
}

// Memory comes from the nearest node that has it, and only from those that the cpuset allows; a kernel that
// knows no nodes has one.
func TestMemoryNodes(t *testing.T) {
	m := hosttest.Machine{Packages: 2, CoresPerPackage: 2, ThreadsPerCore: 1, MemoryOnlyNodes: 2}
	near := gibibytes(8, 1, 8, 8)
	near["sys/devices/system/node/node1/distance"] = "40 10 30 12"
	barred := gibibytes(8, 8, 8, 8)
	barred["proc/self/status"] = "Mems_allowed_list:\t0,3"
	none := map[string]string{"sys/devices/system/node/": "", "proc/meminfo": "MemTotal: 8388608 kB"}
	for _, c := range []struct {
		name  string
		files map[string]string
		lane  string
		want  string
	}{
		{"the nearest that has room", near, "a: {cpus: {count: 1}, near: {numaNode: 1}, memory: {size: 2Gi}}", "1,3"},
		{"nodes that the cpuset allows", barred, "a: {cpus: {count: 1}, near: {numaNode: 1}, memory: {size: 2Gi}}", "0"},
		{"also where nothing is set aside", barred, "a: {cpus: {count: 1}, near: {numaNode: 1}}", "0,3"},
		{"no nodes", none, "a: {cpus: {count: 2}, memory: {size: 1Gi}}", "0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := Solve(hostOf(t, m, c.files), plan.Placement{}, declare(t, c.lane))
			if err != nil || p.Lanes[0].MemoryNodes.String() != c.want {
				t.Errorf("%s, %v; want node %s", show(p), err, c.want)
			}
		})
	}
}

// What boot prepared goes to lanes first, whatever parameter it was.
func TestPrepared(t *testing.T) {
	m := hosttest.Machine{Packages: 1, CoresPerPackage: 8, ThreadsPerCore: 1}
	for _, c := range []struct{ name, cmdline, nohz, lanes, want string }{
		{"nohz_full", "nohz_full=4-7", "4-7", "a: {cpus: {count: 2}}", "a=4-5 idle  node 0; housekeeping=0-3,6-7"},
		{"managed_irq", "isolcpus=managed_irq,5-7", "", "a: {cpus: {count: 2}}\nb: {cpus: {count: 1}}", "a=5-6 idle  node 0; b=7 idle  node 0; housekeeping=0-4"},
		{"more than there are", "nohz_full=6-7", "6-7", "a: {cpus: {count: 3}}", "a=1,6-7 idle  node 0; housekeeping=0,2-5"},
		{"both before one", "isolcpus=managed_irq,4-7 nohz_full=2-5", "2-5", "a: {cpus: {count: 2}}", "a=4-5 idle  node 0; housekeeping=0-3,6-7"},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := map[string]string{"proc/cmdline": c.cmdline}
			if c.nohz != "" {
				files["sys/devices/system/cpu/nohz_full"] = c.nohz
			}
			if p, err := Solve(hostOf(t, m, files), plan.Placement{}, declare(t, c.lanes)); err != nil || show(p) != c.want {
				t.Errorf("got %s, %v; want %s", show(p), err, c.want)
			}
		})
	}
}

// A boot lane that is placed counts as well: housekeeping keeps a CPU, and the numbers of a refusal add up.
func TestLastCPU(t *testing.T) {
	h := hosttest.Machine{Packages: 1, CoresPerPackage: 4, ThreadsPerCore: 1}.Host(t)
	p, err := Solve(h, plan.Placement{}, declare(t, "a: {cpus: {count: 2, boot: true}}"))
	if err != nil {
		t.Fatal(err)
	}
	for lanes, want := range map[string]string{
		"b: {cpus: {count: 2}}": "lane b refused: asks for 2 CPUs; of 4 usable, 2 belong to lanes placed before it (a), 1 has to stay housekeeping's, 1 is free",
		"b: {cpus: {count: 3, boot: true}}": "lane b refused: asks for 3 CPUs; of 4 usable, 2 belong to lanes placed before it (a), " +
			"1 has to stay housekeeping's, 1 is free; cheapest change: spec.cpus.count: 1",
	} {
		if got, err := Solve(h, p, declare(t, lanes)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %s, %v; want %s", show(got), err, want)
		}
	}
}

// --repack places what is placed without it, and moves only what is placed.
func TestRepackPlacesAsMuch(t *testing.T) {
	h := hosttest.Machine{Packages: 2, CoresPerPackage: 6, ThreadsPerCore: 1, CoresPerL3: 3}.Host(t)
	lanes := declare(t, "l0: {cpus: {count: 4}, near: {numaNode: 0}, preferred: {near: 2}}\nl1: {cpus: {count: 3, boot: true}, near: {lane: l0}}")
	plain, err := Solve(h, plan.Placement{}, lanes)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Repack(h, plan.Placement{}, lanes)
	if err != nil || len(again.Moves) > 0 || again.Cost.Compare(plain.Cost) > 0 {
		t.Errorf("%s, moves %v, cost %s, %v; without: %s", show(again), again.Moves, again.Cost, err, plain.Cost)
	}
}

// Which pages have to be reserved is a matter of the lanes that are there in the end: a page of the pool that
// a lane gives back, or leaves when it moves, is another one's.
func TestReserve(t *testing.T) {
	files := gibibytes(4, 4)
	for n, pages := range []string{"0", "1"} {
		files[fmt.Sprintf("sys/devices/system/node/node%d/hugepages/hugepages-1048576kB/nr_hugepages", n)] = pages
	}
	h := hostOf(t, hosttest.Machine{Packages: 2, CoresPerPackage: 4, ThreadsPerCore: 1}, files)
	const page = "{cpus: {count: 1}, near: {numaNode: 1}, memory: {hugepages: {1Gi: 1Gi}}}"
	placed, err := Solve(h, plan.Placement{}, declare(t, "a: "+page+"\nb: "+page+"\nc: {cpus: {count: 1}, near: {numaNode: 0}}"))
	if err != nil {
		t.Fatal(err)
	}
	left := placed
	left.Lanes = without(placed.Lanes, "a")
	next, err := Solve(h, left, declare(t, "d: "+page))
	if err != nil {
		t.Fatal(err)
	}
	placed.Lanes[0].Spec.Near = lane.Near{}
	moved, err := Repack(h, placed, declare(t, "d: {cpus: {count: 3, numa: one}}"))
	if err != nil || len(moved.Moves) != 1 || moved.Moves[0].Lane != "a" {
		t.Fatalf("%s, moves %v, %v", show(moved), moved.Moves, err)
	}
	for what, p := range map[string]plan.Placement{"placed": placed, "one released": next, "one moved": moved} {
		reserve := uint64(0)
		for _, l := range p.Lanes {
			for _, has := range l.Hugepages {
				reserve += has.Reserve
			}
		}
		if reserve != 1 {
			t.Errorf("%s: %d pages are to be reserved, want 1: %s", what, reserve, show(p))
		}
	}
}

// A lane of which only the memory moves keeps its CPUs, roles and reasons.
func TestMemoryMoves(t *testing.T) {
	h := hostOf(t, hosttest.Machine{Packages: 2, CoresPerPackage: 3, ThreadsPerCore: 1}, gibibytes(4, 4))
	placed, err := Solve(h, plan.Placement{}, declare(t, "a: {cpus: {count: 1}, near: {numaNode: 1}, memory: {size: 2Gi}, roles: {main: 1}}"))
	if err != nil {
		t.Fatal(err)
	}
	a := &placed.Lanes[0]
	a.Memory, a.MemoryNodes = []plan.Memory{{Node: 0, Bytes: a.Memory[0].Bytes}}, cpuset.Of(0)
	p, err := Repack(h, placed, declare(t, "b: {cpus: {count: 2, numa: one}, near: {numaNode: 0}, memory: {size: 3Gi}}"))
	if err != nil || len(p.Moves) != 1 || p.Lanes[0].CPUs != a.CPUs || p.Lanes[0].MemoryNodes != cpuset.Of(1) {
		t.Fatalf("%s, moves %v, %v", show(p), p.Moves, err)
	}
	if p.Lanes[0].Roles["main"] != a.CPUs || !slices.Contains(p.Lanes[0].Reasons, "2Gi of memory on node 1") {
		t.Errorf("roles %v, reasons %q", p.Lanes[0].Roles, p.Lanes[0].Reasons)
	}
}

// The change that a refusal names makes the whole file fit.
func TestChangeHelps(t *testing.T) {
	h := hosttest.Machine{Packages: 1, CoresPerPackage: 8, ThreadsPerCore: 1}.Host(t)
	lanes := declare(t, "a: {cpus: {count: 4}}\nb: {cpus: {count: 3}}\nc: {cpus: {count: 3}}")
	_, err := Solve(h, plan.Placement{}, lanes)
	var r *plan.Refusal
	if !errors.As(err, &r) || r.Cheapest == nil || r.Cheapest.Change != "spec.cpus.share: 2" && !strings.HasPrefix(r.Cheapest.Change, "spec.cpus.count: ") {
		t.Fatal(err)
	}
	var n int
	if _, err = fmt.Sscanf(r.Cheapest.Change, "spec.cpus.count: %d", &n); err != nil {
		t.Fatal(err)
	}
	if price := r.Cheapest.Price; price.Kind == 0 || price.Left != uint64(n) {
		t.Errorf("price %+v of %q", price, r.Cheapest.Change)
	}
	for i := range lanes {
		if lanes[i].Metadata.Name == r.Cheapest.Lane {
			lanes[i].Spec.CPUs.Count = n
		}
	}
	p, err := Solve(h, plan.Placement{}, lanes)
	if err != nil {
		t.Errorf("%s, %v", show(p), err)
	}
	// Where none is known, the refusal says so.
	if _, err = Solve(h, plan.Placement{}, declare(t, "a: {cpus: {count: 1}, network: {path: sriov, vfs: 1}}")); err == nil ||
		!strings.HasSuffix(err.Error(), "; no change of one lane is known that would help") {
		t.Error(err)
	}
}

// What an error repeats of its input is cut; a lane on several nodes for its memory says so.
func TestTexts(t *testing.T) {
	h := hosttest.Machine{Packages: 1, CoresPerPackage: 2, ThreadsPerCore: 1}.Host(t)
	l := askFor("a", 1, "")
	l.Spec.Near.Device = strings.Repeat("x", 5000)
	if _, err := Solve(h, plan.Placement{}, []lane.Lane{l}); err == nil || len(err.Error()) > 300 {
		t.Errorf("got %v", err)
	}
	two := hostOf(t, hosttest.Machine{Packages: 2, CoresPerPackage: 3, ThreadsPerCore: 1}, gibibytes(4, 4))
	p, err := Solve(two, plan.Placement{}, declare(t, "a: {cpus: {count: 2}, memory: {size: 6Gi}}"))
	if err != nil || p.Lanes[0].MemoryNodes != cpuset.Of(0, 1) || strings.Contains(strings.Join(p.Lanes[0].Reasons, "\n"), "no node alone has room for 2 CPUs as asked; the most") {
		t.Errorf("%s, %v: %s", show(p), err, strings.Join(p.Lanes[0].Reasons, "\n"))
	}
}

// Where several lanes want memory, a place is left out that leaves no CPUs to a lane near to it: so the
// search ends.
func TestNearWithMemory(t *testing.T) {
	h := hostOf(t, hosttest.Machine{Packages: 4, CoresPerPackage: 4, ThreadsPerCore: 1, CoresPerL3: 2}, gibibytes(5, 3, 3, 5))
	lanes := declare(t, "a: {cpus: {count: 1}}\nb: {cpus: {count: 2}, memory: {size: 1Gi}, near: {lane: d}}\n"+
		"c: {cpus: {count: 1}, memory: {size: 1Gi}, apart: {lanes: [b, d], level: package}}\nd: {cpus: {count: 3}, memory: {size: 1Gi}}")
	for range 2 {
		p, err := Solve(h, plan.Placement{}, lanes)
		if want := (plan.Cost{NUMACrossings: 1, L3Crossings: 1, MemoryDistance: 11, DeviceDistance: 1}); err != nil || !p.Optimal || p.Cost != want {
			t.Errorf("%s, cost %s, optimal %v, %v; want %s", show(p), p.Cost, p.Optimal, err, want)
		}
		slices.Reverse(lanes)
	}
}

// What exceeds the host is refused without a search: idle siblings and the boot core count, shared CPUs once.
func TestExceedsHost(t *testing.T) {
	h := hosttest.Machine{Packages: 1, CoresPerPackage: 4, ThreadsPerCore: 2}.Host(t)
	for _, c := range []struct {
		lanes string
		want  bool
	}{
		{"a: {cpus: {count: 3, smt: isolate}}", false},
		{"a: {cpus: {count: 3, smt: isolate}}\nb: {cpus: {count: 1}}", true},
		{"a: {cpus: {count: 3, smt: isolate}, preferred: {smt: 1}}\nb: {cpus: {count: 1}}", false},
		{"a: {cpus: {count: 3, smt: isolate, boot: true}}\nb: {cpus: {count: 1}}", false},
		{"a: {cpus: {count: 4, smt: isolate, boot: true}}", true},
		{"a: {cpus: {count: 7, boot: true}}", false},
		{"a: {cpus: {count: 7, boot: true}}\nb: {cpus: {count: 1}}", true},
		{"a: {cpus: {count: 4, share: 2}}\nb: {cpus: {count: 4, share: 2}}\nc: {cpus: {count: 2}}", false},
		{"a: {cpus: {count: 4, share: 2}}\nb: {cpus: {count: 4, share: 2}}\nc: {cpus: {count: 3}}", true},
	} {
		if got := newJointSearch(stock.New(h, nil), declare(t, c.lanes), Limit).exceedsHost(); got != c.want {
			t.Errorf("%s: %v, want %v", c.lanes, got, c.want)
		}
	}
}
