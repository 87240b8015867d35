package scenario

import (
	"bytes"
	"encoding/csv"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/factor/boot"
	"isolane.dev/isolane/factor/command"
	"isolane.dev/isolane/factor/cpus"
	"isolane.dev/isolane/factor/distance"
	"isolane.dev/isolane/factor/instances"
	ownlane "isolane.dev/isolane/factor/lane"
	"isolane.dev/isolane/factor/noise"
	"isolane.dev/isolane/factor/path"
	"isolane.dev/isolane/factor/placement"
	"isolane.dev/isolane/factor/runtime"
	"isolane.dev/isolane/factor/setting"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/probe/cyclictest"
	"isolane.dev/isolane/probe/echo"
	"isolane.dev/isolane/probe/frames"
	"isolane.dev/isolane/probe/http"
	"isolane.dev/isolane/probe/iperf3"
	"isolane.dev/isolane/probe/router"
	"isolane.dev/isolane/probe/rtla"
	"isolane.dev/isolane/probe/wakeup"
	"isolane.dev/isolane/probe/wrk"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/scenarios"
)

func kinds() Drivers {
	return Drivers{Factors: []factor.Driver{placement.Driver{}, noise.Driver{}, cpus.Driver{}, ownlane.Driver{}, setting.Driver{}, command.Driver{}, runtime.Driver{}, boot.Driver{}, instances.Driver{}, distance.Driver{},
		path.Driver{Names: map[string]string{"bridge": "", "bridge-gro": "", "macvlan": "", "express": "", "ovs": "", "ovs-dpdk": "", "direct": "", "sriov": "", "vpp": ""}}},
		Probes: []probe.Driver{echo.Driver{}, iperf3.Driver{}, wakeup.Driver{}, cyclictest.Driver{}, rtla.Driver{}, http.Driver{}, wrk.Driver{},
			frames.Driver{}, router.Driver{}}}
}

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
	cells, err := s.Cells(nil)
	if err != nil || len(cells) != 6 || !cells[0].Baseline || len(s.AllCells()) != 124 {
		t.Errorf("%d of %d cells, %v", len(cells), len(s.AllCells()), err)
	}
	for mode, want := range map[string]int{"quick": 6, "standard": 7, "proof": 7} { // with the machine's limit
		if more, merr := s.Cells(s.Named(nil, mode)); merr != nil || len(more) != want {
			t.Errorf("%s has %d cells, want %d: %v", mode, len(more), want, merr)
		}
	}
	if asked := s.Named([]string{"all"}, "standard"); !slices.Equal(asked, []string{"all"}) {
		t.Errorf("asked for all: %v", asked)
	}
	for mode, blocks := range map[string]int{"quick": 3, "standard": 10, "proof": 20} {
		if s.Spec.Modes[mode].Blocks != blocks {
			t.Errorf("%s has %d blocks, want %d", mode, s.Spec.Modes[mode].Blocks, blocks)
		}
	}
	for cell, want := range map[string]uint64{"noisy-lane-express": 128 << 10, "noisy-lane-express-128Ki": 128 << 10,
		"noisy-lane-express-256Ki": 256 << 10, "quiet-floating-bridge-1Mi": 1 << 20} {
		probes, perr := s.ProbesOf(s.Conditions(s.cell(cell)), kinds().Probes)
		if perr != nil {
			t.Fatal(perr)
		}
		for _, p := range probes {
			if i, is := p.Probe.(iperf3.Probe); is && uint64(i.Write) != want {
				t.Errorf("%s of %s: writes of %s", p.Name, cell, i.Write)
			}
		}
	}
	metrics, err := s.Metrics()
	if err != nil || metrics[0].Name != "throughput" || metrics[0].Role != results.Primary || metrics[1].Quantity != "rtt" ||
		metrics[1].Role != results.Primary || metrics[2].Role != results.Check || metrics[3].Role != "" {
		t.Errorf("metrics %+v, %v", metrics, err)
	}
}

// The scenarios that come with the program are ones, and quote what was published.
func TestPublished(t *testing.T) {
	table, err := os.ReadFile("../../claims/testdata/published.csv")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(bytes.NewReader(table)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	units := map[string]float64{"Gbps": 1e9, "us": 1e3, "ms": 1e6, "req/s": 1, "percent": 1}
	var published []float64
	for _, row := range rows {
		if v, perr := strconv.ParseFloat(row[5], 64); perr == nil {
			published = append(published, v*units[row[4]])
		}
	}
	files, err := scenarios.Files.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, f := range files {
		text, err := scenarios.Files.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		s, err := Parse(f.Name(), bytes.NewReader(text), kinds())
		if err != nil {
			t.Error(err)
		}
		for _, p := range s.Published() {
			quoted := p.Value
			if quoted == 0 {
				quoted = p.Percent
			}
			if !slices.ContainsFunc(published, func(v float64) bool { return math.Abs(v-quoted) < 1e-6*quoted }) {
				t.Errorf("%s: %+v is in no published table", f.Name(), p)
			}
			found++
		}
	}
	if found < 50 {
		t.Errorf("%d published figures", found)
	}
}

// The example of the reference is one.
func TestDocumentedExample(t *testing.T) {
	data, err := os.ReadFile("../../docs/scenarios.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(data), "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	s, err := Parse("docs/scenarios.md", strings.NewReader(example), kinds())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range kinds().Factors {
		if !strings.Contains(string(data), "| `"+d.Name()+"` |") {
			t.Errorf("docs/scenarios.md has no row for factor %s", d.Name())
		}
	}
	for _, d := range kinds().Probes {
		if !strings.Contains(string(data), "| `"+d.Name()+"` |") {
			t.Errorf("docs/scenarios.md has no row for probe %s", d.Name())
		}
	}
	for _, kind := range []results.SearchKind{results.Smallest, results.Highest, results.Bounds} {
		if !strings.Contains(string(data), "| `"+string(kind)+"` |") ||
			!slices.ContainsFunc(s.Spec.Searches, func(q Search) bool { return q.Kind == kind }) {
			t.Errorf("docs/scenarios.md has no row or no example of searches %s", kind)
		}
	}
	if n := len(s.AllCells()); n != 5 {
		t.Errorf("%d cells", n)
	}
}

func TestParseRefuses(t *testing.T) {
	text, _ := edge(t)
	for _, c := range []struct{ old, new, want string }{
		{"  baseline:", "  base:", `unknown field "base"`},
		{"baseline: quiet-floating-bridge", "baseline: quiet-floating-memif", "spec.baseline"},
		{"  baseline: quiet-floating-bridge\n", "", `spec.baseline: missing: expected the cell that the others are compared with, such as "quiet-floating-bridge"`},
		{"[floating, awake, pinned, lane]", "[floating, pinned, floating]", `spec.factors[1] (placement): levels[2]: "floating" is listed twice`},
		{"[floating, awake, pinned, lane]", "[]", "spec.factors[1] (placement): levels: at least one"},
		{"[floating, awake, pinned, lane]", "[floating, warp]", "levels[1] (warp): unknown: expected one of awake, floating, lane, pinned"},
		{"[floating, awake, pinned, lane]", "[floating, {name: lane, cpus: 2}]", "levels[1] (lane): expected only name and words"},
		{"name: placement", "name: weather", `spec.factors[1].kind: "weather" is unknown: expected placement, noise, cpus`},
		{"name: path,", "name: path, where: {placement: [moon]},", `spec.factors[2] (path).where: placement has no level "moon"`},
		{"name: placement,", "name: placement, where: {path: [bridge]},", `spec.factors[1] (placement).where: "path" is no factor before`},
		{"name: placement", "name: noise", `spec.factors[1].name: "noise" is listed twice`},
		{"        - quiet\n", "        - {name: quiet, neighbours: [{name: cpu}]}\n", "levels[0] (quiet): neighbours: expected none"},
		{"neighbours:", "neighbors:", `levels[1] (noisy): unknown field "neighbors"`},
		{"    - quiet-floating-bridge\n", "", "the baseline"},
		{"    - noisy-floating-bridge\n", "    - quiet-floating-bridge\n", `spec.cells: "quiet-floating-bridge" is listed twice`},
		{"moreCells: [quiet-lane-direct]", "moreCells: [quiet-lane-express]", `spec.modes.standard.moreCells: "quiet-lane-express" is listed twice`},
		{"mode: open", "mode: open, gap: 5us", "mode open"},
		{"rate: 1000", "rate: -1", "mode open: rate -1"},
		{"rate: 1000", "rate: 2", "(rtt-udp-64-open), spec.modes.quick.windows.echo: measure: 400ms: expected at least one message within it at a rate of 2"},
		{"direction: up", "direction: up, payload: 64", `spec.probes[5] (throughput-tcp-up): unknown field "payload"`},
		{"direction: up, ", "", `spec.probes[5] (throughput-tcp-up): direction: "": expected up or down`},
		{"kind: iperf3", "kind: iperf4", `spec.probes[5].kind: "iperf4" is unknown: expected echo, iperf3, wakeup`},
		{"iperf3: {", "iperf4: {", "spec.modes.quick.windows.iperf4: no probe of this kind"},
		{", iperf3: {warmup: 1s, measure: 1s}", "", "spec.probes[5] (throughput-tcp-up), spec.modes.quick.windows.iperf3: measure: 0s"},
		{"direction: up, write: 128Ki", "direction: up, write: 0", "spec.probes[5] (throughput-tcp-up): write: 0: expected"},
		{"{write: 1Mi}", "{write: 2Mi}", "cell quiet-floating-bridge-1Mi: probe throughput-tcp-up: write: 2Mi: expected 1 byte to 1 MiB"},
		{"without: true", "without: some", `spec.factors[4]: without: expected true or false, found "some"`},
		{"measure: 1s}", "measure: 1500ms}", "iperf3 takes whole seconds"},
		{"blocks: 3", "blocks: 0", "spec.modes.quick.blocks"},
		{"{blocks: 3", "{<<: {blocks: 2}, blocks: 3", "already set in map: beside << expected no key of what it merges"},
		{"priority: 50", "priority: 99", "spec.client"},
		{"  baseline:", "  stealBudget: 101\n  baseline:", "spec.stealBudget: expected 0-100 percent of a CPU, found 101"},
		{"cpus: {count: 1}", "cpus: {count: 0}", "spec.lane: spec.cpus.count: expected 1-8192, found 0"},
		{"name: rtt-udp-1400-pingpong", "name: rtt-udp-64-pingpong", "listed twice"},
		{"name: throughput,", "name: throughput-tcp-up,", `two metrics have the name "throughput-tcp-up"`},
		{"of: [throughput-tcp-up,", "of: [rtt-udp-64-open,", `spec.means[0].of: "rtt-udp-64-open": expected a metric in ns with one value`},
		{"primary: [throughput,", "primary: [power,", `spec.primary[0]: "power": expected one of rtt-udp-64-pingpong`},
		{"primary: [throughput,", "primary: [rtt-udp-64-pingpong,", `spec.primary[1]: "rtt-udp-64-pingpong" is listed twice`},
		{"{name: malloc", "{name: --exec", "neighbours[1].name"},
		{"{name: malloc", "{name: cpu", "neighbours[1].name: cpu is there twice"},
		{"percent: 60, qualifier", "statistic: median, percent: 60, qualifier", "spec.published[0].figures[1].statistic: expected none"},
		{"against: quiet-lane-express, qualifier", "against: quiet-lane, qualifier", "spec.published[0].figures[9].against:"},
		{"row: \"ENSCONCE-rtt:225\"", "row: 225", "spec.published[0].figures[5].row:"},
		{"unanswered:\n", "unanswered:\n        - {cell: noisy-pinned-wire, because: it is short}\n", "spec.published[0].unanswered[0].cell:"},
		{"unanswered:\n", "unanswered:\n        - {cell: noisy-lane-express, row: \"A:1\", because: it is both}\n", "spec.published[0].unanswered[0]: expected row or cell"},
		{"percent: 160,", "percent: 0,", "spec.published[0].figures[6].percent, value: expected one above 0"},
		{"cell: noisy-pinned-bridge", "cell: noisy-pinned-wire", "spec.published[0].figures[2].cell:"},
		{"cell: noisy-lane-express\n", "cell: noisy-lane\n", `spec.aims.cell: "noisy-lane" is none`},
		{"metric: throughput, percent: 180", "metric: power, percent: 50", "spec.aims.goals[0].metric"},
		{"against: quiet-floating-bridge-gro", "against: quiet-floating-wire", "spec.aims.goals[3].against"},
		{"against: quiet-floating-bridge-gro", "against: noisy-lane-express", "spec.aims.goals[3].against: expected another cell"},
		{"percent: 180", "percent: 0", "spec.aims.goals[0].percent: expected more than 0"},
		{"statistic: p99.9", "statistic: p42", "spec.aims.goals[2].statistic"},
		{"    goals:\n", "    goals:\n      - {metric: throughput, percent: 180, against: quiet-floating-bridge}\n", "spec.aims.goals[1]: this aim is listed twice"},
		{"kind: Scenario", "kind: Lane", "apiVersion, kind"},
		{text, "[1]", "expected a map with apiVersion"},
		{text, text + "---\n" + text, "expected one document, found more"},
		{text, text + strings.Repeat("#", 1<<20), "expected at most 1 MiB"},
		{"title: ", `title: "\e[2J" #`, `expected no control characters`},
		{"name: edge\n", "name: ../edge\n", "metadata.name: expected no /"},
		{"name: edge\n", "name: an edge\n", "metadata.name: expected 1-40 characters without blanks"},
		{"name: placement", `name: "place, ment"`, "spec.factors[1].name: expected 1-40 characters"},
		{"name: rtt-udp-64-pingpong", `name: "rtt ping"`, "spec.probes[0].name: expected 1-40 characters"},
		{"name: throughput,", `name: "",`, "spec.means[0].name: expected 1-40 characters"},
		{"where: {noise: [noisy], path: [direct]}", "where: {placement: []}", "spec.exclude[0].where: no combination of the factors is so"},
		{"because: what the machine can do at most is asked of a quiet one", "because: ' '", "spec.exclude[0]: expected where, and because"},
		{"name: path,", "name: path, where: {placement: []},", "spec.factors[2] (path).where: no combination of the factors before it is so"},
		{"measure: 400ms", "measure: 1ns", `windows.echo: measure: 1ns: expected 1ms to 24h`},
		{"blocks: 3,", "blocks: 3, searches: {trial: 1s},", "quick.searches: expected none, or spec.searches that it makes"},
		{"measure: 400ms", "measure: soon", `edge.yaml: spec.modes.quick.windows.echo.measure: duration "soon": expected a number and ns`},
		{"measure: 400ms", "measure: 400", `windows.echo.measure: duration "400": expected a number and ns`},
		{"blocks: 3", "blocks: 3, boots: 4", `edge.yaml: spec.modes.quick.boots: expected 1-3, one block a boot at least, found 4`},
		{"blocks: 3", "blocks: three", `edge.yaml: spec.modes.quick.blocks: expected a whole number, found "three"`},
		{"percent: 60, qualifier", "percent: much, qualifier", `edge.yaml: spec.published[0].figures[1].percent: expected a number, found "much"`},
		{"cpus: {count: 1}", "cpus: {count: 1}\n    objective: {rtt: {p99: 1ms}}", "spec.lane: spec.objective: expected none"},
		{"cpus: {count: 1}", "cpus: 1", "edge.yaml: spec.lane.cpus: expected a map, found 1"},
		{"rate: 1000", "rate: [1]", "spec.probes[4] (rtt-udp-64-open): rate: expected a number, found a list"},
		{"direction: up, write: 128Ki", "direction: up, write: 128 K", `spec.probes[5] (throughput-tcp-up): write: size "128 K": expected 128k`},
		{"name: placement", "name: [placement]", "spec.factors[1]: name: expected a name or a number, found [\"placement\"]"},
		{"name: placement", "name: y", "spec.factors[1]: name: expected a name or a number, found true, which is how YAML reads y"},
		{"name: throughput-tcp-up", "name: off", "spec.probes[5]: name: expected a name or a number, found false"},
		{"        - quiet\n", "        - [quiet]\n", "spec.factors[0] (noise): levels[0]: expected a name or a number"},
		{"  baseline:", "  baseline: x\n  baseline:", `edge.yaml: expected YAML: unmarshal errors: line 34: key "baseline" already set`},
		{"kind: Scenario", "kind: [Scenario]", "edge.yaml: kind: expected text, found a list"},
		{"v1alpha3", "v1alpha2", "apiVersion, kind: expected isolane.dev/v1alpha3 Scenario, found"},
	} {
		_, err := Parse("edge.yaml", strings.NewReader(strings.Replace(text, c.old, c.new, 1)), kinds())
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "edge.yaml: ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q instead of %q: %v; want one line with %q", c.new, c.old, err, c.want)
		}
	}
}

// Several instances of the application: what cannot be is refused by its field.
func TestInstances(t *testing.T) {
	const text = `{apiVersion: isolane.dev/v1alpha3, kind: Scenario, metadata: {name: many}, spec: {
		factors: [{name: count, kind: instances, levels: [1, {name: 4, share: 4}]}, {name: placement, levels: [floating, lane]}],
		baseline: 1-floating, lane: {cpus: {count: 1, share: 4}}, probes: [{name: get, kind: router, share: 50%}],
		searches: [{name: most, kind: highest, probe: get, from: 10, to: 100, cells: [4-lane], goal: {metric: get-rate, atLeast: 9}}],
		modes: {quick: {blocks: 1, windows: {router: {measure: 1s}}, searches: {trial: 1s, sum: 21s, long: 60s}}}}}`
	s, err := Parse("many", strings.NewReader(text), kinds())
	if err != nil {
		t.Fatal(err)
	}
	cells := s.AllCells()
	if c := s.Conditions(cells[len(cells)-1]); c.Instances != 4 || c.Lane.CPUs.Share != 4 {
		t.Errorf("%s: %+v", cells[len(cells)-1].Name, c)
	}
	// A search for a rate takes the place of a share.
	if p, err := s.Trial(s.Spec.Searches[0], cells[0], 40, kinds()); err != nil || p.Probe.(router.Probe).Rate != 40 || p.Probe.(router.Probe).Share != 0 {
		t.Errorf("trial %+v, %v", p.Probe, err)
	}
	// Beside a lane in force there is one.
	around := s.Beside(lane.Spec{CPUs: lane.CPUs{Count: 1}}, "")
	if c := around.Conditions(around.AllCells()[0]); c.Instances != 0 {
		t.Errorf("%d instances in a lane in force", c.Instances)
	}
	for _, c := range []struct{ old, new, want string }{
		{"share: 4}},", "share: 2}},", "many: cell 4-floating: share: 4: expected at most 2, as spec.lane.cpus.share says"},
		{"share: 50%}]", "share: 50%, attack: restart}]", "many: cell 1-floating: probe get: attack: restart: expected two customers or more, so that one is left to be measured, found 1: a factor of kind instances has more"},
		{"factors: [{name: count, kind: instances, levels: [1, {name: 4, share: 4}]}, ", "factors: [{name: bad, kind: setting, levels: [{name: wild, probes: {get: {attack: flood}}}]}, ", "many: cell wild-floating: probe get: attack: flood: expected two customers or more"},
		{"[1, {", "[1, 300, {", "spec.factors[0] (count): levels[1] (300): expected a number of instances, 1-253: one address of a /24 each"},
		{"{name: get, kind: router, share: 50%}]", "{name: get, kind: router, share: 50%}, {name: trip, kind: echo}]",
			"spec.probes (trip): cell 4-floating: kind echo measures one instance of the application only, not 4: expected optional: true"},
	} {
		_, err := Parse("many", strings.NewReader(strings.Replace(text, c.old, c.new, 1)), kinds())
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q instead of %q: %v; want %q", c.new, c.old, err, c.want)
		}
	}
}

// A factor matters only at levels of another, and combinations are left out with their reason.
func TestCells(t *testing.T) {
	s := parse(t, `[{name: place, kind: placement, levels: [floating, lane]}, {name: cpus, where: {place: [lane]}, levels: [1, {name: 2, words: both}]},
		{name: noise, levels: [quiet, {name: größe, neighbours: [{name: cpu}]}]}]`, "exclude: [{where: {cpus: [2], noise: [größe]}, because: too loud}]", "floating-quiet")
	var names []string
	for _, c := range s.AllCells() {
		names = append(names, c.Name)
	}
	want := []string{"floating-quiet", "lane-1-quiet", "lane-2-quiet", "floating-größe", "lane-1-größe"}
	if d := cmp.Diff(want, names); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]results.Excluded{{Cell: "lane-2-größe", Because: "too loud"}}, s.Excluded()); d != "" {
		t.Error(d)
	}
	if _, err := s.Cells([]string{"lane-2-größe"}); err == nil || err.Error() != `"lane-2-größe" is excluded: too loud` {
		t.Error(err)
	}
	if c := s.Conditions(s.AllCells()[2]); c.Lane.CPUs.Count != 2 || c.Place != factor.InLane || len(c.Neighbours) > 0 {
		t.Errorf("%+v", c)
	}
	if c := s.Conditions(s.AllCells()[3]); c.Lane.CPUs.Count != 1 || c.Place != factor.Anywhere || c.Neighbours[0].Name != "cpu" {
		t.Errorf("%+v", c)
	}
	if f := s.Factors(); f[1].Levels[1].Words != "both" || f[2].Quiet != "quiet" || f[0].Quiet != "" {
		t.Errorf("%+v", f)
	}
}

// Where cells may be without a level of a factor, their names are as if there were no such factor.
func TestWithout(t *testing.T) {
	s := parse(t, `[{name: place, kind: placement, levels: [floating, lane]},
		{name: rate, kind: setting, where: {place: [lane]}, without: true, levels: [{name: 200, probes: {open: {rate: 200}}}, {name: 300, probes: {open: {rate: 300}}}]}]`, "", "lane")
	got := map[string]float64{}
	for _, c := range s.AllCells() {
		probes, err := s.ProbesOf(s.Conditions(c), kinds().Probes)
		if err != nil {
			t.Fatal(err)
		}
		got[c.Name] = float64(probes[0].Probe.(echo.Probe).Rate)
	}
	if d := cmp.Diff(map[string]float64{"floating": 100, "lane": 100, "lane-200": 200, "lane-300": 300}, got); d != "" {
		t.Error(d)
	}
	// what a cell may be without is not varied around a lane in force, whose cells keep their number
	if beside := s.Beside(lane.Spec{}, "").AllCells(); len(beside) != 1 {
		t.Errorf("%+v", beside)
	}
}

// A level that does nothing is refused: one that another factor's level replaces, and one of the way to a client
// that there is not. What is nested or sets something else may stand.
func TestLevelsThatDoNothing(t *testing.T) {
	const quieter = "{name: noise, levels: [quiet, {name: noisy, neighbours: [{name: cpu}]}]}, {name: disk, kind: noise, levels: [quiet, {name: writes, neighbours: [{name: hdd}]}]}"
	const slower = "{name: a, kind: setting, levels: [{name: 1, probes: {p: {gap: 1us}}}]}, {name: b, kind: setting, levels: [{name: 1, probes: {p: {gap: 2us}}}]}"
	const other = "{name: a, kind: setting, levels: [{name: 1, probes: {p: {gap: 1us}}}]}, {name: b, kind: setting, levels: [{name: 1, probes: {p: {wait: spin}}}]}"
	const nested = "{name: a, kind: cpus, levels: [1]}, {name: b, kind: cpus, where: {a: [1]}, levels: [1, 2]}"
	const commands = "{name: a, kind: command, levels: [{name: 1, before: [a], after: [b]}]}, {name: b, kind: command, levels: [{name: 1, before: [c], after: [d]}]}"
	for _, c := range []struct{ factors, baseline, probe, want string }{
		{quieter, "quiet-quiet", "echo", "spec.factors[1] (disk): level quiet sets what noisy of noise sets too, in cell noisy-quiet:"},
		{slower, "1-1", "echo", "spec.factors[1] (b): level 1 sets what 1 of a sets too, in cell 1-1:"},
		{other, "1-1", "echo", ""},
		{nested, "1-1", "echo", ""},
		{commands, "1-1", "echo", ""},
		{"{name: path, levels: [bridge, express]}", "bridge", "echo", ""},
		{"{name: path, levels: [bridge, express]}", "bridge", "wakeup", "spec.factors[0] (path): level bridge is about the way to the client, and no probe has a client"},
		{"{name: distance, levels: [same-cpu, siblings]}", "same-cpu", "wakeup", "spec.factors[0] (distance): level same-cpu is about the way to the client"},
	} {
		text := "apiVersion: isolane.dev/v1alpha3\nkind: Scenario\nmetadata: {name: own}\nspec: {factors: [" + c.factors +
			"], baseline: " + c.baseline + ", lane: {cpus: {count: 1}}, probes: [{name: p, kind: " + c.probe +
			"}], modes: {quick: {blocks: 2, windows: {" + c.probe + ": {measure: 1s}}}}}\n"
		_, err := Parse("own", strings.NewReader(text), kinds())
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.factors, err, c.want)
		}
	}
}

// Combinations are counted where they matter: 40 levels more at one of 40 are 79, at each they are too many.
func TestManyCells(t *testing.T) {
	levels := "1"
	for n := range 39 {
		levels += ", " + strconv.Itoa(n+2)
	}
	for where, want := range map[string]string{"{a: [1]}": "", "{}": "spec.factors[1]: expected at most 1000 combinations"} {
		text := "[{name: a, kind: cpus, levels: [" + levels + "]}, {name: b, kind: cpus, where: " + where + ", levels: [" + levels + "]}]"
		s, err := Parse("many", strings.NewReader(document(text, "", "1-1")), kinds())
		if want == "" && (err != nil || len(s.AllCells()) != 79) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("where %s: %v, want %q", where, err, want)
		}
	}
}

// Around a lane in force only what changes nothing of the application is varied.
func TestBeside(t *testing.T) {
	_, s := edge(t)
	beside := s.Beside(lane.Spec{CPUs: lane.CPUs{Count: 3}}, "")
	if c := s.Beside(lane.Spec{}, "macvlan"); c.Conditions(c.AllCells()[0]).Path != "macvlan" {
		t.Error("the lane's own path is another one")
	}
	tagged := s
	tagged.Spec.Baseline = "quiet-floating-qinq"
	for own, want := range map[string]lane.VLAN{"": {Outer: 100, Inner: 7}, "macvlan": {}} {
		if c := tagged.Beside(lane.Spec{}, own); c.Conditions(c.AllCells()[0]).VLAN != want {
			t.Errorf("a lane with path %q beside one with tags: %+v", own, c.Conditions(c.AllCells()[0]).VLAN)
		}
	}
	cells, err := beside.Cells(nil)
	if err != nil || len(cells) != 2 || cells[0].Name != "quiet" || !cells[0].Baseline || cells[1].Name != "noisy" {
		t.Fatalf("%+v, %v", cells, err)
	}
	if c := beside.Conditions(cells[1]); c.Place != factor.InLane || c.Path != "bridge" || c.Lane.CPUs.Count != 3 || len(c.Neighbours) != 3 {
		t.Errorf("%+v", c)
	}
	if len(beside.Published()) > 0 || beside.Spec.Aims != nil {
		t.Error("the figures of others are compared with a lane's")
	}
}

// A level sets fields of a probe, which its driver reads as strictly as in the file.
func TestSetting(t *testing.T) {
	s := parse(t, `[{name: load, kind: setting, levels: [{name: low, probes: {open: {rate: 10}}}, {name: high, probes: {open: {rate: 500}}}]}]`, "", "low")
	probes, err := s.ProbesOf(s.Conditions(s.AllCells()[1]), kinds().Probes)
	if err != nil || probes[0].Probe.(echo.Probe).Rate != 500 || s.Spec.Probes[0].Probe.(echo.Probe).Rate != 100 {
		t.Errorf("%+v, %v", probes, err)
	}
	for _, bad := range []string{"{other: {rate: 1}}", "{open: {rate: -1}}", "{open: {speed: 1}}", "{}"} {
		_, err := Parse("f", strings.NewReader(document(`[{name: load, kind: setting, levels: [{name: low, probes: `+bad+`}]}]`, "", "low")), kinds())
		if err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// A server is where its cell says: in a container, and in a virtual machine where its probe knows what it needs there.
func TestServerInGuest(t *testing.T) {
	const runtimes = "[{name: runtime, levels: [host, LEVEL]}]"
	for _, level := range []string{"container", "vm"} {
		parse(t, strings.Replace(runtimes, "LEVEL", level, 1), "", "host")
	}
	vm := document(strings.Replace(runtimes, "LEVEL", "vm", 1), "", "host")
	vm = strings.NewReplacer("kind: echo, mode: open, rate", "kind: http, size: 1Ki, rate", "{echo:", "{http:").Replace(vm)
	_, err := Parse("f", strings.NewReader(vm), kinds())
	want := "cell vm: kind http has an application that cannot run in a virtual machine: expected optional: true"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Error(err)
	}
}

func document(factors, more, baseline string) string {
	return `apiVersion: isolane.dev/v1alpha3
kind: Scenario
metadata: {name: small, title: t}
spec:
  factors: ` + factors + `
  ` + more + `
  baseline: ` + baseline + `
  lane: {cpus: {count: 1}}
  probes: [{name: open, kind: echo, mode: open, rate: 100}]
  modes: {quick: {blocks: 1, windows: {echo: {measure: 1s}}}}
`
}

func parse(t *testing.T, factors, more, baseline string) Scenario {
	t.Helper()
	s, err := Parse("f", strings.NewReader(document(factors, more, baseline)), kinds())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The only cell is what there is to compare with.
func TestOneCell(t *testing.T) {
	for factors, want := range map[string]string{"[]": "small", "[{name: 大きさ, kind: cpus, levels: [1]}]": "1"} {
		if s := parse(t, factors, "", `""`); s.Spec.Baseline != want || len(s.AllCells()) != 1 || !s.AllCells()[0].Baseline {
			t.Errorf("%s: baseline %q of %+v", factors, s.Spec.Baseline, s.AllCells())
		}
	}
}

func FuzzParse(f *testing.F) {
	data, err := os.ReadFile("../../scenarios/edge.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(data))
	f.Add(searching)
	f.Add(document("[{name: cpus, levels: [1, 2]}]", "", "'1'"))
	f.Fuzz(func(_ *testing.T, text string) { _, _ = Parse("f", strings.NewReader(text), kinds()) })
}

// What a machine need not have is no base for a verdict, an aim or a search.
func TestOptional(t *testing.T) {
	const text = "{apiVersion: isolane.dev/v1alpha3, kind: Scenario, metadata: {name: test}, spec: {factors: [{name: placement, levels: [floating, lane]}], " +
		"baseline: floating, lane: {cpus: {count: 1}}, probes: [{name: w, kind: wakeup}, {name: r, kind: rtla, optional: true}], MORE" +
		"modes: {quick: {blocks: 1, windows: {wakeup: {measure: 1s}, rtla: {measure: 1s}}}}}}"
	s, err := Parse("test", strings.NewReader(strings.Replace(text, "MORE", "", 1)), kinds())
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := s.Metrics()
	if err != nil || metrics[0].Name != "w" || metrics[1].Role == results.Primary {
		t.Errorf("%+v, %v", metrics, err)
	}
	if programs := s.Programs(s.AllCells(), kinds().Probes); len(programs) != 0 {
		t.Errorf("needs %v", programs)
	}
	for more, want := range map[string]string{
		"primary: [r], ": "spec.primary[0]",
		"aims: {cell: lane, goals: [{metric: r, percent: 50}]}, ": "spec.aims.goals[0].metric",
		"means: [{name: m, of: [r-skipped]}], ":                   "spec.means[0].of",
	} {
		if _, err := Parse("test", strings.NewReader(strings.Replace(text, "MORE", more, 1)), kinds()); err == nil ||
			!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "not optional") {
			t.Errorf("%s: %v", more, err)
		}
	}
	alone := strings.Replace(strings.Replace(text, "MORE", "", 1), "kind: wakeup", "kind: wakeup, optional: true", 1)
	if _, err := Parse("test", strings.NewReader(alone), kinds()); err == nil || !strings.Contains(err.Error(), "one that is not optional") {
		t.Errorf("none but optional ones: %v", err)
	}
}
