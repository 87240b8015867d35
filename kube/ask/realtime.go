package ask

import (
	"fmt"
	"io/fs"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"isolane.dev/isolane/plan"
)

// RefuseRealTime refuses real-time lanes if the kernel gives real-time to each cgroup separately
// (Documentation/scheduler/sched-rt-group.rst): the kubelet's cgroups have none, so programs would get none.
func RefuseRealTime(root fs.FS, p plan.Placement, claims ...*resourceapi.ResourceClaim) error {
	shares, err := fs.Glob(root, "sys/fs/cgroup/cpu*/cpu.rt_runtime_us")
	if err != nil || len(shares) == 0 {
		return err
	}
	for _, l := range p.Lanes {
		own := slices.ContainsFunc(claims, func(c *resourceapi.ResourceClaim) bool {
			return string(c.UID) == Claim(l.Name)
		})
		if policy := l.Spec.Scheduling.Policy; own && policy.IsRealTime() {
			return &plan.Refusal{APIVersion: plan.APIVersion, Kind: plan.KindOfRefusal, Lane: l.Name,
				Blocking: []string{fmt.Sprintf("parameters: spec.scheduling.policy: expected none, found %s: this "+
					"kernel gives real-time to cgroups one by one (CONFIG_RT_GROUP_SCHED, cgroup v1), and those of "+
					"pods have none", policy)}}
		}
	}
	return nil
}
