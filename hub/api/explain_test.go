package api

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Each kind, and each field that people declare, has a description: `kubectl explain` has nothing else to
// show.
func TestExplained(t *testing.T) {
	kinds := 0
	for documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(Manifests), 4096); ; {
		var u unstructured.Unstructured
		if err := documents.Decode(&u.Object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if u.GetKind() != "CustomResourceDefinition" {
			continue
		}
		kinds++
		versions, _, err := unstructured.NestedSlice(u.Object, "spec", "versions")
		if err != nil {
			t.Fatal(err)
		}
		schema, _, err := unstructured.NestedMap(versions[0].(map[string]any), "schema", "openAPIV3Schema")
		if err != nil {
			t.Fatal(err)
		}
		if schema["description"] == nil {
			t.Errorf("%s: no description", u.GetName())
		}
		spec, _, err := unstructured.NestedMap(schema, "properties", "spec")
		if err != nil {
			t.Fatal(err)
		}
		explained(t, u.GetName()+": spec", spec)
	}
	if kinds != 6 {
		t.Errorf("%d kinds, expected 6", kinds)
	}
}

func explained(t *testing.T, path string, schema map[string]any) {
	t.Helper()
	fields, _, err := unstructured.NestedMap(schema, "properties")
	if err != nil {
		t.Fatal(err)
	}
	for name := range fields {
		field := fields[name].(map[string]any)
		if text, is := field["description"].(string); !is || text == "" {
			t.Errorf("%s.%s: no description", path, name)
		}
		explained(t, path+"."+name, field)
	}
}
