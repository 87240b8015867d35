package ask

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/kube/offer"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/quantity"
)

// Fits returns an error if a pod contradicts the lanes of its claims: its containers cannot share one so, or
// they or the pod request less than the lanes own, or may use less. The pod also has the lanes of beside.
func Fits(h host.Host, pod *corev1.Pod, claims []*resourceapi.ResourceClaim, pool string,
	p plan.Placement, beside ...*resourceapi.ResourceClaim) error {
	var all []part
	in := inLanes(pod, claims, pool)
	for _, c := range claims {
		asked := counted(pod, c)
		enough := asked.CmpInt64(cpusOf(c, p)) >= 0
		for i, r := range c.Status.Allocation.Devices.Results {
			if r.Driver != offer.Driver || r.Pool != pool {
				continue
			}
			placed, _ := p.Lane(Name(string(c.UID), i))
			parts, err := split(h, pod, claimNames(pod, c), r.Request, placed)
			if _, together := users(pod, claimNames(pod, c), r.Request); err == nil {
				err = pages(pod, together, placed)
			}
			if err != nil {
				return refuse(c, err)
			}
			if err = inPool(placed); err != nil {
				return refuseHere(c, err)
			}
			if enough {
				for i := range parts {
					parts[i].counted = parts[i].lane.Spec.CPUs.List
				}
			}
			all = append(all, parts...)
		}
	}
	if len(all) == 0 {
		return nil
	}
	if err := throttled(h, pod, slices.Concat(claims, beside), pool); err != nil {
		return refuse(claims[0], err)
	}
	if err := memory(pod, claims, pool, p, in); err != nil {
		return err
	}
	at, err := enough(pod, all, in)
	if err == nil {
		return nil
	}
	c := claims[slices.IndexFunc(claims, func(c *resourceapi.ResourceClaim) bool {
		return string(c.UID) == Claim(all[at].lane.Metadata.Name)
	})]
	for i := range all { // as if each core had one thread
		all[i].owned = all[i].lane.Spec.CPUs.List
	}
	if _, there := enough(pod, all, in); there == nil {
		return refuseHere(c, err)
	}
	return refuse(c, err)
}

// cpusOf returns how many CPUs the lanes of a claim have.
func cpusOf(c *resourceapi.ResourceClaim, p plan.Placement) (n int64) {
	for _, l := range p.Lanes {
		if Claim(l.Name) == string(c.UID) {
			n += int64(l.CPUs.Len())
		}
	}
	return n
}

// counted returns how many CPUs the scheduler has counted for a claim as requested by the pod, according to
// the devices (DRANodeAllocatableResources): the CPUs of the claim, without idle siblings.
func counted(pod *corev1.Pod, c *resourceapi.ResourceClaim) (cpus resource.Quantity) {
	for _, s := range pod.Status.NodeAllocatableResourceClaimStatuses {
		for _, m := range s.Mapping {
			if s.ResourceClaimName == c.Name && m.Name == corev1.ResourceCPU && m.Quantity != nil {
				cpus = *m.Quantity
			}
		}
	}
	return cpus
}

// inPool returns an error if hugepages of a lane are not in the pools. The kubelet counts only the pages that
// were there when it started, and only these are certain: for others the kernel has to find room.
func inPool(placed plan.Lane) error {
	for _, h := range placed.Hugepages {
		if h.Reserve > 0 {
			return fmt.Errorf("capacity.requests.hugepages%s: expected pages that are in the pool of node %d before "+
				"the kubelet starts, found %d of %d", quantity.Bytes(h.PageBytes), h.Node, h.Pages-h.Reserve, h.Pages)
		}
	}
	return nil
}

// pages returns an error if the containers of a lane may not use its hugepages: the kubelet allows a
// container no hugepages of a size that its limits do not name.
func pages(pod *corev1.Pod, together []corev1.Container, placed plan.Lane) error {
	for _, size := range slices.Sorted(maps.Keys(placed.Spec.Memory.Hugepages)) {
		name, asked := corev1.ResourceName(corev1.ResourceHugePagesPrefix+size), placed.Spec.Memory.Hugepages[size]
		var may resource.Quantity
		var names []string
		named := false
		for _, c := range together {
			limit, has := c.Resources.Limits[name]
			may.Add(limit)
			named, names = named || has, append(names, c.Name)
		}
		if !named && pod.Spec.Resources != nil { // else the limits of these containers count
			may = pod.Spec.Resources.Limits[name]
		}
		if may.CmpInt64(int64(asked)) < 0 {
			return fmt.Errorf("container %s: resources.limits.%s: expected %s or more, as capacity.requests says, "+
				"found %s: the kubelet allows no more than that", strings.Join(names, ", "), name, asked, &may)
		}
	}
	return nil
}

// claimNames returns the names by which the containers of a pod refer to a claim.
func claimNames(pod *corev1.Pod, c *resourceapi.ResourceClaim) (names []string) {
	for _, s := range pod.Status.ResourceClaimStatuses {
		if s.ResourceClaimName != nil && *s.ResourceClaimName == c.Name {
			names = append(names, s.Name)
		}
	}
	for _, s := range pod.Spec.ResourceClaims {
		if s.ResourceClaimName != nil && *s.ResourceClaimName == c.Name {
			names = append(names, s.Name)
		}
	}
	return names
}

// users returns the containers that use a request of a claim: first those that end before the others start,
// then those that run together.
func users(pod *corev1.Pod, names []string, request string) (first, together []corev1.Container) {
	main, _, _ := strings.Cut(request, "/")
	uses := func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Resources.Claims, func(r corev1.ResourceClaim) bool {
			return slices.Contains(names, r.Name) && (r.Request == "" || r.Request == main)
		})
	}
	for _, c := range pod.Spec.InitContainers {
		switch {
		case !uses(c):
		case ends(c):
			first = append(first, c)
		default:
			together = append(together, c)
		}
	}
	for _, c := range pod.Spec.Containers {
		if uses(c) {
			together = append(together, c)
		}
	}
	return first, together
}

// ends reports whether an init container ends before the other containers start.
func ends(init corev1.Container) bool {
	return init.RestartPolicy == nil || *init.RestartPolicy != corev1.ContainerRestartPolicyAlways
}

// throttled returns an error if a limit of the whole pod (spec.resources) is less than the CPUs of its lanes
// plus the limits of its other containers.
func throttled(h host.Host, pod *corev1.Pod, claims []*resourceapi.ResourceClaim, pool string) error {
	if pod.Spec.Resources == nil || pod.Spec.Resources.Limits.Cpu().IsZero() {
		return nil
	}
	count := int64(0)
	for _, c := range claims {
		lanes, err := Lanes(h, c, pool)
		if err != nil {
			return err
		}
		for _, l := range lanes {
			count += int64(l.Spec.CPUs.Count)
		}
	}
	limit := pod.Spec.Resources.Limits.Cpu()
	least, err := LeastLimit(pod, claims, pool, count)
	if err == nil && limit.Cmp(least) < 0 {
		err = fmt.Errorf("pod %s: spec.resources.limits.cpu: expected none, or %s or more, the CPUs of its "+
			"lanes and the limits of its other containers: %s would throttle the lanes", pod.Name, &least, limit)
	}
	return err
}

// forLanes returns what is left of the request of the whole pod (spec.resources) after the requests of
// containers outside of lanes. Containers in lanes need no request of their own then.
func forLanes(pod *corev1.Pod, name corev1.ResourceName, in map[string]bool) (left resource.Quantity) {
	if pod.Spec.Resources == nil {
		return left
	}
	left = pod.Spec.Resources.Requests[name].DeepCopy()
	for _, c := range atOnce(pod) {
		if !in[c.Name] {
			left.Sub(c.Resources.Requests[name])
		}
	}
	return left
}

// inLanes returns the names of the containers that run in the lanes of claims.
func inLanes(pod *corev1.Pod, claims []*resourceapi.ResourceClaim, pool string) map[string]bool {
	in := map[string]bool{}
	for _, c := range claims {
		for _, r := range offer.Results(c, pool) {
			_, together := users(pod, claimNames(pod, c), r.Request)
			for _, user := range together {
				in[user.Name] = true
			}
		}
	}
	return in
}

// atOnce returns the containers of a pod that run together.
func atOnce(pod *corev1.Pod) []corev1.Container {
	return slices.Concat(pod.Spec.Containers, slices.DeleteFunc(slices.Clone(pod.Spec.InitContainers), ends))
}

// LeastLimit returns the lowest CPU limit of a whole pod that leaves its lanes that many CPUs: its other
// containers, even with claims of other drivers, may use up their limits. One without a limit is an error.
func LeastLimit(pod *corev1.Pod, claims []*resourceapi.ResourceClaim, pool string, lanes int64) (
	resource.Quantity, error,
) {
	in := inLanes(pod, claims, pool)
	least := *resource.NewQuantity(lanes, resource.DecimalSI)
	for _, c := range atOnce(pod) {
		limit := c.Resources.Limits[corev1.ResourceCPU]
		switch {
		case in[c.Name]:
		case limit.IsZero():
			return least, fmt.Errorf("container %s: resources.limits.cpu: expected a limit, as the pod has one "+
				"(spec.resources.limits.cpu): without it the container may use up what the lanes need", c.Name)
		default:
			least.Add(limit)
		}
	}
	return least, nil
}

// memory returns an error if neither the containers of a lane nor their pod request all memory of the lane:
// the scheduler would give the rest to others too.
func memory(pod *corev1.Pod, claims []*resourceapi.ResourceClaim, pool string, p plan.Placement,
	in map[string]bool) (lacks error) {
	total := quantity.Bytes(0)
	for _, c := range claims {
		for i, r := range c.Status.Allocation.Devices.Results {
			placed, is := p.Lane(Name(string(c.UID), i))
			if !is || r.Driver != offer.Driver || r.Pool != pool {
				continue
			}
			var asked resource.Quantity
			var names []string
			_, together := users(pod, claimNames(pod, c), r.Request)
			for _, user := range together {
				asked.Add(user.Resources.Requests[corev1.ResourceMemory])
				names = append(names, user.Name)
			}
			size := placed.Spec.Memory.Size
			if total += size; lacks == nil && asked.CmpInt64(int64(size)) < 0 {
				lacks = refuse(c, fmt.Errorf("container %s: resources.requests.memory: expected %s or more, as "+
					"capacity.requests says, found %s", strings.Join(names, ", "), size, &asked))
			}
		}
	}
	if left := forLanes(pod, corev1.ResourceMemory, in); left.CmpInt64(int64(total)) >= 0 {
		return nil
	}
	return lacks
}

// enough returns an error if neither a container nor its pod requests all CPUs that its lane owns, because
// the scheduler would give the rest to others too; or if a quota is below the lane's CPUs, which would
// throttle it. The number is the index of the part with the error.
func enough(pod *corev1.Pod, parts []part, in map[string]bool) (int, error) {
	var all cpuset.Set
	for _, p := range parts {
		all = all.Union(p.owned)
	}
	left := forLanes(pod, corev1.ResourceCPU, in)
	podAsks := left.CmpInt64(int64(all.Len())) >= 0
	for i, p := range parts {
		owned, why := p.owned.Difference(p.counted), "the CPUs that the lane owns"
		if !p.counted.IsEmpty() {
			why = "the idle siblings, which its claim does not count"
		}
		count := int64(p.lane.Spec.CPUs.Count)
		for _, c := range p.containers {
			asked, limit := c.Resources.Requests[corev1.ResourceCPU], c.Resources.Limits[corev1.ResourceCPU]
			switch {
			case !podAsks && asked.CmpInt64(int64(owned.Len())) < 0:
				return i, fmt.Errorf("container %s: resources.requests.cpu: expected %d or more, %s (%s), found %s",
					c.Name, owned.Len(), why, owned, &asked)
			case !limit.IsZero() && limit.CmpInt64(count) < 0:
				return i, fmt.Errorf("container %s: resources.limits.cpu: expected none, or %d or more: %s would "+
					"throttle the lane", c.Name, count, &limit)
			}
		}
	}
	return 0, nil
}
