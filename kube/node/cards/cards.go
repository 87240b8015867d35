package node

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/kube/ask"
	"isolane.dev/isolane/kube/offer"
	"isolane.dev/isolane/plan"
)

// explainRemoteDevices adds to the reasons of a pod's lanes which of its devices of other drivers are on
// another NUMA node. The scheduler aligns them only if one claim has both and asks for that.
func (n *Node) explainRemoteDevices(ctx context.Context, h host.Host, pod *corev1.Pod,
	claims []*resourceapi.ResourceClaim, p plan.Placement) plan.Placement {
	cards := n.numaNodesOf(ctx, h, pod)
	p.Lanes = slices.Clone(p.Lanes)
	for _, c := range claims {
		for i, r := range c.Status.Allocation.Devices.Results {
			at := slices.IndexFunc(p.Lanes, func(l plan.Lane) bool { return l.Name == ask.Name(string(c.UID), i) })
			own, err := offer.NUMANode(r.Device)
			if r.Driver == offer.Driver && r.Pool == n.Name && err == nil && own >= 0 && at >= 0 {
				p.Lanes[at].Reasons = slices.Concat(p.Lanes[at].Reasons, remoteReasons(cards, own))
			}
		}
	}
	return p
}

// remoteReasons returns a reason for each card that is on another NUMA node than a lane.
func remoteReasons(cards map[string]int, own int) (reasons []string) {
	for _, name := range slices.Sorted(maps.Keys(cards)) {
		if cards[name] != own {
			reasons = append(reasons, fmt.Sprintf("device %s is on NUMA node %d: matchAttribute %s in the claim of "+
				"both brings them together", name, cards[name], deviceattribute.StandardDeviceAttributeNUMANode))
		}
	}
	return reasons
}

// numaNodesOf returns the NUMA nodes of a pod's devices of other drivers, as far as the devices or the
// machine tell. It sees only devices that drivers offer for this node alone. The keys name device and driver.
func (n *Node) numaNodesOf(ctx context.Context, h host.Host, pod *corev1.Pod) map[string]int {
	type device struct{ driver, pool, name string }
	has := map[device]bool{}
	for _, name := range claimsOf(pod) {
		o, is, err := n.claims.GetByKey(pod.Namespace + "/" + name)
		c, ok := o.(*resourceapi.ResourceClaim)
		if err != nil || !is || !ok || c.Status.Allocation == nil {
			continue
		}
		for _, r := range c.Status.Allocation.Devices.Results {
			if r.Driver != offer.Driver {
				has[device{r.Driver, r.Pool, r.Device}] = true
			}
		}
	}
	nodes := map[string]int{}
	if len(has) == 0 {
		return nodes
	}
	all, err := n.Client.ResourceV1().ResourceSlices().List(ctx,
		metav1.ListOptions{FieldSelector: resourceapi.ResourceSliceSelectorNodeName + "=" + n.Name})
	if err != nil {
		n.Log.WarnContext(ctx, "devices of other drivers", "err", err)
		return nodes
	}
	for _, s := range all.Items {
		for _, d := range s.Spec.Devices {
			if node, says := numaNodeOf(h, d); says && has[device{s.Spec.Driver, s.Spec.Pool.Name, d.Name}] {
				nodes[d.Name+" of "+s.Spec.Driver] = node
			}
		}
	}
	return nodes
}

// numaNodeOf returns the NUMA node that a device states, else that of its PCI function.
func numaNodeOf(h host.Host, d resourceapi.Device) (node int, says bool) {
	if at := d.Attributes[deviceattribute.StandardDeviceAttributeNUMANode]; at.IntValue != nil {
		return int(*at.IntValue), true
	}
	if id := d.Attributes[deviceattribute.StandardDeviceAttributePCIBusID].StringValue; id != nil {
		for _, f := range h.PCIDevices {
			if f.Address == *id && f.NUMANode != nil {
				return *f.NUMANode, true
			}
		}
	}
	return 0, false
}
