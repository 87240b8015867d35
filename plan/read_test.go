package plan_test

import (
	"strings"
	"testing"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/solver"
)

// Whatever is read as a placement, the planner can plan beside it, or refuses to.
func FuzzRead(f *testing.F) {
	h := hosttest.Machine{Packages: 2, CoresPerPackage: 4, ThreadsPerCore: 2}
	f.Add(`{"apiVersion":"isolane.dev/v1alpha2","kind":"Placement","host":{"hostname":"","cpus":"0-15"},"lanes":[{"name":"a","cpus":"1,9",` +
		`"memoryNodes":"0","memory":[{"node":0,"bytes":99}],"hugepages":[{"node":0,"pageBytes":2097152,"pages":18446744073709551615}],` +
		`"devices":[{"address":"0000:3b:00.0","vfs":[0]}],"reasons":[],"spec":{"cpus":{"count":2,"share":3}}}],"housekeeping":"0","cost":{},"optimal":true}`)
	f.Add(`{"apiVersion":"isolane.dev/v1alpha2","kind":"Placement","lanes":[{"name":"a","cpus":"8191","spec":{"cpus":{"count":1}}}]}`)
	f.Add(`{"lanes":[{"name":"a"},{"name":"a"}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		p, err := plan.Read("fuzz", strings.NewReader(text))
		if err != nil {
			return
		}
		more := []lane.Lane{{Metadata: lane.Metadata{Name: "new"}, Spec: lane.Spec{CPUs: lane.CPUs{Count: 2}}}}
		p.Host = plan.Machine{CPUs: cpuset.MustParse("0-15")} // so that the search sees it
		for _, solve := range []func(host.Host, plan.Placement, []lane.Lane) (plan.Placement, error){solver.Solve, solver.Repack} {
			got, err := solve(h.Host(t), p, more)
			if err == nil && (got.Housekeeping.IsEmpty() || got.Housekeeping.Intersects(got.CPUs())) {
				t.Errorf("housekeeping %s beside %+v", got.Housekeeping, got.Lanes)
			}
		}
	})
}
