package probe

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Decode decodes settings strictly into a value that already has its defaults. An error names the field, and
// what was expected there.
func Decode(settings []byte, into any) error {
	err := yaml.UnmarshalStrict(settings, into)
	if err == nil {
		return nil
	}
	data, noYAML := yaml.YAMLToJSONStrict(settings)
	if noYAML != nil {
		text := strings.TrimPrefix(noYAML.Error(), "yaml: ")
		if strings.Contains(text, "already set") && strings.Contains(string(settings), "<<") {
			text += ": beside << expected no key of what it merges"
		}
		return fmt.Errorf("expected YAML: %s", strings.Join(strings.Fields(text), " "))
	}
	path, err := wrong(data, into, err)
	if path != "" {
		err = fmt.Errorf("%s: %w", strings.TrimPrefix(path, "."), err)
	}
	return err
}

// wrong finds which part of a JSON value cannot be decoded, and says why. The error err names neither the
// place in a list nor a field within a type that decodes itself, and speaks of Go's types.
func wrong(data []byte, into any, err error) (path string, _ error) {
	if own, ok := into.(json.Unmarshaler); ok {
		if reason := own.UnmarshalJSON(data); reason != nil {
			return "", reason
		}
	}
	t := reflect.TypeOf(into).Elem()
	list, fields := []json.RawMessage{}, map[string]json.RawMessage{}
	_, _ = json.Unmarshal(data, &list), json.Unmarshal(data, &fields) // it is one of them, or neither
	try := func(at string, data []byte, t reflect.Type) bool {
		part := reflect.New(t).Interface()
		e := yaml.UnmarshalStrict(data, part)
		if e != nil {
			path, err = wrong(data, part, e)
			path = at + path
		}
		return e != nil
	}
	switch t.Kind() {
	case reflect.Pointer:
		return wrong(data, reflect.New(t.Elem()).Interface(), err)
	case reflect.Slice:
		for i, one := range list {
			if try(fmt.Sprintf("[%d]", i), one, t.Elem()) {
				return path, err
			}
		}
	case reflect.Map, reflect.Struct:
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			if of := typeOf(t, name); of != nil && try("."+name, fields[name], of) {
				return path, err
			}
		}
	default: // has no parts
	}
	return "", inWords(data, into, err)
}

// typeOf returns the type that a map or a struct has for a name in JSON; nil: none.
func typeOf(t reflect.Type, name string) reflect.Type {
	if t.Kind() == reflect.Map {
		return t.Elem()
	}
	for _, f := range reflect.VisibleFields(t) {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if strings.EqualFold(tag, name) {
			return f.Type
		}
	}
	return nil
}

// inWords says what was expected in place of a value as a whole.
func inWords(data []byte, into any, err error) error {
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); !ok {
		for errors.Unwrap(err) != nil {
			err = errors.Unwrap(err)
		}
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	want := "a whole number"
	switch kind := reflect.TypeOf(into).Elem().Kind(); kind {
	case reflect.Map, reflect.Struct:
		want = "a map"
	case reflect.Slice:
		want = "a list"
	case reflect.String:
		want = "text"
	case reflect.Bool:
		want = "true or false"
	case reflect.Float64:
		want = "a number"
	default:
		if _, ok := into.(encoding.TextUnmarshaler); ok {
			want = "text"
		}
	}
	found := fmt.Sprintf("%.60s", data)
	switch data[0] {
	case '{':
		found = "a map"
	case '[':
		found = "a list"
	}
	return fmt.Errorf("expected %s, found %s", want, found)
}
