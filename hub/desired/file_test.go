package desired

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.json")
	s, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	s.Hub, s.Hold = Hub{ID: "h", Revision: 7, Mark: "m", Asked: []string{"n"}}, &Hold{Left: 1, Reason: "why"}
	s.Instances["u"] = Instance{Name: "web", Generation: 2, Spec: json.RawMessage(`{"a":1}`), Ending: true}
	if err = s.Write(file); err != nil {
		t.Fatal(err)
	}
	read, err := Load(file)
	if diff := cmp.Diff(s, read); err != nil || diff != "" {
		t.Error(err, diff)
	}
	below := filepath.Join(file, "below")
	if err = s.Write(below); err == nil || !strings.HasPrefix(err.Error(), below+": expected a disk that has room and can be written: ") ||
		strings.Contains(err.Error(), ".new-") {
		t.Errorf("written to a directory that is none: %v", err)
	}
}

func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		`{"version": 2}`: "version: expected 1, found 2",
		`{"version": 1, "instances": {"u": {"name": "a"}, "v": {"name": "a"}}}`: "expected a name of its own",
		`[]`: "expected the state of a host",
	} {
		if _, err := parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, expected %s", text, err, want)
		}
	}
}

// What can be read can be written, and is then read as the same.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"version":1,"hub":{"id":"h","revision":3,"mark":"m"},"instances":{"u":{"name":"a","spec":{}}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parse(data)
		if err != nil {
			return
		}
		written, err := json.Marshal(s)
		if err != nil {
			t.Skip(err) // a spec of no text
		}
		again, err := parse(written)
		if err != nil {
			t.Fatal(err)
		}
		if written2, _ := json.Marshal(again); string(written) != string(written2) {
			t.Errorf("%s, then %s", written, written2)
		}
	})
}
