package layout

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/factor"
	factorlane "isolane.dev/isolane/factor/lane"
	factornoise "isolane.dev/isolane/factor/noise"
	"isolane.dev/isolane/factor/placement"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/probe/echo"
	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/results"
)

// Who gets which CPUs on machines of several sizes: the client the same in all cells.
func TestLayout(t *testing.T) {
	kinds := scenario.Drivers{Factors: []factor.Driver{placement.Driver{}, factornoise.Driver{}, factorlane.Driver{}},
		Probes: []probe.Driver{echo.Driver{}}}
	sc, err := scenario.Parse("test", strings.NewReader(`{apiVersion: isolane.dev/v1alpha3, kind: Scenario, metadata: {name: test}, spec: {
		factors: [{name: noise, levels: [quiet, {name: noisy, neighbours: [{name: cpu}]}]}, {name: placement, levels: [floating, awake, pinned, lane]},
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
			"floating 1/1 awake 1/1 pinned 1/0 lane-plain 1/0 client 0: crowded, shared"},
		{"three", hosttest.Machine{Packages: 1, CoresPerPackage: 3, ThreadsPerCore: 1},
			"floating 1-2/1-2 awake 1-2/1-2 pinned 1/2 lane-plain 1/2 lane-cores 1-2/0 client 0: crowded, shared"},
		{"four", hosttest.Machine{Packages: 1, CoresPerPackage: 4, ThreadsPerCore: 1},
			"floating 0-2/0-2 awake 0-2/0-2 pinned 1/0,2 lane-plain 1/0,2 lane-cores 1-2/0 client 3: "},
		{"three cores of two threads", hosttest.Machine{Packages: 1, CoresPerPackage: 3, ThreadsPerCore: 2},
			"floating 1-5/1-5 awake 1-5/1-5 pinned 1/2-5 lane-plain 1/2-5 lane-cores 1-2/3 client 0: crowded"},
	} {
		cells := sc.AllCells()
		q := Request{Host: c.machine.Host(t), Conditions: sc.Conditions, Outside: true}
		for i := range cells {
			q.Cells = append(q.Cells, &cells[i])
		}
		layouts, impossible, err := Plan(q)
		if err != nil || (len(impossible) > 0) != (c.name == "two CPUs") {
			t.Errorf("%s: %v, %v", c.name, impossible, err)
			continue
		}
		var got []string
		clients := map[cpuset.Set]bool{}
		for _, cell := range cells {
			if impossible[cell.Name] != nil {
				continue
			}
			if clients[cell.Client] = true; !cell.Neighbours.IsEmpty() {
				got = append(got, fmt.Sprintf("%s %s/%s", strings.TrimPrefix(cell.Name, "noisy-"), cell.Application, cell.Neighbours))
			}
		}
		for cpu := range clients {
			got = append(got, "client "+cpu.String())
		}
		var notes []string
		for _, n := range Notes(layouts, cells) {
			notes = append(notes, map[string]string{"There": "crowded", "Pinned": "shared"}[strings.Fields(n)[0]])
		}
		if all := strings.Join(got, " ") + ": " + strings.Join(notes, ", "); all != c.want {
			t.Errorf("%s:\n%s, want\n%s", c.name, all, c.want)
		}
	}
	one := hosttest.Machine{Packages: 1, CoresPerPackage: 1, ThreadsPerCore: 1}.Host(t)
	cell := sc.AllCells()[0]
	if _, _, err := Plan(Request{Host: one, Conditions: sc.Conditions, Cells: []*results.Cell{&cell}}); !errors.Is(err, ErrTooSmall) {
		t.Errorf("one CPU: %v", err)
	}
	// Beside a lane in force the client has a CPU alone where there are two.
	for free, want := range map[int]string{1: "client 1 neighbours 1", 3: "client 1 neighbours 2-3"} {
		m := hosttest.Machine{Packages: 1, CoresPerPackage: free + 1, ThreadsPerCore: 1}.Host(t)
		cell = results.Cell{Name: "noisy-lane-plain", Levels: map[string]string{"noise": "noisy", "placement": "lane", "kind": "plain"}}
		in := cpuset.Of(0)
		placed := plan.Placement{Lanes: []plan.Lane{{Name: "web", CPUs: in, Spec: lane.Spec{CPUs: lane.CPUs{Count: 1}}}}, Host: plan.MachineOf(m)}
		_, _, err := Plan(Request{Host: m, Placed: placed, Conditions: sc.Conditions, Cells: []*results.Cell{&cell}, Outside: true, InForce: in})
		if got := fmt.Sprintf("client %s neighbours %s", cell.Client, cell.Neighbours); err != nil || got != want || cell.Application != in {
			t.Errorf("%d free: %s, application %s, %v, want %s", free, got, cell.Application, err, want)
		}
	}
}

// Instances share CPUs as their lanes say, and a machine too small for all of them is told by the cell.
func TestInstances(t *testing.T) {
	of := func(cpus, instances, share int) (string, error) {
		given := factor.Conditions{Instances: instances, Lane: lane.Spec{CPUs: lane.CPUs{Count: 1, Share: share}}}
		cell := results.Cell{Name: "cell"}
		layouts, impossible, err := Plan(Request{Host: hosttest.Machine{Packages: 1, CoresPerPackage: cpus, ThreadsPerCore: 1}.Host(t),
			Outside: true, Cells: []*results.Cell{&cell}, Conditions: func(results.Cell) factor.Conditions { return given }})
		if err = errors.Join(err, impossible["cell"]); err != nil {
			return "", err
		}
		var each []string
		for _, l := range layouts["cell"].Placement.Lanes {
			each = append(each, strings.TrimPrefix(l.Name, Application)+" "+l.CPUs.String())
		}
		return fmt.Sprintf("%s of %s, client %s", strings.Join(each, ", "), cell.Application, cell.Client), nil
	}
	for _, c := range []struct {
		cpus, instances, share int
		want                   string
	}{
		{2, 1, 4, " 1 of 1, client 0"},
		{2, 4, 4, " 1, -2 1, -3 1, -4 1 of 1, client 0"},
		{6, 4, 2, " 1, -2 1, -3 2, -4 2 of 1-2, client 3"},
		{6, 3, 0, " 1, -2 2, -3 3 of 1-3, client 4"},
	} {
		if got, err := of(c.cpus, c.instances, c.share); err != nil || got != c.want {
			t.Errorf("%+v: %s, %v", c, got, err)
		}
	}
	if got, err := of(4, 5, 0); err == nil {
		t.Errorf("five CPUs of four: %s", got)
	}
}

// Pods without a lane use all CPUs, also the client's, which is no lane's in any cell.
func TestPods(t *testing.T) {
	sc, err := scenario.Parse("test", strings.NewReader(`{apiVersion: isolane.dev/v1alpha3, kind: Scenario, metadata: {name: test}, spec: {
		factors: [{name: noise, levels: [quiet, {name: noisy, neighbours: [{name: cpu}]}]}, {name: placement, levels: [floating, lane]}],
		baseline: quiet-floating, lane: {cpus: {count: 1}}, probes: [{name: trip, kind: echo}], modes: {quick: {blocks: 1, windows: {echo: {measure: 1s}}}}}}`),
		scenario.Drivers{Factors: []factor.Driver{placement.Driver{}, factornoise.Driver{}}, Probes: []probe.Driver{echo.Driver{}}})
	if err != nil {
		t.Fatal(err)
	}
	for cores, want := range map[int]string{2: "quiet-floating 0-1/ quiet-lane 1/ noisy-floating 0-1/0-1 noisy-lane 1/0",
		4: "quiet-floating 0-3/ quiet-lane 1/ noisy-floating 0-3/0-3 noisy-lane 1/0,2-3"} {
		cells := sc.AllCells()
		q := Request{Host: hosttest.Machine{Packages: 1, CoresPerPackage: cores, ThreadsPerCore: 1}.Host(t),
			Conditions: sc.Conditions, Outside: true, Pods: true}
		for i := range cells {
			q.Cells = append(q.Cells, &cells[i])
		}
		layouts, impossible, err := Plan(q)
		if err != nil || len(impossible) > 0 {
			t.Fatal(err, impossible)
		}
		var got []string
		for _, place := range []string{"quiet-floating", "quiet-lane", "noisy-floating", "noisy-lane"} {
			for _, c := range cells {
				if c.Name != place {
					continue
				}
				got = append(got, fmt.Sprintf("%s %s/%s", c.Name, c.Application, c.Neighbours))
				if c.Client != cpuset.Of(0) {
					t.Errorf("%s: client %s", c.Name, c.Client)
				}
			}
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%d CPUs: got %s, want %s", cores, text, want)
		}
		if notes := Notes(layouts, nil); len(notes) > 0 {
			t.Error(notes)
		}
	}
}
