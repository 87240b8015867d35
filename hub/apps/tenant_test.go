package apps

import (
	"strings"
	"testing"

	"isolane.dev/isolane/hub/api"
)

// A quota counts what the other Apps have and what this one would add, and names what is in the way.
func TestQuota(t *testing.T) {
	lane := func(spec string) amounts {
		l, err := api.Lane("a.b", []byte(spec))
		if err != nil {
			t.Fatal(err)
		}
		return of(l.Spec)
	}
	two, none := 2, 0
	each := lane(`{"cpus": {"count": 1}, "memory": {"size": "1Gi", "hugepages": {"2Mi": "512Mi", "1Gi": "1Gi"}},
		"network": {"path": "sriov", "device": "eth0"}}`)
	for _, row := range []struct {
		name  string
		quota api.TenantSpec
		most  int    // so many Instances are taken
		says  string // of one more
	}{
		{"CPUs", api.TenantSpec{CPUs: &two}, 1, "2 CPUs, and this App would make it 3"},
		{"memory", api.TenantSpec{Memory: "3Gi"}, 3, "3Gi memory"},
		{"hugepages", api.TenantSpec{Hugepages: "1Gi"}, 0, "1Gi hugepages, and this App would make it 1536Mi"},
		{"functions", api.TenantSpec{Functions: &two}, 2, "2 functions"},
		{"Instances", api.TenantSpec{Instances: &two}, 1, "2 Instances"},
		{"nothing", api.TenantSpec{Instances: &none}, -1, "0 Instances"},
		{"no size", api.TenantSpec{Memory: "lots"}, -1, "spec.memory"},
	} {
		t.Run(row.name, func(t *testing.T) {
			tn := tenant{name: "a", quota: row.quota, each: each, others: lane(`{"cpus": {"count": 1}}`)}
			if row.most >= 0 {
				if err := tn.takes(row.most); err != nil {
					t.Error(err)
				}
			}
			if err := tn.takes(row.most + 1); err == nil || !strings.Contains(err.Error(), row.says) {
				t.Errorf("found %v, expected %q", err, row.says)
			}
		})
	}
}
