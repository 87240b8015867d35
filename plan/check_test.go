package plan_test

import (
	"errors"
	"testing"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/plan"
)

// A placement is of this machine by its name, or by the boot of its kernel where a container has another name.
func TestIdentity(t *testing.T) {
	h := hosttest.Machine{Packages: 1, CoresPerPackage: 4, ThreadsPerCore: 1}.Host(t)
	h.Hostname = "edge"
	h.Kernel.BootID = "one"
	p := plan.Placement{Host: plan.MachineOf(h), Lanes: []plan.Lane{{Name: "a", CPUs: cpuset.Of(1)}}}
	for _, c := range []struct {
		name, boot string
		same       bool
	}{{h.Hostname, "two", true}, {"pod", "one", true}, {"pod", "two", false}, {"pod", "", false}} {
		o := h
		o.Hostname, o.Kernel.BootID = c.name, c.boot
		var other *plan.Mismatch
		if err := p.Check(o); errors.As(err, &other) == c.same {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
