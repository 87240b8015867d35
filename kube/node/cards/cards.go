// Package cards says which devices of other drivers are on another NUMA node than the lanes of their pod.
package cards

import (
	"context"
	"fmt"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/kube/ask"
	"isolane.dev/isolane/kube/offer"
	"isolane.dev/isolane/plan"
)

// Explain adds to the reasons of the lanes that claims get which devices of other drivers, in all claims of
// the pod, are on another NUMA node. The scheduler aligns them only if one claim has both and asks for that.
// node is the name of the node, and of its pool. If there is an error, no reasons are added.
func Explain(ctx context.Context, client kubernetes.Interface, h host.Host, node string,
	all, claims []*resourceapi.ResourceClaim, p plan.Placement) (plan.Placement, error) {
	cards, err := numaNodes(ctx, client, h, node, all)
	p.Lanes = slices.Clone(p.Lanes)
	for _, c := range claims {
		for i, r := range c.Status.Allocation.Devices.Results {
			name := ask.Name(string(c.UID), i)
			at := slices.IndexFunc(p.Lanes, func(l plan.Lane) bool { return l.Name == name })
			own, nerr := offer.NUMANode(r.Device)
			if r.Driver == offer.Driver && r.Pool == node && nerr == nil && own >= 0 && at >= 0 {
				p.Lanes[at].Reasons = slices.Concat(p.Lanes[at].Reasons, remoteReasons(cards, own))
			}
		}
	}
	return p, err
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

// numaNodes returns the NUMA nodes of devices of other drivers in claims, as far as the devices or the
// machine tell. It sees only devices that drivers offer for this node alone. The keys name device and driver.
func numaNodes(ctx context.Context, client kubernetes.Interface, h host.Host, node string,
	claims []*resourceapi.ResourceClaim) (map[string]int, error) {
	type device struct{ driver, pool, name string }
	has := map[device]bool{}
	for _, c := range claims {
		for _, r := range c.Status.Allocation.Devices.Results {
			if r.Driver != offer.Driver {
				has[device{r.Driver, r.Pool, r.Device}] = true
			}
		}
	}
	nodes := map[string]int{}
	if len(has) == 0 {
		return nodes, nil
	}
	all, err := client.ResourceV1().ResourceSlices().List(ctx,
		metav1.ListOptions{FieldSelector: resourceapi.ResourceSliceSelectorNodeName + "=" + node})
	if err != nil {
		return nodes, err
	}
	for _, s := range all.Items {
		for _, d := range s.Spec.Devices {
			if node, says := numaNodeOf(h, d); says && has[device{s.Spec.Driver, s.Spec.Pool.Name, d.Name}] {
				nodes[d.Name+" of "+s.Spec.Driver] = node
			}
		}
	}
	return nodes, nil
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
