package plan_test

import (
	"errors"
	"testing"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/plan"
)

// A placement is of this machine by its name, unless its ID is another one, or by the boot of its kernel where a container has another
// name or ID.
func TestIdentity(t *testing.T) {
	h := hosttest.Machine{Packages: 1, CoresPerPackage: 4, ThreadsPerCore: 1}.Host(t)
	h.Hostname = "edge"
	h.Kernel.BootID, h.Kernel.MachineID = "one", "id"
	p := plan.Placement{Host: plan.MachineOf(h), Lanes: []plan.Lane{{Name: "a", CPUs: cpuset.Of(1)}}}
	for _, c := range []struct {
		name, boot, id string
		same           bool
	}{{h.Hostname, "two", "id", true}, {"pod", "one", "id", true}, {"pod", "two", "id", false}, {"pod", "", "id", false},
		{h.Hostname, "two", "other", false}, {h.Hostname, "two", "", true}, {"pod", "one", "other", true}} {
		o := h
		o.Hostname, o.Kernel.BootID, o.Kernel.MachineID = c.name, c.boot, c.id
		var other *plan.Mismatch
		if err := p.Check(o); errors.As(err, &other) == c.same {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
