package test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"isolane.dev/isolane/results"
)

const schemaDir = "../docs/schema"

// conforms checks a file against the published schemas of its documents: conforms stdout KIND… These kinds
// must be there, in any number and order.
func conforms(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: conforms FILE KIND...")
	}
	kinds, err := conform(ts.ReadFile(args[0]))
	ts.Check(err)
	for _, want := range args[1:] {
		if !kinds[want] {
			ts.Fatalf("%s: expected a document of kind %s", args[0], want)
		}
	}
}

// conform checks a stream of JSON documents against the schemas of their kinds, and returns the kinds.
func conform(stream string) (map[string]bool, error) {
	kinds := map[string]bool{}
	for d := json.NewDecoder(strings.NewReader(stream)); ; {
		var raw json.RawMessage
		if err := d.Decode(&raw); errors.Is(err, io.EOF) {
			return kinds, nil
		} else if err != nil {
			return kinds, err
		}
		var head struct{ Kind string }
		if err := json.Unmarshal(raw, &head); err != nil {
			return kinds, err
		}
		schema, err := jsonschema.NewCompiler().Compile(filepath.Join(schemaDir, strings.ToLower(head.Kind)+".json"))
		if err != nil {
			return kinds, err
		}
		document, err := jsonschema.UnmarshalJSON(strings.NewReader(string(raw)))
		if err == nil {
			err = schema.Validate(document)
		}
		if err != nil {
			return kinds, err
		}
		kinds[head.Kind] = true
	}
}

// What the schema says about a lane's fields holds for the examples.
func TestExamplesConform(t *testing.T) {
	files, err := filepath.Glob("../examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no examples", err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
			var lane any
			if err = d.Decode(&lane); errors.Is(err, io.EOF) {
				break
			}
			document, merr := json.Marshal(lane)
			if _, cerr := conform(string(document)); errors.Join(err, merr, cerr) != nil {
				t.Fatalf("%s: %v", name, errors.Join(err, merr, cerr))
			}
		}
	}
}

// A session stored by an earlier version is read and conforms to the schema, and a document that does not is
// detected.
func TestConform(t *testing.T) {
	session, err := results.Read("../results/testdata/schema1") // it is older than the schema
	if err != nil {
		t.Fatal(err)
	}
	stored, err := json.Marshal(session)
	if err != nil {
		t.Fatal(err)
	}
	if kinds, err := conform(string(stored)); err != nil || !kinds["ProveResult"] {
		t.Errorf("%v, %v", kinds, err)
	}
	const lane = `{"apiVersion": "isolane.dev/v1alpha1", "kind": "Lane", "metadata": {"name": "a"}, "spec": {"cpus": {"count": 1}}}`
	if _, err := conform(lane + lane); err != nil {
		t.Error(err)
	}
	for _, c := range []struct{ old, new string }{
		{`"count": 1`, `"count": 0`}, {`"count": 1`, `"cuont": 1`}, {`{"count": 1}`, `1`}, {"v1alpha1", "v1"}, {"Lane", "Line"}, {`"name": "a"`, ``},
	} {
		if _, err := conform(strings.Replace(lane, c.old, c.new, 1)); err == nil {
			t.Errorf("%s in place of %s passed", c.new, c.old)
		}
	}
}
