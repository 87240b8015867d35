package explain

import (
	"bytes"
	"strings"
	"testing"

	"isolane.dev/isolane/examples"
	"isolane.dev/isolane/lane"
)

// Each topic is explained, and what resembles one is refused by a name that there is.
func TestWrite(t *testing.T) {
	for _, topic := range Topics() {
		var b bytes.Buffer
		if err := Write(&b, topic, nil); err != nil || b.Len() == 0 {
			t.Errorf("%s: %q, %v", topic, b.String(), err)
		}
		if path, is := strings.CutPrefix(topic, "lane."); is && !strings.Contains(b.String(), "lane."+path+"  <") {
			t.Errorf("%s: the field itself is missing:\n%s", topic, b.String())
		}
	}
	var all, web bytes.Buffer
	if err := Write(&all, "lane", nil); err != nil {
		t.Fatal(err)
	}
	for _, f := range lane.Fields() {
		if name := strings.ReplaceAll(f.Path, "*", "NAME"); !strings.Contains(all.String(), "\n"+name+"  <") {
			t.Errorf("lane: %s is missing", name)
		}
	}
	file, err := examples.Files.ReadFile("web.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := Write(&web, "examples/web.yaml", nil); err != nil || web.String() != string(file) ||
		!strings.Contains(all.String(), string(file)) {
		t.Errorf("examples/web.yaml: %v:\n%s", err, web.String())
	}
	for topic, want := range map[string]string{
		"examples/nosuch": "examples/nosuch: there is no such example: isolane explain examples lists them",
		"cpus":            "cpus: expected lane.spec.cpus",
		"lane.spec.cpsu":  "lane.spec.cpsu: there is no such field, did you mean lane.spec.cpus?",
	} {
		if err := Write(&bytes.Buffer{}, topic, nil); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", topic, err, want)
		}
	}
}
