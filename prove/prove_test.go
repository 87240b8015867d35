package prove

import (
	"fmt"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/factor"
	factorlane "isolane.dev/isolane/factor/lane"
	factornoise "isolane.dev/isolane/factor/noise"
	"isolane.dev/isolane/factor/path"
	"isolane.dev/isolane/factor/placement"
	"isolane.dev/isolane/prove/scenario"

	"errors"
	"strings"
	"testing"
	"time"

	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/netpath/bridge"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/probe/echo"
	"isolane.dev/isolane/probe/iperf3"
	"isolane.dev/isolane/results"
)

func edge(t *testing.T) scenario.Scenario {
	t.Helper()
	s, err := Load("edge", kinds())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func kinds() scenario.Drivers {
	names := map[string]string{"bridge": "", "express": ""}
	return scenario.Drivers{Factors: []factor.Driver{placement.Driver{}, factornoise.Driver{}, path.Driver{Names: names}},
		Probes: []probe.Driver{echo.Driver{}, iperf3.Driver{}}}
}

func TestEstimate(t *testing.T) {
	s := edge(t)
	r := runner{scenario: s, mode: s.Spec.Modes["quick"]}
	if total := 24 * r.estimate(); total > 200*time.Second {
		t.Errorf("--quick is estimated to take %s: more than three minutes and a bit", total)
	}
}

// Who gets which CPUs on machines of several sizes: the client the same in all cells.
func TestLayout(t *testing.T) {
	kinds := kinds()
	kinds.Factors = append(kinds.Factors, factorlane.Driver{})
	sc, err := scenario.Parse("test", strings.NewReader(`{apiVersion: isolane.dev/v1alpha3, kind: Scenario, metadata: {name: test}, spec: {
		factors: [{name: noise, levels: [quiet, {name: noisy, neighbours: [{name: cpu}]}]}, {name: placement, levels: [floating, pinned, lane]},
			{name: kind, kind: lane, where: {placement: [lane]}, levels: [plain, {name: cores, spec: {cpus: {count: 2, smt: isolate}}}]}],
		baseline: quiet-floating, lane: {cpus: {count: 1}}, probes: [{name: trip, kind: echo}], modes: {quick: {blocks: 1, windows: {echo: {measure: 1s}}}}}}`), kinds)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		machine hosttest.Machine
		want    string // of the noisy cells: application, neighbours; client of all; notes
	}{
		{"two CPUs", hosttest.Machine{Packages: 1, CoresPerPackage: 2, ThreadsPerCore: 1},
			"floating 1/1 pinned 1/0 lane-plain 1/0 client 0: crowded, shared"},
		{"three", hosttest.Machine{Packages: 1, CoresPerPackage: 3, ThreadsPerCore: 1},
			"floating 1-2/1-2 pinned 1/2 lane-plain 1/2 lane-cores 1-2/0 client 0: crowded, shared"},
		{"four", hosttest.Machine{Packages: 1, CoresPerPackage: 4, ThreadsPerCore: 1},
			"floating 0-2/0-2 pinned 1/0,2 lane-plain 1/0,2 lane-cores 1-2/0 client 3: "},
		{"three cores of two threads", hosttest.Machine{Packages: 1, CoresPerPackage: 3, ThreadsPerCore: 2},
			"floating 1-5/1-5 pinned 1/2-5 lane-plain 1/2-5 lane-cores 1-2/3 client 0: crowded"},
	} {
		s := results.Session{Cells: sc.AllCells()}
		r := runner{scenario: sc}
		if err := r.layOut(c.machine.Host(t), plan.Placement{}, &s, false); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var got []string
		clients := map[cpuset.Set]bool{}
		for _, cell := range s.Cells {
			if clients[cell.Client] = true; !cell.Neighbours.IsEmpty() {
				got = append(got, fmt.Sprintf("%s %s/%s", strings.TrimPrefix(cell.Name, "noisy-"), cell.Application, cell.Neighbours))
			}
		}
		for cpu := range clients {
			got = append(got, "client "+cpu.String())
		}
		var notes []string
		for _, n := range r.crowding(s.Cells) {
			notes = append(notes, map[string]string{"There": "crowded", "Pinned": "shared"}[strings.Fields(n)[0]])
		}
		if all := strings.Join(got, " ") + ": " + strings.Join(notes, ", "); all != c.want {
			t.Errorf("%s:\n%s, want\n%s", c.name, all, c.want)
		}
	}
	r, s := runner{scenario: sc}, results.Session{Cells: sc.AllCells()}
	if err := r.layOut(hosttest.Machine{Packages: 1, CoresPerPackage: 1, ThreadsPerCore: 1}.Host(t), plan.Placement{}, &s, false); !errors.Is(err, ErrTooSmall) {
		t.Errorf("one CPU: %v", err)
	}
}

// impossiblePath is a path that this kernel cannot do.
type impossiblePath struct{}

func (impossiblePath) Name() string                               { return "express" }
func (impossiblePath) Words() string                              { return "" }
func (impossiblePath) Steps(netpath.Pair) ([]journal.Step, error) { return nil, nil }
func (impossiblePath) Supported() error                           { return errors.New("express needs Linux 5.10") }

// Where the kernel cannot do a path, its cells run on the baseline's, and a note says so once.
func TestFallback(t *testing.T) {
	sc := edge(t)
	s := results.Session{Cells: sc.AllCells()}
	r := runner{scenario: sc, paths: []Path{bridge.Path{}, impossiblePath{}}}
	if err := r.settlePaths(&s); err != nil {
		t.Fatal(err)
	}
	for _, c := range s.Cells {
		if c.Levels["path"] == "express" && c.InForce["path"] != "bridge" || c.Levels["path"] == "bridge" && c.InForce != nil {
			t.Errorf("%s runs on %s", c.Name, c.InForce)
		}
	}
	if len(s.Notes) != 1 || s.Notes[0] != "express needs Linux 5.10: its cells ran on bridge instead" {
		t.Errorf("notes %q", s.Notes)
	}
	r.paths = r.paths[:1]
	if err := r.settlePaths(&s); !errors.Is(err, ErrInput) {
		t.Errorf("an unknown path: %v", err)
	}
}

// An interrupted block is measured again as a whole, and nothing else is.
func TestRemaining(t *testing.T) {
	s := results.Session{Scenario: results.Scenario{Blocks: 2, Seed: 5}, Cells: []results.Cell{{Name: "a"}, {Name: "b"}, {Name: "c"}}}
	all := remaining(s, boots{})
	if len(all) != 9 {
		t.Fatalf("%d runs, want 9", len(all))
	}
	for _, k := range all[:4] {
		s.Runs = append(s.Runs, results.Run{Block: k.block, Cell: k.cell})
	}
	dropCutBlock(&s, boots{})
	rest := remaining(s, boots{})
	if len(rest) != 6 || rest[0] != all[3] || s.Runs[3].Dropped != cut || s.Runs[2].Dropped != "" {
		t.Errorf("left are %v, runs %+v", rest, s.Runs)
	}
}
