package apps

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
)

// The hub's copy of a Host has the machine in much less than it takes as text, and gives it back as it was,
// also if it was trimmed twice.
func TestTrimHost(t *testing.T) {
	said, err := host.Read(hosttest.Snapshot(t, "hwloc/32intel64-2p8co2t+8ve.tar.bz2"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(said)
	if err != nil {
		t.Fatal(err)
	}
	var machine map[string]any
	if err = json.Unmarshal(text, &machine); err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "one"},
		"status": map[string]any{"machine": machine, "findings": []any{"x"}, "free": "1-3"}}}
	for range 2 {
		if _, err = trimHost(u); err != nil {
			t.Fatal(err)
		}
	}
	if kept, _ := json.Marshal(u); len(kept) > len(text)/4 {
		t.Errorf("%d bytes are kept of %d", len(kept), len(text))
	}
	back, err := machineOf(u.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	var now map[string]any
	if err = json.Unmarshal(back, &now); err != nil {
		t.Fatal(err)
	}
	var was map[string]any
	if err = json.Unmarshal(text, &was); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(was, now); diff != "" {
		t.Error(diff)
	}
	if free, _, _ := unstructured.NestedString(u.Object, "status", "free"); free != "1-3" {
		t.Errorf("free is %q", free)
	}
}
