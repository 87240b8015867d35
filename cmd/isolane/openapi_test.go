package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"isolane.dev/isolane/agent"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/test/golden"
)

type object = map[string]any

// The document that the agent serves is made of its requests, and of the types of its answers.
func TestOpenAPI(t *testing.T) {
	g := generator{fields: lane.Fields(), defs: object{}, comments: map[string]map[string]string{}}
	schemas, paths := object{}, object{}
	of := func(kind string) object {
		schemas[kind] = g.document(t, kind, documents()[kind])
		return object{"$ref": "#/$defs/" + kind}
	}
	answer := func(what, format string, schema object) object {
		return object{"description": what, "content": object{format: object{"schema": schema}}}
	}
	text := object{"type": "string"}
	for _, r := range agent.Routes() {
		responses := object{"403": answer("Who asks may not", "application/json", of("Failure"))}
		format, schema := "application/json", object{"type": "object"}
		switch {
		case r.Lines:
			format = "application/x-ndjson"
		case r.Path == "/metrics":
			format, schema = "text/plain", text
		}
		if r.Answer != "" {
			schema = of(r.Answer)
			responses["default"] = answer("Why there is no answer", "application/json", of("Failure"))
		}
		responses["200"] = answer(r.Summary, format, schema)
		operation := object{"summary": r.Summary, "responses": responses}
		if r.Body != "" {
			operation["requestBody"] = object{"description": "Documents of kind " + r.Body + ", as a file with lanes has them",
				"content": object{"application/yaml": object{"schema": of(r.Body)}}}
			responses["409"] = answer("A refusal says what would help; a failure what is in the way", "application/json",
				object{"oneOf": []any{of(plan.KindOfRefusal), of("Failure")}})
		}
		var parameters []any
		for _, name := range slices.Sorted(maps.Keys(r.Query)) {
			parameters = append(parameters, object{"name": name, "in": "query", "description": r.Query[name],
				"schema": object{"type": "array", "items": text}})
		}
		if parameters != nil {
			operation["parameters"] = parameters
		}
		paths[r.Path] = object{strings.ToLower(r.Method): operation}
	}
	maps.Copy(schemas, g.defs)
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(object{"openapi": "3.1.0", "paths": paths, "components": object{"schemas": schemas},
		"info": object{"title": "Isolane's agent", "version": "v1"}})
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "../../agent/openapi.json", bytes.ReplaceAll(b.Bytes(), []byte("#/$defs/"), []byte("#/components/schemas/")))
}
