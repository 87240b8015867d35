package isolane_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"isolane.dev/isolane/test/golden"
)

// Rows of the ratchet for the whole tree. Only the last counts tests too.
const (
	longFunctions = "(functions>60)"
	longLines     = "(lines>110)" // columns; a tab is one
	longFiles     = "(files>400)"
	nolints       = "(nolint)"
)

// slack is how much less the tree may have than its row says.
const slack = 2

// roundUp leaves a package some room, so that not each change has to touch the table.
func roundUp(n, column int) int {
	step := []int{50, 5}[column]
	return (n + step - 1) / step * step
}

// row is what the ratchet says of a package: lines and exported names. A row of the tree has one number.
type row struct {
	counts []int
	why    string
	places []string // what counts, file and line, where it is a row of the tree
}

// readRatchet reads the table in architecture_test.go.
func readRatchet(t *testing.T, table string) map[string]row {
	t.Helper()
	rows := map[string]row{}
	for line := range strings.Lines(strings.TrimSpace(table)) {
		f := strings.Fields(line)
		if f[0] == "package" {
			continue
		}
		var r row
		for len(f) > 1+len(r.counts) {
			n, err := strconv.Atoi(f[1+len(r.counts)])
			if err != nil {
				break
			}
			r.counts = append(r.counts, n)
		}
		r.why = strings.Join(f[1+len(r.counts):], " ")
		if _, twice := rows[f[0]]; twice || len(r.counts) == 0 {
			t.Fatalf("architecture_test.go: %s: expected one row, with numbers", f[0])
		}
		rows[f[0]] = r
	}
	return rows
}

// What the tree has is what its ratchet allows: not more, and not much less, so that the table follows.
func TestRatchet(t *testing.T) {
	allowed, found := readRatchet(t, ratchet()), measureTree(t)
	t.Log("lines without tests and the lab: ", total(found))
	if golden.Update() {
		allowed = lower(t, allowed, found)
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		r, ok := allowed[name]
		if now := found[name].counts; !ok || len(r.counts) != len(now) {
			t.Errorf("architecture_test.go: the ratchet needs a row: %s %v", name, now)
			continue
		}
		for i, now := range found[name].counts {
			what, least := "in the tree", now+slack
			if len(r.counts) > 1 {
				what, least = []string{"lines", "exported"}[i], roundUp(now, i)
			}
			switch most := r.counts[i]; {
			case now > most:
				t.Errorf("%s: %d %s, the ratchet in architecture_test.go allows %d: write less, or raise it there and say why%s",
					name, now, what, most, strings.Join(append([]string{""}, found[name].places...), "\n\t"))
			case least < most:
				t.Errorf("%s: %d %s, the ratchet in architecture_test.go allows %d: lower it with go test . -run Ratchet -update",
					name, now, what, most)
			}
		}
	}
	for name := range allowed {
		if _, ok := found[name]; !ok {
			t.Errorf("architecture_test.go: the ratchet has a row for %s, which does not exist", name)
		}
	}
}

// lower writes the table again with what was found, where that is less, and returns it.
func lower(t *testing.T, allowed, found map[string]row) map[string]row {
	t.Helper()
	table := fmt.Sprintf("%-20s %5s %8s  %s\n", "package", "lines", "exported", "why it was raised")
	lowered := map[string]row{}
	for _, name := range slices.Sorted(maps.Keys(allowed)) {
		r, now := allowed[name], found[name]
		if now.counts == nil {
			continue // the package is gone
		}
		line := fmt.Sprintf("%-20s", name)
		for i := range r.counts {
			found := now.counts[i]
			if len(r.counts) > 1 {
				found = roundUp(found, i)
			}
			r.counts[i] = min(r.counts[i], found)
			line += fmt.Sprintf([]string{" %5d", " %8d"}[i], r.counts[i])
		}
		table += strings.TrimRight(line+"  "+r.why, " ") + "\n"
		lowered[name] = r
	}
	const file = "architecture_test.go"
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	old := "return `" + ratchet() + "`"
	if !bytes.Contains(source, []byte(old)) {
		t.Fatalf("%s: the table is not where it was", file)
	}
	source = bytes.Replace(source, []byte(old), []byte("return `\n"+table+"`"), 1)
	if err = os.WriteFile(file, source, 0o644); err != nil {
		t.Fatal(err)
	}
	return lowered
}

// measureTree counts what the ratchet limits.
func measureTree(t *testing.T) map[string]row {
	t.Helper()
	found := map[string]row{}
	add := func(name string, counts ...int) {
		r, ok := found[name]
		if !ok {
			r.counts = make([]int, len(counts))
		}
		for i, n := range counts {
			r.counts[i] += n
		}
		found[name] = r
	}
	one := func(name, place string) {
		add(name, 1)
		r := found[name]
		r.places = append(r.places, place)
		found[name] = r
	}
	for _, name := range []string{longFunctions, longLines, longFiles, nolints} {
		add(name, 0)
	}
	for _, name := range sources(t) {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, name, source, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, group := range file.Comments {
			for _, c := range group.List {
				if strings.HasPrefix(c.Text, "//nolint") {
					one(nolints, files.Position(c.Pos()).String())
				}
			}
		}
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		lines := bytes.Count(source, []byte("\n"))
		add(path.Dir(name), lines, exported(file))
		if lines > 400 {
			one(longFiles, name)
		}
		for i, line := range strings.Split(string(source), "\n") {
			if utf8.RuneCountInString(line) > 110 {
				one(longLines, fmt.Sprintf("%s:%d", name, i+1))
			}
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && files.Position(f.End()).Line-files.Position(f.Pos()).Line >= 60 {
				one(longFunctions, files.Position(f.Pos()).String())
			}
		}
	}
	return found
}

// The glossary stays short enough to be read.
func TestGlossary(t *testing.T) {
	const most = 60
	text, err := os.ReadFile("CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, glossary, _ := strings.Cut(string(text), "\n## Glossary\n")
	rows := strings.Count(glossary, "\n| ") - strings.Count(glossary, "\n| word |")
	if rows == 0 || rows > most {
		t.Errorf("CONTRIBUTING.md: the glossary has %d rows, expected at most %d: which word is the field's own?", rows, most)
	}
}

// total is how many lines the library and its command have.
func total(found map[string]row) int {
	n := 0
	for name, r := range found {
		first, _, _ := strings.Cut(name, "/")
		if len(r.counts) > 1 && first != "lab" && first != "test" && name != "host/hosttest" {
			n += r.counts[0]
		}
	}
	return n
}

// exported counts the types, functions, constants and variables of a file that other packages can use. Methods
// come with their types.
func exported(file *ast.File) int {
	n := 0
	count := func(names ...*ast.Ident) {
		for _, name := range names {
			if name.IsExported() {
				n++
			}
		}
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				count(d.Name)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					count(s.Name)
				case *ast.ValueSpec:
					count(s.Names...)
				}
			}
		}
	}
	return n
}
