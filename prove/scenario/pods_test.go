package scenario

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sigs.k8s.io/yaml"

	"isolane.dev/isolane/probe/wakeup"
)

// In pods the scenario edge has no paths, and its cpuset alone is excluded; what comes of it can be read again.
func TestInPods(t *testing.T) {
	_, s := edge(t)
	in, err := s.InPods(false)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"quiet-floating", "noisy-floating", "quiet-lane", "noisy-lane"}
	if d := cmp.Diff(want, in.Spec.Cells); d != "" || in.Spec.Baseline != "quiet-floating" {
		t.Errorf("baseline %s (-want +got):\n%s", in.Spec.Baseline, d)
	}
	for _, e := range in.Excluded() {
		why := map[string]string{"pinned": "kubelet's CPU manager", "awake": "cannot keep CPUs awake"}
		if _, level, _ := strings.Cut(e.Cell, "-"); why[level] == "" || !strings.Contains(e.Because, why[level]) {
			t.Errorf("excluded: %+v", e)
		}
	}
	if len(in.Excluded()) != 4 || len(in.AllCells()) != 4 || in.Spec.Aims != nil || in.Spec.Published != nil {
		t.Errorf("%d excluded, %d cells, aims %v", len(in.Excluded()), len(in.AllCells()), in.Spec.Aims)
	}
	if len(s.AllCells()) != 124 {
		t.Errorf("the scenario itself has %d cells now", len(s.AllCells()))
	}
	with, err := s.InPods(true)
	if err != nil || len(with.Excluded()) != 2 || !slices.Contains(with.Spec.Cells, "noisy-pinned") {
		t.Errorf("with a static node: %v: excluded %v, cells %v", err, with.Excluded(), with.Spec.Cells)
	}
	written, err := yaml.Marshal(in) // as results keep it
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("written", strings.NewReader(string(written)), kinds())
	if d := cmp.Diff(in.AllCells(), again.AllCells()); err != nil || d != "" {
		t.Errorf("read again: %v (-want +got):\n%s", err, d)
	}
}

// A lane for a process beside the same lane for a pod: both are cells where there are pods, else the process alone.
func TestPodAndProcess(t *testing.T) {
	s := parse(t, "[{name: place, kind: placement, levels: [floating, lane]}, {name: path, levels: [bridge, express]}, "+
		"{name: in, kind: runtime, where: {place: [lane]}, levels: [pod, host]}]", "", "floating-bridge")
	in, err := s.InPods(false)
	if err != nil {
		t.Fatal(err)
	}
	processes := map[string]bool{}
	for _, c := range in.AllCells() {
		processes[c.Name] = in.Conditions(c).Process
	}
	if d := cmp.Diff(map[string]bool{"floating": false, "lane-pod": false, "lane-host": true}, processes); d != "" {
		t.Errorf("processes (-want +got):\n%s", d)
	}
	var without []string
	for _, c := range s.WithoutPods().AllCells() {
		without = append(without, c.Name)
	}
	want := []string{"floating-bridge", "floating-express", "lane-bridge-host", "lane-express-host"}
	if d := cmp.Diff(want, without); d != "" {
		t.Errorf("without pods (-want +got):\n%s", d)
	}
}

// What a pod cannot have is refused by its name, and what need not be is left out.
func TestNotInPods(t *testing.T) {
	places := "[{name: place, kind: placement, levels: [floating, lane]}, "
	for factors, want := range map[string]string{
		places + "{name: in, kind: runtime, levels: [host, container]}]":                            "factor in: level container: ",
		"[{name: place, kind: placement, levels: [pinned, lane]}, {name: noise, levels: [quiet]}]":  "the baseline pinned-quiet: ",
		"[{name: path, levels: [bridge]}, {name: noise, where: {path: [bridge]}, levels: [quiet]}]": "factor noise: its where names a path",
	} {
		first := regexp.MustCompile(`levels: \[(\w+)`).FindAllStringSubmatch(factors, -1)
		_, err := parse(t, factors, "", first[0][1]+"-"+first[1][1]).InPods(false)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v; want %s", factors, err, want)
		}
	}
	s := parse(t, places+"{name: noise, levels: [quiet]}]", "", "floating-quiet")
	s.Spec.Searches = []Search{{Name: "most"}}
	if _, err := s.InPods(false); err == nil || err.Error() != "search most: in pods none are made" {
		t.Error(err)
	}
	s.Spec.Probes = append(s.Spec.Probes, Probe{Name: "w", Kind: "wakeup", Probe: wakeup.Probe{}})
	if _, err := s.InPods(false); err == nil || !strings.Contains(err.Error(), "probe w measures within the application") {
		t.Error(err)
	}
}
