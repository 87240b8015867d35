package prove

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/netpath/bridge"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/probe/echo"
	"isolane.dev/isolane/probe/iperf3"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/scenarios"
)

func kinds() []probe.Driver { return []probe.Driver{echo.Driver{}, iperf3.Driver{}} }

func edge(t *testing.T) (string, Scenario) {
	t.Helper()
	data, err := scenarios.Files.ReadFile("edge.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Parse("edge.yaml", strings.NewReader(string(data)), kinds())
	if err != nil {
		t.Fatal(err)
	}
	return string(data), s
}

func TestEdge(t *testing.T) {
	_, s := edge(t)
	cells, err := s.cells(nil)
	if err != nil || len(cells) != 6 || !cells[0].Baseline || len(s.AllCells()) != 12 {
		t.Errorf("%d of %d cells, %v", len(cells), len(s.AllCells()), err)
	}
	for mode, blocks := range map[string]int{"quick": 3, "standard": 10, "proof": 20} {
		if s.Spec.Modes[mode].Blocks != blocks {
			t.Errorf("%s has %d blocks, want %d", mode, s.Spec.Modes[mode].Blocks, blocks)
		}
	}
	r := runner{scenario: s, mode: s.Spec.Modes["quick"]}
	if total := 24 * r.estimate(); total > 200*time.Second {
		t.Errorf("--quick is estimated to take %s: more than three minutes and a bit", total)
	}
}

func TestParseRefuses(t *testing.T) {
	text, _ := edge(t)
	for _, c := range []struct{ old, new, want string }{
		{"  baseline:", "  base:", `unknown field "base"`},
		{"baseline: quiet-floating-bridge", "baseline: quiet-floating-ovs", "spec.baseline"},
		{"noise: [quiet, noisy]", "noise: [quiet, quiet]", `"quiet" is listed twice`},
		{"noise: [quiet, noisy]", "noise: []", "spec.factors.noise: at least one level"},
		{"    - quiet-floating-bridge\n", "", "the baseline"},
		{"mode: open", "mode: open, gap: 5us", "mode open"},
		{"rate: 1000", "rate: -1", "mode open: rate -1"},
		{"direction: up", "direction: up, payload: 64", `spec.probes[5] (throughput-tcp-up): unknown field "payload"`},
		{"direction: up, ", "", `spec.probes[5] (throughput-tcp-up): direction: "": expected up or down`},
		{"kind: iperf3", "kind: iperf4", `spec.probes[5].kind: "iperf4" is unknown: expected echo, iperf3`},
		{"iperf3: {", "iperf4: {", "spec.modes.quick.windows.iperf4: no probe of this kind"},
		{", iperf3: {warmup: 1s, measure: 1s}", "", "spec.probes[5] (throughput-tcp-up), spec.modes.quick.windows.iperf3: window 0s"},
		{"write: 128Ki", "write: 0", "write: 0: expected"},
		{"measure: 1s}", "measure: 1500ms}", "iperf3 takes whole seconds"},
		{"blocks: 3", "blocks: 0", "spec.modes.quick.blocks"},
		{"priority: 50", "priority: 99", "spec.client"},
		{"cpus: {count: 1}", "cpus: {count: 0}", "spec.lane: spec.cpus.count: expected 1-8192, found 0"},
		{"name: rtt-udp-1400-pingpong", "name: rtt-udp-64-pingpong", "listed twice"},
		{"{name: malloc", "{name: --exec", "spec.neighbours[1].name"},
		{"cell: noisy-pinned-bridge", "cell: noisy-pinned-wire", "spec.published.figures[2].cell"},
		{"cell: noisy-lane-express\n", "cell: noisy-lane\n", `spec.aims.cell: "noisy-lane" is none`},
		{"metric: rtt, percent: 50", "metric: power, percent: 50", "spec.aims.goals[1].metric"},
		{"percent: 150", "percent: 0", "spec.aims.goals[0].percent: expected more than 0"},
		{"statistic: p99.9", "statistic: p42", "spec.aims.goals[2].statistic"},
		{"kind: Scenario", "kind: Lane", "apiVersion, kind"},
		{"v1alpha2", "v1alpha1", "apiVersion, kind: expected isolane.dev/v1alpha2 Scenario, found"},
	} {
		_, err := Parse("edge.yaml", strings.NewReader(strings.Replace(text, c.old, c.new, 1)), kinds())
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "edge.yaml: ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q instead of %q: %v; want one line with %q", c.new, c.old, err, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	data, err := os.ReadFile("../scenarios/edge.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(data))
	f.Fuzz(func(_ *testing.T, text string) { _, _ = Parse("f", strings.NewReader(text), kinds()) })
}

func TestLayout(t *testing.T) {
	one := lane.Spec{CPUs: lane.CPUs{Count: 1}}
	for _, c := range []struct {
		name    string
		machine hosttest.Machine
		want    string // client, lane, platform, rest, shared
	}{
		{"two CPUs share", hosttest.Machine{Packages: 1, CoresPerPackage: 2, ThreadsPerCore: 1}, "0 1 1 0 true"},
		{"three CPUs do not", hosttest.Machine{Packages: 1, CoresPerPackage: 3, ThreadsPerCore: 1}, "2 1 0-1 0 false"},
		{"four CPUs", hosttest.Machine{Packages: 1, CoresPerPackage: 4, ThreadsPerCore: 1}, "2 1 0-1,3 0,3 false"},
	} {
		l, err := newLayout(c.machine.Host(t), plan.Placement{}, one)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join([]string{l.client.String(), l.lane.String(), l.platform.String(), l.rest.String()}, " ") + map[bool]string{true: " true", false: " false"}[l.shared]
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if len(l.notes()) > 0 != l.shared {
			t.Errorf("%s: notes %q", c.name, l.notes())
		}
		floating := l.assign(results.Cell{Placement: Floating, Noise: Noisy})
		if floating.Application != l.platform || floating.Neighbours != l.platform || floating.Client.Intersects(floating.Application) {
			t.Errorf("%s: floating %+v", c.name, floating)
		}
		pinned := l.assign(results.Cell{Placement: Pinned, Noise: Noisy})
		if pinned.Application != l.lane || pinned.Neighbours.Intersects(pinned.Application) || pinned.Client != floating.Client {
			t.Errorf("%s: pinned %+v", c.name, pinned)
		}
	}
	if _, err := newLayout(hosttest.Machine{Packages: 1, CoresPerPackage: 1, ThreadsPerCore: 1}.Host(t), plan.Placement{}, one); !errors.Is(err, ErrTooSmall) {
		t.Errorf("one CPU: %v", err)
	}
}

// impossiblePath is a path that this kernel cannot do.
type impossiblePath struct{}

func (impossiblePath) Name() string                               { return "express" }
func (impossiblePath) Steps(netpath.Pair) ([]journal.Step, error) { return nil, nil }
func (impossiblePath) Supported() error                           { return errors.New("express needs Linux 5.10") }

// Where the kernel cannot do a path, its cells run on the baseline's, and a note says so once.
func TestFallback(t *testing.T) {
	_, sc := edge(t)
	s := results.Session{Cells: sc.AllCells()}
	r := runner{paths: map[string]Path{"bridge": bridge.Path{}, "express": impossiblePath{}}}
	if err := r.settlePaths(&s); err != nil {
		t.Fatal(err)
	}
	for _, c := range s.Cells {
		if c.PathInForce != "bridge" {
			t.Errorf("%s runs on %s", c.Name, c.PathInForce)
		}
	}
	if len(s.Notes) != 1 || s.Notes[0] != "express needs Linux 5.10: its cells ran on bridge instead" {
		t.Errorf("notes %q", s.Notes)
	}
	delete(r.paths, "express")
	if err := r.settlePaths(&s); !errors.Is(err, ErrInput) {
		t.Errorf("an unknown path: %v", err)
	}
}

// An interrupted block is measured again as a whole, and nothing else is.
func TestRemaining(t *testing.T) {
	s := results.Session{Scenario: results.Scenario{Blocks: 2, Seed: 5}, Cells: []results.Cell{{Name: "a"}, {Name: "b"}, {Name: "c"}}}
	all := remaining(s)
	if len(all) != 9 {
		t.Fatalf("%d runs, want 9", len(all))
	}
	for _, k := range all[:4] {
		s.Runs = append(s.Runs, results.Run{Block: k.block, Cell: k.cell})
	}
	dropCutBlock(&s)
	rest := remaining(s)
	if len(rest) != 6 || rest[0] != all[3] || s.Runs[3].Dropped != cut || s.Runs[2].Dropped != "" {
		t.Errorf("left are %v, runs %+v", rest, s.Runs)
	}
}
