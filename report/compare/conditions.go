package compare

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"isolane.dev/isolane/report/evidence"
	"isolane.dev/isolane/report/figures"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
)

// Difference is a condition that is not the same in both sessions.
type Difference struct {
	What string `json:"what"` // environment: kernel
	A    string `json:"a"`
	B    string `json:"b"`
}

// notes says how far the ratios can be trusted.
func notes(a, b *figures.Summary) []string {
	first, second := a.Session, b.Session
	var all []string
	if first.Started.Equal(second.Started) && first.Environment.BootID == second.Environment.BootID {
		all = append(all, "A and B began at the same moment: they are one session.")
	} else {
		all = append(all, "A and B were measured at different times: their runs were not interleaved, so drift "+
			"between the two sessions is not excluded, and a ratio holds all that changed between them. To exclude "+
			"drift, make what differs a factor of one scenario.")
	}
	if boots(a, b) > 1 {
		all = append(all, fmt.Sprintf("The runs are not all of one boot. Where those of a cell are not, boots are "+
			"compared, each with the geometric mean of its runs: a boot is one sample, however many runs it has. A "+
			"verdict needs %d boots of each session at least.", stats.Unpaired.Least(1, a.Metrics[0].Margin.Alpha)))
	}
	for _, s := range []struct {
		name string
		of   *figures.Summary
	}{{"A", a}, {"B", b}} {
		if !s.of.Verdicts {
			all = append(all, s.name+" is a quick session: figures, no verdict.")
		}
		if !s.of.Session.Complete {
			all = append(all, s.name+" is not complete: not all of its runs were made.")
		}
		if l := s.of.Session.Lane; l != nil && len(l.Drift) > 0 {
			all = append(all, fmt.Sprintf("%s: lane %s was changed while it was measured: %s", s.name, l.Name,
				strings.Join(l.Drift, "; ")))
		}
	}
	return all
}

// boots returns in how many boots both sessions together were measured.
func boots(a, b *figures.Summary) int {
	found := map[string]bool{}
	for _, s := range []*figures.Summary{a, b} {
		for _, c := range s.Cells {
			for _, boot := range bootsOf(s, c.Name) {
				found[boot] = true
			}
		}
	}
	return len(found)
}

// conditions returns what differs, in the order in which a reader looks for causes.
func conditions(a, b results.Session, pairs [][2]figures.Cell) []Difference {
	all := differing("environment: ", inBoots(a, evidence.Conditions), inBoots(b, evidence.Conditions))
	line := func(e results.Environment) map[string]string { return map[string]string{"": e.Cmdline} }
	if x, y := inBoots(a, line)[""], inBoots(b, line)[""]; x != y {
		all = append(all, Difference{"environment: command line", without(x, y), without(y, x)})
	}
	if x, y := inBoots(a, settings), inBoots(b, settings); x != nil && y != nil { // else one of them is older
		all = append(all, differing("setting: ", x, y)...)
	}
	versions := func(e results.Environment) map[string]string { return e.Versions }
	all = append(all, differing("environment: version of ", inBoots(a, versions), inBoots(b, versions))...)
	all = append(all, differing("scenario: ", asked(a), asked(b))...)
	all = append(all, parts(a.Scenario.Source, b.Scenario.Source)...)
	all = append(all, differing("lane: ", laneOf(a.Lane), laneOf(b.Lane))...)
	return append(all, ofCells(pairs)...)
}

// inBoots returns the conditions of all boots of a session: different values in the order of the boots.
func inBoots(s results.Session, conditions func(results.Environment) map[string]string) map[string]string {
	all := maps.Clone(conditions(s.Environment))
	if all == nil {
		return nil
	}
	seen := map[string][]string{}
	for _, e := range s.Boots {
		for name, value := range conditions(e) {
			if !slices.Contains(seen[name], value) {
				seen[name] = append(seen[name], value)
			}
			all[name] = strings.Join(seen[name], ", then ")
		}
	}
	return all
}

func settings(e results.Environment) map[string]string { return e.Settings }

// asked returns what the session was to measure.
func asked(s results.Session) map[string]string {
	said := map[string]string{"name": s.Scenario.Name, "mode": s.Scenario.Mode,
		"blocks": fmt.Sprint(s.Scenario.Blocks)}
	for _, c := range s.Cells {
		if c.Baseline {
			said["baseline"] = c.Name
		}
	}
	for _, f := range s.Factors {
		var names []string
		for _, l := range f.Levels {
			names = append(names, l.Name)
		}
		said["levels of "+f.Name] = strings.Join(names, ", ")
	}
	return said
}

// laneOf returns what is known about a lane that was proved. Its digests say whether something differs, not
// what.
func laneOf(l *results.Lane) map[string]string {
	if l == nil {
		return nil
	}
	return map[string]string{"name": l.Name, "kernel and its command line": l.Conditions.Kernel,
		"placement and declaration":             "digest " + l.Conditions.Lane,
		"other lanes, and the CPUs of all else": "digest " + l.Conditions.Outside}
}

// differing returns the keys whose values differ, sorted. It says if one side lacks a key.
func differing(of string, a, b map[string]string) (all []Difference) {
	for _, key := range results.Differing(a, b) {
		all = append(all, Difference{of + key, orNone(a[key]), orNone(b[key])})
	}
	return all
}

func orNone(text string) string { return cmp.Or(text, "none") }

// without returns the words of a kernel command line that another one lacks.
func without(line, other string) string {
	has := strings.Fields(other)
	words := slices.DeleteFunc(strings.Fields(line), func(w string) bool { return slices.Contains(has, w) })
	if len(words) == 0 {
		return "no word that the other lacks"
	}
	return strings.Join(words, " ")
}

// parts compares the scenarios as they were requested: their top-level parts, and those of spec.
func parts(a, b string) []Difference {
	x, xerr := topLevel(a)
	y, yerr := topLevel(b)
	if xerr != nil || yerr != nil {
		return []Difference{{"scenario: source", "cannot be compared", "cannot be compared"}}
	}
	var all []Difference
	for _, d := range differing("scenario: ", x, y) {
		switch {
		case d.What == "scenario: apiVersion": // then parts may differ only in form
		case d.A != "none" && d.B != "none":
			d.A, d.B = "declared", "declared otherwise"
		case d.A != "none":
			d.A = "declared"
		default:
			d.B = "declared"
		}
		all = append(all, d)
	}
	return all
}

// topLevel returns the parts of a scenario, each as YAML with sorted keys.
func topLevel(source string) (map[string]string, error) {
	var document map[string]any
	if err := yaml.Unmarshal([]byte(source), &document); err != nil {
		return nil, err
	}
	if spec, is := document["spec"].(map[string]any); is {
		for key, v := range spec {
			document["spec."+key] = v
		}
		delete(document, "spec")
	}
	said := map[string]string{}
	for key, v := range document {
		text, err := yaml.Marshal(v)
		if err != nil {
			return nil, err
		}
		said[key] = strings.TrimSpace(string(text))
	}
	return said, nil
}

// ofCells returns levels that fell back in only one session, and CPUs that were planned differently, each
// with its cells.
func ofCells(pairs [][2]figures.Cell) []Difference {
	var all []Difference
	at := map[Difference][]string{}
	add := func(d Difference, cell string) {
		if d.A == d.B {
			return
		}
		if at[d] == nil {
			all = append(all, d)
		}
		at[d] = append(at[d], cell)
	}
	for _, p := range pairs {
		for _, factor := range slices.Sorted(maps.Keys(p[0].Levels)) {
			add(Difference{factor + " in force", inForce(p[0], factor), inForce(p[1], factor)}, p[0].Name)
		}
		add(Difference{"planned CPUs", planned(p[0]), planned(p[1])}, p[0].Name)
	}
	for i, d := range all {
		if len(at[d]) < len(pairs) {
			d.What += " of " + strings.Join(at[d], ", ")
		}
		all[i].What = "cells: " + d.What
	}
	return all
}

func inForce(c figures.Cell, factor string) string {
	return cmp.Or(c.InForce[factor], c.Levels[factor])
}

func planned(c figures.Cell) string {
	return fmt.Sprintf("application %s, client %s, neighbours %s", orNone(c.Application.String()),
		orNone(c.Client.String()), orNone(c.Neighbours.String()))
}
