package ask

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/kube/offer"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/solver"
)

// ofCapacity replaces fields of a lane by the capacity of the claim, where a pod's author writes amounts.
func ofCapacity() *strings.Replacer {
	return strings.NewReplacer("spec.cpus.count", "capacity.requests.cpus",
		"spec.memory.size", "capacity.requests.memory",
		"spec.memory.hugepages.", "capacity.requests.hugepages",
		"spec.memory.hugepages", "capacity.requests of hugepages")
}

// forAuthor rewrites a refusal of the planner in the words of a claim. If the suggested change is impossible
// for a pod, such as moving other lanes, it looks for a possible one.
func forAuthor(err error, h host.Host, placed plan.Placement, lanes []lane.Lane,
	claims []*resourceapi.ResourceClaim) error {
	of, is := errors.AsType[*plan.Refusal](err)
	if !is {
		return err
	}
	r := *of
	r.Blocking = slices.Clone(r.Blocking)
	for i, b := range r.Blocking {
		r.Blocking[i] = ofCapacity().Replace(b)
	}
	if c := r.Cheapest; c != nil && (len(c.Moves) > 0 || !possible(c.Change)) {
		r.Cheapest = another(h, placed, lanes)
	}
	if r.Cheapest != nil {
		c := *r.Cheapest
		c.Change = ofCapacity().Replace(c.Change)
		if strings.Contains(c.Change, "requests.cpus") && byCores(claims, c.Lane) {
			c.Change += ", in place of cores"
		}
		r.Cheapest = &c
	}
	return &r
}

// byCores reports whether the claim of a lane asks for cores and not for CPUs.
func byCores(claims []*resourceapi.ResourceClaim, name string) bool {
	return slices.ContainsFunc(claims, func(c *resourceapi.ResourceClaim) bool {
		return string(c.UID) == Claim(name) && slices.ContainsFunc(c.Status.Allocation.Devices.Results,
			func(r resourceapi.DeviceRequestAllocationResult) bool {
				asked := request{claim: c, result: r}.capacity()
				_, cores := asked[offer.Cores]
				_, cpus := asked[offer.CPUs]
				return cores && !cpus
			})
	})
}

// possible reports whether the parameters of a claim may have a change.
func possible(change string) bool {
	return !slices.ContainsFunc([]string{"spec.cpus.boot", "spec.cpus.share", "spec.cpus.list",
		"spec.preferred: {list:", "spec.preferred: {near:", "spec.preferred: {numa:"},
		func(no string) bool { return strings.Contains(change, no) })
}

// another returns a change of one lane that makes all fit: a wish that becomes preferred, else fewer CPUs.
func another(h host.Host, placed plan.Placement, lanes []lane.Lane) *plan.Change {
	fits := func(i int, do func(*lane.Spec)) bool {
		changed := slices.Clone(lanes)
		do(&changed[i].Spec)
		return changed[i].Spec.Validate() == nil && solver.Fits(h, placed, changed)
	}
	for i, l := range lanes {
		for _, wish := range l.Spec.Wishes() {
			text := fmt.Sprintf("spec.preferred: {%s: 1}", wish)
			if possible(text) && l.Spec.Preferred[wish] == 0 && fits(i, func(s *lane.Spec) {
				preferred := map[string]int{wish: 1}
				maps.Copy(preferred, s.Preferred)
				s.Preferred = preferred
			}) {
				return &plan.Change{Lane: l.Metadata.Name, Change: text}
			}
		}
	}
	for i, l := range lanes {
		for n := l.Spec.CPUs.Count - 1; n > 0; n-- {
			if fits(i, func(s *lane.Spec) { s.CPUs.Count = n }) {
				return &plan.Change{Lane: l.Metadata.Name, Change: fmt.Sprintf("spec.cpus.count: %d", n)}
			}
		}
	}
	return nil
}
