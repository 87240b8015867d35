package lane

import (
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// paths are the fields that the types have.
func paths(t reflect.Type, path string) []string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	all := []string{path}
	switch {
	case reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
	case t.Kind() == reflect.Map:
		if inside := paths(t.Elem(), path+".*"); len(inside) > 0 {
			all = append(all, inside...)
		}
	case t.Kind() == reflect.Struct:
		for _, f := range reflect.VisibleFields(t) {
			if jsonName(f) == "-" { // of no file
				continue
			}
			all = append(all, paths(f.Type, strings.TrimPrefix(path+"."+jsonName(f), "."))...)
		}
	}
	return all
}

// The table has the fields that the types have, and each says what it must.
func TestFieldsAreComplete(t *testing.T) {
	want := paths(reflect.TypeFor[Lane](), "")[1:]
	var got []string
	for _, f := range Fields() {
		got = append(got, f.Path)
		if f.Meaning == "" || f.Example == "" || f.Form == "" || !strings.HasSuffix(f.Meaning, ".") {
			t.Errorf("%s: expected a form, a meaning and an example: %+v", f.Path, f)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the table has\n%s\nthe types have\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Each example is read where it belongs.
func TestFieldExamples(t *testing.T) {
	const base = `apiVersion: isolane.dev/v1alpha1
kind: Lane
metadata: {name: a}
spec:
  cpus: {count: 8}
  near: {lane: other}
  apart: {lanes: [third]}
  network: {path: sriov, device: ens1f0, addresses: [192.0.2.9/24], vlan: {outer: 9}}
  scheduling: {policy: fifo, priority: 1}
  memory: {hugepages: {2Mi: 2Mi}}
`
	for _, f := range Fields() {
		var document map[string]any
		if err := yaml.Unmarshal([]byte(base), &document); err != nil {
			t.Fatal(err)
		}
		var value any
		if err := yaml.Unmarshal([]byte(f.Example), &value); err != nil {
			t.Fatal(err)
		}
		at, names := document, strings.Split(f.Path, ".")
		for _, name := range names[:len(names)-1] {
			inside, _ := at[name].(map[string]any)
			if inside == nil || f.Path == "spec.near.device" || f.Path == "spec.near.numaNode" { // which stand alone
				inside = map[string]any{}
				if name == "spec" {
					inside["cpus"] = map[string]any{"count": 8}
				}
				at[name] = inside
			}
			at = inside
		}
		last := names[len(names)-1]
		if last == "*" {
			last = map[string]string{"spec.memory.hugepages.*": "2Mi", "spec.preferred.*": "near", "spec.roles.*": "main", "spec.objective.rtt.*": "p99"}[f.Path]
		}
		if at[last] = value; f.Path == "spec.cpus.share" {
			delete(document["spec"].(map[string]any), "scheduling")
		}
		text, err := json.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse("example", strings.NewReader(string(text))); err != nil {
			t.Errorf("%s: %s: %v", f.Path, f.Example, err)
		}
	}
}

func TestTopic(t *testing.T) {
	for in, want := range map[string]string{"lane": "", "lane.spec.cpus": "spec.cpus", "lane.spec.roles.worker": "spec.roles.*",
		"cpus": "expected lane.spec.cpus", "spec.cpus": "expected lane.spec.cpus", "lane.spec.cpu": "did you mean lane.spec.cpus?",
		"pod": "isolane explain lane shows all"} {
		f, err := Topic(in)
		if err != nil && !strings.Contains(err.Error(), want) || err == nil && f.Path != want {
			t.Errorf("%s: %q, %v; want %s", in, f.Path, err, want)
		}
	}
	for field, want := range map[string]string{"spec.cpus.cuont": "lane.spec.cpus", "spec.roles.worker": "lane.spec.roles", "": "lane", "nothing": "lane"} {
		if got := (&FieldError{Field: field}).Hint(); got != "isolane explain "+want {
			t.Errorf("%s: %s; want %s", field, got, want)
		}
	}
}
