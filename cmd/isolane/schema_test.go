package main

import (
	"bytes"
	"encoding"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"isolane.dev/isolane/agent"
	"isolane.dev/isolane/audit"
	"isolane.dev/isolane/boot"
	"isolane.dev/isolane/claims"
	"isolane.dev/isolane/cores"
	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/history"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/netpath/drivers"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/prove"
	"isolane.dev/isolane/report"
	"isolane.dev/isolane/report/compare"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/test/golden"
	"isolane.dev/isolane/version"
	"isolane.dev/isolane/watch"
)

const schemaDir = "../../docs/schema"

// documents are all that commands read and print as JSON, by kind.
func documents() map[string]any {
	return map[string]any{
		lane.Kind:          lane.Lane{},
		host.Kind:          lanes.Machine{},
		audit.Kind:         audit.Report{},
		"Claims":           claims.Report{},
		plan.Kind:          plan.Placement{},
		plan.KindOfRefusal: plan.Refusal{},
		results.Kind:       results.Session{},
		"Status":           enforce.Status{},
		"Difference":       enforce.Difference{},
		"Applied":          lanes.Applied{},
		"Released":         lanes.Released{},
		"Recovered":        lanes.Recovered{},
		"Intruders":        watch.Reading{},
		"Boot":             boot.Line{},
		"GRUB":             boot.GRUB{},
		"Cores":            cores.Document{},
		"Report":           report.Document{},
		"Comparison":       compare.Document{},
		"Scenarios":        prove.Scenarios{},
		"Version":          version.Version{},
		"History":          history.List{},
		"Event":            agent.Event{},
		"Evidence":         agent.Evidence{},
		"Failure":          agent.Failure{},
	}
}

// The published schemas are those of the types that are read and printed.
func TestSchemas(t *testing.T) {
	for kind, document := range documents() {
		g := generator{fields: lane.Fields(), defs: map[string]any{}, comments: map[string]map[string]string{}}
		s := g.document(t, kind, document)
		s["$schema"], s["title"] = "https://json-schema.org/draft/2020-12/schema", kind
		if len(g.defs) > 0 {
			s["$defs"] = g.defs
		}
		var want bytes.Buffer
		e := json.NewEncoder(&want)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		if err := e.Encode(s); err != nil {
			t.Fatal(err)
		}
		golden.Check(t, filepath.Join(schemaDir, strings.ToLower(kind)+".json"), want.Bytes())
	}
	files, err := filepath.Glob(schemaDir + "/*.json")
	if err != nil || len(files) != len(documents()) {
		t.Errorf("%s: %d files, expected one for each of the %d documents (%v)", schemaDir, len(files), len(documents()), err)
	}
}

// document is the schema of a document, with its own kind.
func (g generator) document(t *testing.T, kind string, document any) map[string]any {
	t.Helper()
	s := g.structure(reflect.TypeOf(document), "")
	properties, ok := s["properties"].(map[string]any)
	if !ok || properties["kind"] == nil || properties["apiVersion"] == nil {
		t.Fatalf("%s: expected apiVersion and kind", kind)
	}
	apiVersion := plan.APIVersion
	if slices.Contains([]string{lane.Kind, host.Kind, results.Kind, "Report", "Comparison", "Version"}, kind) {
		apiVersion = lane.APIVersion // these have not changed since
	}
	properties["apiVersion"], properties["kind"] = map[string]any{"const": apiVersion}, map[string]any{"const": kind}
	return s
}

// generator makes JSON schemas of Go types: structures that encoding/json knows, our types that print
// themselves as text, and those that print null for what is not known. Descriptions are the doc comments;
// those of a lane, and the ranges of its values, are the table that isolane explain prints.
type generator struct {
	fields   []lane.Field
	defs     map[string]any
	comments map[string]map[string]string // by package: of types, and of Type.Field
}

func (g generator) schema(t reflect.Type, path string) map[string]any {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[time.Time]():
		return map[string]any{"type": "string", "format": "date-time"}
	case strings.HasSuffix(t.PkgPath(), "/quantity"):
		return map[string]any{"type": []string{"string", "integer"}}
	case t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return map[string]any{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Struct:
		name := filepath.Base(t.PkgPath()) + "." + t.Name()
		if g.defs[name] == nil {
			g.defs[name] = true // until it is known: a type may hold itself
			g.defs[name] = g.structure(t, path)
		}
		return map[string]any{"$ref": "#/$defs/" + name}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": g.property(t.Elem(), path+".*")}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return map[string]any{"type": "string", "contentEncoding": "base64"}
		}
		return map[string]any{"type": "array", "items": g.schema(t.Elem(), "")}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Uint, reflect.Uint64, reflect.Uint32, reflect.Uint8:
		return map[string]any{"type": "integer", "minimum": 0}
	case reflect.Int, reflect.Int64, reflect.Int32:
		return map[string]any{"type": "integer"}
	default:
		panic("no schema for " + t.String())
	}
}

// structure is the schema of a struct.
func (g generator) structure(t reflect.Type, path string) map[string]any {
	if t == reflect.TypeFor[lane.Spec]() {
		path = "spec" // wherever it stands
	}
	properties, required := map[string]any{}, []string{}
	null := nulls(t)
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" || name == "-" || !f.IsExported() {
			continue
		}
		inside := ""
		if t.PkgPath() == reflect.TypeFor[lane.Lane]().PkgPath() {
			inside = strings.TrimPrefix(path+"."+name, ".")
		}
		p := g.property(f.Type, inside)
		if null[name] {
			p = orNull(p)
		}
		if text := g.comment(t, f); text != "" && p["description"] == nil {
			p["description"] = text
		}
		properties[name] = p
		if !strings.Contains(options, "omit") {
			required = append(required, name)
		}
	}
	s := map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
	if text := g.commentsOf(t.PkgPath())[t.Name()]; text != "" {
		s["description"] = text
	}
	return s
}

// property is the schema of a field, with what the table says of it.
func (g generator) property(t reflect.Type, path string) map[string]any {
	p := g.schema(t, path)
	for _, f := range g.fields {
		if f.Path != path || path == "" {
			continue
		}
		p["description"] = f.Meaning
		if values := slices.Concat(f.Values, netpath.Choices(drivers.Paths())[path]); len(values) > 0 {
			p["enum"] = values
		}
		if f.Max > 0 {
			p["minimum"], p["maximum"] = f.Min, f.Max
		}
	}
	return p
}

// nulls are the fields that a zero value prints as null: pointers, and what a type prints so itself. Of a
// machine and of a measurement, a list that the source does not say is null too; elsewhere lists and objects
// never are.
func nulls(t reflect.Type) map[string]bool {
	data, err := json.Marshal(reflect.Zero(t).Interface())
	var fields map[string]json.RawMessage
	if err != nil || json.Unmarshal(data, &fields) != nil {
		panic("no JSON of " + t.String())
	}
	null := map[string]bool{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		told := slices.Contains([]string{"host", "results"}, filepath.Base(owner(t, f).PkgPath()))
		isList := f.Type.Kind() == reflect.Slice || f.Type.Kind() == reflect.Map
		null[name] = string(fields[name]) == "null" && (!isList || told)
	}
	return null
}

func orNull(p map[string]any) map[string]any {
	if kind, ok := p["type"].(string); ok {
		p["type"] = []string{kind, "null"}
		return p
	}
	return map[string]any{"anyOf": []any{p, map[string]any{"type": "null"}}}
}

// comment is what the source says of a field.
func (g generator) comment(t reflect.Type, f reflect.StructField) string {
	t = owner(t, f)
	return g.commentsOf(t.PkgPath())[t.Name()+"."+f.Name]
}

// owner is the struct that has a field: an embedded one, or t itself.
func owner(t reflect.Type, f reflect.StructField) reflect.Type {
	for _, at := range f.Index[:len(f.Index)-1] {
		t = t.Field(at).Type
	}
	return t
}

// commentsOf reads the comments of one of our packages.
func (g generator) commentsOf(pkg string) map[string]string {
	if g.comments[pkg] != nil {
		return g.comments[pkg]
	}
	found := map[string]string{}
	g.comments[pkg] = found
	files, err := filepath.Glob(filepath.Join("../..", strings.TrimPrefix(pkg, "isolane.dev/isolane"), "*.go"))
	if err != nil {
		panic(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			panic(err)
		}
		for _, d := range file.Decls {
			declaration, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, s := range declaration.Specs {
				if spec, ok := s.(*ast.TypeSpec); ok {
					addComments(found, spec, declaration.Doc)
				}
			}
		}
	}
	return found
}

func addComments(found map[string]string, spec *ast.TypeSpec, doc *ast.CommentGroup) {
	found[spec.Name.Name] = oneLine(doc)
	s, ok := spec.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, f := range s.Fields.List {
		for _, name := range f.Names {
			found[spec.Name.Name+"."+name.Name] = strings.TrimSpace(oneLine(f.Doc) + " " + oneLine(f.Comment))
		}
	}
}

func oneLine(c *ast.CommentGroup) string {
	return strings.TrimSpace(regexp.MustCompile(`\s+`).ReplaceAllString(c.Text(), " "))
}
