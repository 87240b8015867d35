package noise

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDelivered(t *testing.T) {
	// Written by stress-ng 0.15.06, shortened, with the beginning of 0.19.02's.
	got, err := Delivered([]byte(`---
build-info:
      compiler: 'gcc 14.2.0'
source-date-epoch: 1751354863
      stdc-version: '199901L'

system-info:
      stress-ng-version: 0.15.06
      date-yyyy-mm-dd: 2026:11:20
metrics:
    - stressor: cpu
      bogo-ops: 3960
      bogo-ops-per-second-usr-sys-time: 3037.895444
      bogo-ops-per-second-real-time: 1984.594661
    - stressor: malloc
      bogo-ops: 249599
      bogo-ops-per-second-real-time: 123535.597705

...
`))
	want := map[string]float64{"cpu": 1984.594661, "malloc": 123535.597705}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	for _, bad := range []string{"", "metrics: 3", "metrics: []", "\x00"} {
		if got, err := Delivered([]byte(bad)); err == nil {
			t.Errorf("Delivered(%q) = %v; want an error", bad, got)
		}
	}
}

func TestArgv(t *testing.T) {
	got := Argv([]Stressor{{Name: "cpu", Options: map[string]string{"method": "sqrt"}}, {Name: "malloc"}}, 2, "/r.yaml")
	want := []string{"stress-ng", "--quiet", "--timeout", "0", "--metrics", "--yaml", "/r.yaml",
		"--cpu", "2", "--cpu-method", "sqrt", "--malloc", "2"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if (Stressor{Name: "--exec"}).Validate() == nil {
		t.Error("an option passed as a name of a stressor")
	}
}
