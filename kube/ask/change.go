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

// ofCapacity are the fields of a lane whose amounts the author of a pod writes as capacity of the claim.
func ofCapacity() *strings.Replacer {
	return strings.NewReplacer("spec.cpus.count", "capacity.requests.cpus",
		"spec.memory.size", "capacity.requests.memory",
		"spec.memory.hugepages.", "capacity.requests.hugepages",
		"spec.memory.hugepages", "capacity.requests of hugepages")
}

// forAuthor is a refusal of the planner's in the words of a claim. A change that no pod can have, such as
// moves of other lanes, gives way to one that it can.
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

// byCores says that the claim of a lane asks for cores, and not for CPUs.
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

// possible says that a change is none of what parameters may not have.
func possible(change string) bool {
	return !slices.ContainsFunc([]string{"spec.cpus.boot", "spec.cpus.share", "spec.cpus.list",
		"spec.preferred: {list:", "spec.preferred: {near:", "spec.preferred: {numa:"},
		func(no string) bool { return strings.Contains(change, no) })
}

// another is a change of one lane that makes all fit: a wish that is only preferred, else fewer CPUs.
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
