package lane

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/lane"
)

func TestLevels(t *testing.T) {
	f, err := Driver{}.Read([]byte(`levels: [alone, {name: shared, words: two in one, spec: {cpus: {share: 2}, memory: {size: 1Gi}, preferred: {numa: 3}}}]`))
	if err != nil {
		t.Fatal(err)
	}
	base := lane.Spec{CPUs: lane.CPUs{Count: 4, SMT: lane.Isolate}, Preferred: map[string]int{"l3": 1}}
	alone, shared := factor.Conditions{Lane: base}, factor.Conditions{Lane: base}
	f.Set(&alone, "alone")
	f.Set(&shared, "shared")
	want := lane.Spec{CPUs: lane.CPUs{Count: 4, SMT: lane.Isolate, Share: 2}, Memory: lane.Memory{Size: 1 << 30}, Preferred: map[string]int{"l3": 1, "numa": 3}}
	same := cmp.Comparer(func(a, b cpuset.Set) bool { return a == b })
	if d := cmp.Diff(want, shared.Lane, same); d != "" || len(base.Preferred) != 1 {
		t.Error(d, base)
	}
	if d := cmp.Diff(base, alone.Lane, same); d != "" {
		t.Error(d)
	}
	text, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := (Driver{}).Read(text); err != nil || !cmp.Equal(f, again, cmp.AllowUnexported(specs{}), cmp.Comparer(func(a, b json.RawMessage) bool { return string(a) == string(b) })) {
		t.Errorf("%s: %v %v", text, again, err)
	}
	for _, bad := range []string{"[{name: a, spec: {cpu: {}}}]", "[{name: a, cpus: 2}]", "[{name: a, spec: }]", "[{name: a, spec: {cpus: {count: many}}}]"} {
		if _, err := (Driver{}).Read([]byte("levels: " + bad)); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
