package ask

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/kube/offer"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
)

// PartOf reports whether a lane is that of a claim's device, or a part of it.
func PartOf(name, device string) bool { return name == device || strings.HasPrefix(name, device+".") }

// Container returns the container whose part a lane is, by its name; "" if it is not that of one container.
func Container(l plan.Lane) string {
	if Claim(l.Name) == "" || !strings.Contains(l.Name, ".") {
		return ""
	}
	for role := range l.Roles {
		return role // a part has one
	}
	return ""
}

// Parts returns the lanes that are put in force for a claim's placed lanes. If several containers of the pod
// use a claim, each gets its own lane, so that the kernel keeps them apart too.
func Parts(h host.Host, pod *corev1.Pod, c *resourceapi.ResourceClaim, pool string, p plan.Placement) (
	lanes []lane.Lane, err error,
) {
	for i, r := range c.Status.Allocation.Devices.Results {
		if r.Driver != offer.Driver || r.Pool != pool {
			continue
		}
		placed, is := p.Lane(Name(string(c.UID), i))
		if !is {
			return nil, refuse(c, fmt.Errorf("no lane was placed for device %d", i))
		}
		parts, err := split(h, pod, claimNames(pod, c), r.Request, placed)
		if err != nil {
			return nil, refuse(c, err)
		}
		for _, part := range parts {
			lanes = append(lanes, part.lane)
		}
	}
	return lanes, nil
}

// part is a part of a lane, and the containers that have it. Those that run together have different parts.
type part struct {
	lane       lane.Lane
	owned      cpuset.Set
	counted    cpuset.Set // the owned CPUs that the scheduler counts without a request of the container
	containers []corev1.Container
}

// split gives each container that is named like a role of the lane the CPUs of that role, and one other the
// rest. If only one container runs in the lane it gets all CPUs, and its threads get the roles.
func split(h host.Host, pod *corev1.Pod, names []string, request string, placed plan.Lane) ([]part, error) {
	first, together := users(pod, names, request)
	if len(together) == 0 {
		return nil, fmt.Errorf("containers that use it: expected one or more, by resources.claims, beside init " +
			"containers, found none")
	}
	whole := placed.Spec
	whole.CPUs.List = placed.CPUs
	rest := part{lane: lane.Lane{APIVersion: lane.APIVersion, Kind: lane.Kind,
		Metadata: lane.Metadata{Name: placed.Name}, Spec: whole}, owned: placed.Owned()}
	if len(together) == 1 {
		rest.containers = slices.Concat(first, together)
		return []part{rest}, nil
	}
	roles := map[string]cpuset.Set{}
	var others []string
	for _, c := range together {
		if cpus := placed.Roles[c.Name]; !cpus.IsEmpty() {
			roles[c.Name] = cpus
		} else {
			others = append(others, c.Name)
		}
	}
	left := maps.Clone(placed.Spec.Roles)
	var parts []part
	for i, role := range slices.Sorted(maps.Keys(roles)) {
		one := rest
		one.lane.Metadata.Name = fmt.Sprintf("%s.%d", placed.Name, i+1)
		one.narrow(h, placed, roles[role], map[string]int{role: roles[role].Len()})
		parts = append(parts, one)
		delete(left, role)
	}
	cpus := placed.CPUs
	for _, taken := range roles {
		cpus = cpus.Difference(taken)
	}
	switch {
	case len(others) > 1:
		return nil, fmt.Errorf("containers %s: expected all but one to be named like a role of spec.roles%s: each "+
			"has CPUs of its own", strings.Join(others, ", "), listed(placed.Roles))
	case len(others) == 1 && cpus.IsEmpty():
		return nil, fmt.Errorf("container %s: expected a role of its name in spec.roles, or CPUs that are no "+
			"other container's: the roles%s have all %d", others[0], listed(placed.Roles), placed.CPUs.Len())
	case len(others) == 0 && !cpus.IsEmpty():
		return nil, fmt.Errorf("spec.roles: expected roles of the containers for all %d CPUs: CPUs %s are no "+
			"container's", placed.CPUs.Len(), cpus)
	}
	if len(others) == 1 {
		rest.narrow(h, placed, cpus, left)
		parts = append([]part{rest}, parts...)
	}
	for i := range parts[1:] { // memory is set aside only once
		parts[i+1].lane.Spec.Memory = lane.Memory{}
	}
	return parts, hand(parts, slices.Concat(first, together), placed.Name)
}

// narrow restricts a part to these CPUs. Its place is decided, so of the wishes only those stay that remain
// true of the lane while it is there.
func (p *part) narrow(h host.Host, placed plan.Lane, cpus cpuset.Set, roles map[string]int) {
	s, of := &p.lane.Spec, placed.Spec
	s.CPUs = lane.CPUs{Count: cpus.Len(), List: cpus, Balance: of.CPUs.Balance, NUMA: of.CPUs.NUMA}
	if s.Roles = roles; len(roles) == 0 {
		s.Roles = nil
	}
	if !placed.Idle.IsEmpty() {
		s.CPUs.SMT = lane.Isolate
	}
	if s.CPUs.Balance == nil && s.CPUs.Count > 1 && p.lane.Metadata.Name != placed.Name {
		s.CPUs.Balance = new(true) // the role is a whole container, which pins no threads
	}
	for wish := range of.Preferred {
		switch wish {
		case "numa":
			s.CPUs.NUMA = ""
		case "near":
			s.Near = lane.Near{}
		case "apart":
			s.Apart = lane.Apart{}
		}
	}
	s.Preferred = nil
	p.owned = cpus
	for id := range cpus.All() {
		p.owned = p.owned.Union(h.Siblings(id).Intersection(placed.Idle))
	}
}

// hand gives each container its part: that of the role with its name, else the rest.
func hand(parts []part, containers []corev1.Container, rest string) error {
	for _, c := range containers {
		at := slices.IndexFunc(parts, func(p part) bool {
			return p.lane.Metadata.Name != rest && p.lane.Spec.Roles[c.Name] > 0
		})
		if at < 0 && parts[0].lane.Metadata.Name == rest {
			at = 0
		}
		if at < 0 { // containers that run together have parts, so this is an init container whose name no role has
			return fmt.Errorf("init container %s: no CPUs are left for it: expected one container that is not named "+
				"like a role, whose CPUs it has before that, or an init container without the claim", c.Name)
		}
		parts[at].containers = append(parts[at].containers, c)
	}
	return nil
}

// listed returns the names of roles, for an error.
func listed(roles map[string]cpuset.Set) string {
	if len(roles) == 0 {
		return " (there are none)"
	}
	return " (" + strings.Join(slices.Sorted(maps.Keys(roles)), ", ") + ")"
}
