package prove

import (
	"isolane.dev/isolane/factor"
	factornoise "isolane.dev/isolane/factor/noise"
	"isolane.dev/isolane/factor/path"
	"isolane.dev/isolane/factor/placement"
	"isolane.dev/isolane/prove/layout"
	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/prove/testbed"

	"errors"
	"testing"
	"time"

	"isolane.dev/isolane/netpath/bridge"
	"isolane.dev/isolane/netpath/macvlan"
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
	names := map[string]string{"bridge": "", "bridge-gro": "", "macvlan": "", "express": "", "ovs": "", "ovs-dpdk": ""}
	return scenario.Drivers{Factors: []factor.Driver{placement.Driver{}, factornoise.Driver{}, path.Driver{Names: names}},
		Probes: []probe.Driver{echo.Driver{}, iperf3.Driver{}}}
}

func TestEstimate(t *testing.T) {
	s := edge(t)
	r := runner{Bed: testbed.Bed{Scenario: s, Mode: s.Spec.Modes["quick"]}}
	if total := 24 * r.Estimate(); total > 200*time.Second {
		t.Errorf("--quick is estimated to take %s: more than three minutes and a bit", total)
	}
}

// impossiblePath is a path that this kernel cannot do.
type impossiblePath struct{ bridge.Path }

func (impossiblePath) Name() string     { return "express" }
func (impossiblePath) Supported() error { return errors.New("express needs Linux 5.10") }

// possiblePath is one that this host can do.
type possiblePath struct{ bridge.Path }

func (possiblePath) Name() string     { return "ovs" }
func (possiblePath) Supported() error { return nil }

// Cells with a path that this host lacks, or with needs that fail, are none.
func TestNeeds(t *testing.T) {
	sc := edge(t)
	s := results.Session{Cells: sc.AllCells()}
	r := runner{Bed: testbed.Bed{Scenario: sc, Paths: []testbed.Path{bridge.Path{}, bridge.Path{GRO: true}, macvlan.Path{},
		impossiblePath{}, possiblePath{}},
		Layouts: map[string]layout.Layout{}}}
	for _, c := range s.Cells[1:] { // the first is of another boot
		r.Layouts[c.Name] = layout.Layout{}
	}
	impossible := map[string]error{}
	if err := r.needs(t.Context(), everyCell(&s), impossible); err != nil {
		t.Fatal(err)
	}
	for _, c := range s.Cells[1:] {
		why, out := impossible[c.Name]
		if _, planned := r.Layouts[c.Name]; out != (c.Levels["path"] == "express") || planned == out ||
			out && why.Error() != "express needs Linux 5.10" {
			t.Errorf("%s: %v, planned: %v", c.Name, why, planned)
		}
	}
	if impossible[s.Cells[0].Name] != nil {
		t.Errorf("a cell of another boot: %v", impossible[s.Cells[0].Name])
	}
}

// An interrupted block is measured again as a whole, and nothing else is.
func TestRemaining(t *testing.T) {
	s := results.Session{Scenario: results.Scenario{Blocks: 2, Seed: 5}, Cells: []results.Cell{{Name: "a"}, {Name: "b"}, {Name: "c"}}}
	all, _ := remaining(s, boots{})
	if len(all) != 9 {
		t.Fatalf("%d runs, want 9", len(all))
	}
	for _, k := range all[:4] {
		s.Runs = append(s.Runs, results.Run{Block: k.block, Cell: k.cell})
	}
	// two more runs of a cell are not those of the other two
	s.Runs = append(s.Runs, results.Run{Block: all[3].block, Cell: all[3].cell}, results.Run{Block: all[3].block, Cell: all[3].cell})
	r := runner{}
	r.dropCutBlock(&s)
	rest, _ := remaining(s, boots{})
	if len(rest) != 6 || rest[0] != all[3] || s.Runs[3].Dropped != cut || s.Runs[2].Dropped != "" {
		t.Errorf("left are %v, runs %+v", rest, s.Runs)
	}
}

// So is the last block where a void run was still to be made again, and not where it was twice, or would not be.
func TestRemainingAgain(t *testing.T) {
	s := results.Session{Scenario: results.Scenario{Blocks: 1, Seed: 5}, Cells: []results.Cell{{Name: "a"}, {Name: "b"}}}
	var sc scenario.Scenario
	sc.Spec.Probes = make([]scenario.Probe, 1)
	r := runner{Bed: testbed.Bed{Scenario: sc}}
	measured := make([]results.Measurement, 1)
	for i, c := range []struct {
		again    []results.Run // of cell a in block 1, beside the first void one
		measured []results.Measurement
		left     int
	}{
		{nil, measured, 2},
		{[]results.Run{{Again: 1, Void: []string{"steal"}}}, measured, 2},
		{[]results.Run{{Again: 1}}, measured, 0},
		{[]results.Run{{Again: 1, Void: []string{"steal"}}, {Again: 2, Void: []string{"steal"}}}, measured, 0},
		{nil, nil, 0}, // its probe failed
	} {
		s.Runs = nil
		for _, cell := range []string{"a", "b"} {
			s.Runs = append(s.Runs, results.Run{Cell: cell, Void: []string{"steal"}, Measured: measured})
		}
		s.Runs = append(s.Runs, results.Run{Block: 1, Cell: "a", Void: []string{"steal"}, Measured: c.measured},
			results.Run{Block: 1, Cell: "b", Measured: measured})
		for _, run := range c.again {
			run.Block, run.Cell, run.Measured = 1, "a", c.measured
			s.Runs = append(s.Runs, run)
		}
		r.dropCutBlock(&s)
		if left, _ := remaining(s, boots{}); len(left) != c.left || c.left > 0 != (s.Runs[3].Dropped == cut) || s.Runs[0].Dropped != "" {
			t.Errorf("case %d: left are %v, runs %+v", i, left, s.Runs)
		}
	}
}
