package lane

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// maxFile is the largest size of a file, in bytes.
const maxFile = 1 << 20

// FilesError says what is wrong with the files that a user names.
type FilesError struct{ Err error }

func (e *FilesError) Error() string { return e.Err.Error() }
func (e *FilesError) Unwrap() error { return e.Err }

// ReadAll reads the lanes that a user names: of files, of directories (their files *.yaml and *.yml), and of
// stdin ("-"). No two lanes may have the same name. It fails with a *FilesError.
func ReadAll(names []string, stdin io.Reader) ([]Lane, error) {
	files, wrong := ReadEach(names, stdin)
	if len(wrong) > 0 {
		return nil, &FilesError{wrong[0]}
	}
	return slices.Concat(files...), nil
}

// ReadEach is like ReadAll, but continues after a file with errors. It returns the lanes of each correct
// file, at least one each, and the errors of the others. A lane that two files declare is an error of the
// second.
func ReadEach(names []string, stdin io.Reader) (files [][]Lane, wrong []error) {
	seen := map[string]string{}
	add := func(err error) {
		if path, ok := errors.AsType[*fs.PathError](err); ok {
			err = fmt.Errorf("%s: %w", path.Path, path.Err)
		}
		wrong = append(wrong, err)
	}
	for i, name := range names {
		if name == "-" && slices.Contains(names[:i], "-") {
			add(errors.New("-: standard input can be read once only"))
			continue
		}
		found, err := filesOf(name)
		if err != nil {
			add(err)
		}
		for _, f := range found {
			r := reader{seen: maps.Clone(seen)}
			if err = r.named(f, stdin); err != nil {
				add(err)
				continue
			}
			files, seen = append(files, r.lanes), r.seen
		}
	}
	return files, wrong
}

// filesOf returns the files that a name stands for: the lane files of a directory, sorted, or the file
// itself.
func filesOf(name string) ([]string, error) {
	if info, err := os.Stat(name); name == "-" || err != nil || !info.IsDir() {
		return []string{name}, nil
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		ext := filepath.Ext(e.Name())
		if e.IsDir() || strings.HasPrefix(e.Name(), ".") || ext != ".yaml" && ext != ".yml" {
			continue
		}
		files = append(files, filepath.Join(name, e.Name()))
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: expected files *.yaml or *.yml with lanes in this directory", name)
	}
	return files, nil
}

// Parse reads the lanes of one file. name is the file's, for errors.
func Parse(name string, from io.Reader) ([]Lane, error) {
	r := reader{seen: map[string]string{}}
	err := r.file(name, from)
	return r.lanes, err
}

// reader collects lanes.
type reader struct {
	lanes []Lane
	seen  map[string]string // by name of the lane: where it is
}

func (r *reader) named(name string, stdin io.Reader) error {
	if name == "-" {
		return r.file("stdin", stdin)
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return r.file(name, f)
}

// file reads all documents of one file.
func (r *reader) file(name string, from io.Reader) error {
	data, err := io.ReadAll(io.LimitReader(from, maxFile+1))
	if err != nil {
		return err
	}
	if len(data) > maxFile {
		return fmt.Errorf("%s: expected at most 1 MiB", name)
	}
	if err = isText(name, data); err != nil {
		return err
	}
	before := len(r.lanes)
	documents := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var n yaml.Node
		err = documents.Decode(&n)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return notYAML(name, data, err)
		}
		if n = *n.Content[0]; n.Kind == yaml.ScalarNode && n.ShortTag() == tagNull {
			continue // an empty document
		}
		lines := map[string]int{}
		l, err := parseDocument(&n, lines)
		if err != nil {
			return located(err, name, lines)
		}
		at := fmt.Sprintf("%s:%d", name, lines["metadata.name"])
		if other, is := r.seen[l.Metadata.Name]; is {
			err = wrong("metadata.name", "%q is the name of the lane at %s already", l.Metadata.Name, other)
			return located(err, name, lines)
		}
		r.seen[l.Metadata.Name], l.At = at, at
		r.lanes = append(r.lanes, l)
	}
	if len(r.lanes) == before {
		return &FieldError{File: name, Text: "expected at least one document of kind Lane, found none"}
	}
	return nil
}

func parseDocument(n *yaml.Node, lines map[string]int) (Lane, error) {
	var l Lane
	d := decoder{table: Fields(), lines: lines}
	if err := d.isLane(n); err != nil {
		return l, err
	}
	if err := d.value(n, reflect.ValueOf(&l).Elem(), ""); err != nil {
		return l, err
	}
	for _, f := range d.table {
		if f.Required && lines[f.Path] == 0 {
			return l, wrong(f.Path, "missing: expected %s", expected(f))
		}
	}
	return l, l.Validate()
}

// isLane checks the head of a document first, since in other documents the rest means nothing.
func (d *decoder) isLane(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return &FieldError{Line: n.Line, Text: "expected a document of kind Lane, found " + found(n)}
	}
	var names []string
	isHead := false
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i].Value, n.Content[i+1]
		names = append(names, name)
		want, is := map[string]string{"apiVersion": APIVersion, "kind": Kind}[name]
		isHead = isHead || is
		if is && value.Value != want {
			return &FieldError{Line: value.Line, Field: name, Text: "expected " + want + ", found " + found(value)}
		}
	}
	if !isHead {
		return &FieldError{Line: n.Line, Text: "expected a document with apiVersion: " + APIVersion +
			" and kind: " + Kind + ", found the fields " + printable(strings.Join(names, ", "), longest)}
	}
	return nil
}

// notYAML says where a file is not YAML. The library names no line for errors in the first one, and for
// anchors that do not exist.
func notYAML(name string, data []byte, err error) error {
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	m := regexp.MustCompile(`^(?:yaml: )?(?:line ([0-9]+): )?(.*)$`).FindStringSubmatch(text)
	e := &FieldError{File: name, Line: 1, Text: "expected YAML: " + cut(m[2], 200)}
	if m[1] != "" {
		e.Line, _ = strconv.Atoi(m[1])
	}
	lines := bytes.Split(data, []byte("\n"))
	if regexp.MustCompile(`cannot start any token|tab character`).MatchString(m[2]) &&
		e.Line <= len(lines) && regexp.MustCompile(`^ *\t`).Match(lines[e.Line-1]) {
		e.Text = "expected YAML, which indents by spaces only: found a tab"
	}
	unknown := regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)
	if anchor := unknown.FindStringSubmatch(m[2]); anchor != nil {
		before, _, _ := bytes.Cut(data, []byte("*"+anchor[1]))
		e.Line = 1 + bytes.Count(before, []byte("\n"))
	}
	return e
}

// isText rejects what cannot be YAML, and says where.
func isText(name string, data []byte) error {
	line := 1
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		switch {
		case r == '\n':
			line++
		case r == utf8.RuneError && size == 1:
			return &FieldError{File: name, Line: line, Text: "expected YAML: found what is no UTF-8"}
		case r < ' ' && r != '\t' && r != '\r' || r == 0x7f:
			return &FieldError{File: name, Line: line, Text: fmt.Sprintf("expected YAML: found the character %U", r)}
		}
		data = data[size:]
	}
	return nil
}
