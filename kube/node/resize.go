package node

import (
	"context"
	"fmt"
	"slices"

	"github.com/containerd/nri/pkg/api"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/kube/ask"
	"isolane.dev/isolane/lanes"
)

// UpdateContainer adds what the lanes want to an update from the kubelet, as when a pod is resized; the rest
// passes. It refuses a quota that would throttle a lane, and the kubelet reports that for the pod.
func (r *runtime) UpdateContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container,
	to *api.LinuxResources) ([]*api.ContainerUpdate, error) {
	l, err := lanes.Look(r.Lanes)
	if err != nil && len(namedLanes(c)) == 0 { // such a node still updates its other containers
		r.Log.WarnContext(ctx, "lanes' CPUs", "pod", podName(pod), "container", c.Name, "err", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	placed, has, err := r.laneOf(l, pod, c)
	if err != nil {
		return nil, err
	}
	least := *resource.NewQuantity(int64(placed.CPUs.Len()), resource.DecimalSI)
	if err = checkQuota(least, to); has && err != nil {
		return nil, fmt.Errorf("container %s: %w", c.Name, err)
	}
	if u := r.update(l, placed, has, c); u != nil {
		return []*api.ContainerUpdate{u}, nil
	}
	return nil, nil
}

// UpdatePodSandbox refuses a quota of a whole pod that would throttle its lanes; its other containers use it
// up too. The kubelet asks before it sets the quota.
func (r *runtime) UpdatePodSandbox(ctx context.Context, pod *api.PodSandbox,
	_, to *api.LinuxResources) error {
	var claims []*resourceapi.ResourceClaim
	for _, c := range r.nodeClaims() {
		if len(c.Status.ReservedFor) > 0 && string(c.Status.ReservedFor[0].UID) == pod.Uid {
			claims = append(claims, c)
		}
	}
	if len(claims) == 0 || to.GetCpu().GetQuota().GetValue() <= 0 { // this also passes if lanes cannot be read
		return nil
	}
	l, err := lanes.Look(r.Lanes)
	if err != nil {
		return err
	}
	var own cpuset.Set
	for _, p := range l.Placement.Lanes {
		if slices.ContainsFunc(claims, func(c *resourceapi.ResourceClaim) bool {
			return ask.Claim(p.Name) == string(c.UID)
		}) {
			own = own.Union(p.CPUs)
		}
	}
	if own.IsEmpty() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.attachTimeout())
	defer cancel()
	of, err := r.Client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	least, err := ask.LeastLimit(of, claims, r.Name, int64(own.Len()))
	if err != nil {
		return err
	}
	return checkQuota(least, to)
}

// PostUpdateContainer lifts the CPU quotas that a resize has given the containers of lanes and their pods.
func (r *runtime) PostUpdateContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) error {
	ctx, cancel := context.WithTimeout(ctx, r.attachTimeout())
	defer cancel()
	if err := r.liftQuotas(ctx); err != nil { // watch tries again
		r.Log.WarnContext(ctx, "quota", "pod", podName(pod), "container", c.Name, "err", err)
	}
	return nil
}

// liftQuotas lifts CPU quotas of lanes' containers and pods that others have set: the kubelet after a resize,
// or systemd when it reads its units again.
func (n *Node) liftQuotas(ctx context.Context) error {
	l, err := lanes.Look(n.Lanes)
	if err != nil {
		return err
	}
	if found, lerr := l.Limited(); lerr != nil || len(found) == 0 {
		return lerr
	}
	l, done, err := n.openLanes(ctx)
	if err != nil {
		return err
	}
	defer done()
	of, err := l.LiftQuotas(ctx)
	if len(of) > 0 {
		n.Log.InfoContext(ctx, "lifted CPU quotas", "lanes", of)
	}
	return err
}

// checkQuota returns an error if a quota is below least, the CPUs of the lanes and of what else uses it.
func checkQuota(least resource.Quantity, to *api.LinuxResources) error {
	quota, period := to.GetCpu().GetQuota().GetValue(), to.GetCpu().GetPeriod().GetValue()
	if quota <= 0 || period == 0 || float64(quota)*1000 >= float64(period)*float64(least.MilliValue()) {
		return nil
	}
	return fmt.Errorf("resources.limits.cpu: expected none, or %s or more: %.3g would throttle the lane",
		&least, float64(quota)/float64(period))
}
