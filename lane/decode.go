package lane

import (
	"encoding"
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// decoder fills a declaration from a YAML document, and records the line of each field. It descends no deeper
// than the declaration does, so deep documents and nested aliases cost nothing.
type decoder struct {
	table []Field
	lines map[string]int
}

// kinds of YAML values.
const (
	tagNull = "!!null"
	tagText = "!!str"
	tagInt  = "!!int"
	tagReal = "!!float"
	tagBool = "!!bool"
)

func (d *decoder) value(n *yaml.Node, v reflect.Value, path string) error {
	line := n.Line
	if d.lines[path] == 0 {
		d.lines[path] = line
	}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	err := d.decode(n, v, path)
	if f, is := errors.AsType[*FieldError](err); is && f.Line == 0 {
		f.Line = line
	}
	return err
}

func (d *decoder) decode(n *yaml.Node, v reflect.Value, path string) error {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == tagNull {
		return nil // a field without a value is treated as absent
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	if text, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return d.quantity(n, text, path)
	}
	switch v.Kind() {
	case reflect.Struct:
		return d.fields(n, v, path)
	case reflect.Map:
		return d.names(n, v, path)
	case reflect.Slice:
		return d.list(n, v, path)
	case reflect.Int:
		number, err := strconv.Atoi(n.Value)
		if n.Kind != yaml.ScalarNode || n.ShortTag() != tagInt || err != nil || strconv.Itoa(number) != n.Value {
			return d.unexpected(n, path)
		}
		if f, _ := field(d.table, path); number == 0 && f.Min > 0 { // 0 would mean that the field is absent
			return wrong(path, "expected %s, found 0", expected(f))
		}
		v.SetInt(int64(number))
	case reflect.Bool:
		if n.Kind != yaml.ScalarNode || n.ShortTag() != tagBool {
			return d.unexpected(n, path)
		}
		v.SetBool(strings.EqualFold(n.Value, "true"))
	default:
		if n.Kind != yaml.ScalarNode || n.ShortTag() != tagText {
			return d.unexpected(n, path)
		}
		if isSwitch(n) {
			return wrong(path, "%s", inQuotes(n.Value))
		}
		v.SetString(n.Value)
	}
	return nil
}

// quantity reads a size, a duration or a rate.
func (d *decoder) quantity(n *yaml.Node, text encoding.TextUnmarshaler, path string) error {
	if n.Kind != yaml.ScalarNode || !slices.Contains([]string{tagText, tagInt, tagReal}, n.ShortTag()) {
		return d.unexpected(n, path)
	}
	if err := text.UnmarshalText([]byte(n.Value)); err != nil {
		if reason := errors.Unwrap(err); reason != nil { // without the value, which the message repeats
			err = reason
		}
		return wrong(path, "%v, found %s", err, quoted(n.Value))
	}
	return nil
}

// fields reads a structure. Unknown and duplicate fields are errors.
func (d *decoder) fields(n *yaml.Node, v reflect.Value, path string) error {
	if n.Kind != yaml.MappingNode {
		return d.unexpected(n, path)
	}
	var known []string
	for _, f := range reflect.VisibleFields(v.Type()) {
		known = append(known, jsonName(f))
	}
	return d.pairs(n, path, func(key, value *yaml.Node, at string) error {
		i := slices.Index(known, key.Value)
		if i < 0 {
			return d.unknown(key, at, known)
		}
		return d.value(value, v.Field(i), at)
	})
}

// names reads a map whose keys the user chooses.
func (d *decoder) names(n *yaml.Node, v reflect.Value, path string) error {
	if n.Kind != yaml.MappingNode {
		return d.unexpected(n, path)
	}
	v.Set(reflect.MakeMap(v.Type()))
	return d.pairs(n, path, func(key, value *yaml.Node, at string) error {
		switch {
		case isSwitch(key):
			return &FieldError{Line: key.Line, Field: at, Text: inQuotes(key.Value)}
		case key.ShortTag() != tagText:
			text := "expected a name, found " + found(key) + ": write it in quotes"
			return &FieldError{Line: key.Line, Field: path, Text: text}
		}
		one := reflect.New(v.Type().Elem()).Elem()
		if err := d.value(value, one, at); err != nil {
			return err
		}
		v.SetMapIndex(reflect.ValueOf(key.Value), one)
		return nil
	})
}

// pairs calls each for all keys and values.
func (d *decoder) pairs(n *yaml.Node, path string, each func(key, value *yaml.Node, at string) error) error {
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := strings.TrimPrefix(path+"."+key.Value, ".")
		switch first := seen[key.Value]; {
		case key.Kind != yaml.ScalarNode || key.Value == "":
			return &FieldError{Line: key.Line, Field: path, Text: "expected the name of a field, found " + found(key)}
		case key.ShortTag() == "!!merge":
			text := "<<: expected the fields themselves: nothing is merged in"
			return &FieldError{Line: key.Line, Field: path, Text: text}
		case first > 0:
			text := "is given a second time, first in line " + strconv.Itoa(first)
			return &FieldError{Line: key.Line, Field: at, Text: text}
		}
		seen[key.Value], d.lines[at] = key.Line, key.Line
		if err := each(key, value, at); err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) list(n *yaml.Node, v reflect.Value, path string) error {
	if n.Kind != yaml.SequenceNode {
		return d.unexpected(n, path)
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, one := range n.Content {
		if err := d.value(one, v.Index(i), path+"["+strconv.Itoa(i)+"]"); err != nil {
			return err
		}
	}
	return nil
}

// unknown suggests a field for one that does not exist.
func (d *decoder) unknown(key *yaml.Node, at string, known []string) error {
	e := &FieldError{Line: key.Line, Field: at, Text: "unknown field: expected " + or(known)}
	if meant := nearest(key.Value, known); meant != "" {
		e.Text = "unknown field, did you mean " + meant + "?"
		return e
	}
	for _, f := range d.table {
		if strings.HasSuffix(f.Path, "."+key.Value) {
			e.Text = "unknown field, did you mean " + f.Path + "?"
			break
		}
	}
	return e
}

// unexpected says how the value of a field is written.
func (d *decoder) unexpected(n *yaml.Node, path string) error {
	f, _ := field(d.table, path)
	form := map[string]string{
		"": "text", "TEXT": "text", "NAME": "a name", "BOOL": "true or false",
		"N": "a whole number such as 4", "TAG": "a whole number such as 100", "COST": "a whole number such as 3",
		"SIZE": "a size such as 512Mi", "TIME": "a time such as 100us", "RATE": "a rate such as 1Gbit/s",
	}[f.Form]
	switch {
	case len(f.Values) > 0:
		form = or(f.Values)
	case form == "":
		form = f.Form
	}
	if f.Max > 0 && n.ShortTag() == tagText && n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
		form += " without quotes"
	}
	text := "expected " + form + ", found " + found(n)
	if f.Form == "NAME" && n.Kind == yaml.ScalarNode {
		text += ": write it in quotes"
	}
	return wrong(path, "%s", text)
}

// found describes what was found instead of what was expected.
func found(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		if len(n.Content) == 0 {
			return "{}"
		}
		return "{" + printable(n.Content[0].Value, longest) + ": …}"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "*" + printable(n.Value, longest)
	default: // a scalar
	}
	if n.ShortTag() == tagText {
		return quoted(n.Value)
	}
	if text := quoted(n.Value); text != `"`+n.Value+`"` {
		return text
	}
	return n.Value
}

// isSwitch reports whether an unquoted word is a boolean in YAML 1.1, which many programs read.
func isSwitch(n *yaml.Node) bool {
	words := []string{"y", "n", "yes", "no", "on", "off"}
	return n.Style == 0 && slices.Contains(words, strings.ToLower(n.Value))
}

func inQuotes(word string) string {
	return word + " without quotes is true or false to many readers of YAML: write " + strconv.Quote(word)
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}
