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

// tellFar says in the reasons of the lanes of a pod which of its devices of other drivers are on another NUMA
// node: the scheduler brings them together only where one claim has both, and says so.
func (n *Node) tellFar(ctx context.Context, h host.Host, pod *corev1.Pod, claims []*resourceapi.ResourceClaim,
	p plan.Placement) plan.Placement {
	cards := n.cards(ctx, h, pod)
	p.Lanes = slices.Clone(p.Lanes)
	for _, c := range claims {
		for i, r := range c.Status.Allocation.Devices.Results {
			at := slices.IndexFunc(p.Lanes, func(l plan.Lane) bool { return l.Name == ask.Name(string(c.UID), i) })
			own, err := offer.NUMANode(r.Device)
			if r.Driver != offer.Driver || r.Pool != n.Name || err != nil || own < 0 || at < 0 {
				continue
			}
			l := &p.Lanes[at]
			for _, name := range slices.Sorted(maps.Keys(cards)) {
				if cards[name] != own {
					l.Reasons = append(slices.Clip(l.Reasons), fmt.Sprintf("device %s is on NUMA node %d: matchAttribute "+
						"%s in the claim of both brings them together", name, cards[name],
						deviceattribute.StandardDeviceAttributeNUMANode))
				}
			}
		}
	}
	return p
}

// cards are the NUMA nodes of a pod's devices of other drivers of this node, as far as these or the machine
// say them, by pool and name.
func (n *Node) cards(ctx context.Context, h host.Host, pod *corev1.Pod) map[string]int {
	drivers := map[string][]resourceapi.DeviceRequestAllocationResult{}
	for _, name := range claimsOf(pod) {
		o, is, err := n.claims.GetByKey(pod.Namespace + "/" + name)
		if c, ok := o.(*resourceapi.ResourceClaim); err == nil && is && ok && c.Status.Allocation != nil {
			for _, r := range c.Status.Allocation.Devices.Results {
				if r.Driver != offer.Driver {
					drivers[r.Driver] = append(drivers[r.Driver], r)
				}
			}
		}
	}
	nodes := map[string]int{}
	for driver, results := range drivers {
		of := fmt.Sprintf("%s=%s,%s=%s", resourceapi.ResourceSliceSelectorDriver, driver,
			resourceapi.ResourceSliceSelectorNodeName, n.Name)
		all, err := n.Client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: of})
		if err != nil {
			n.Log.WarnContext(ctx, "devices of other drivers", "driver", driver, "err", err)
			continue
		}
		for _, s := range all.Items {
			for _, d := range s.Spec.Devices {
				node, says := nodeOf(h, d)
				if says && slices.ContainsFunc(results, func(r resourceapi.DeviceRequestAllocationResult) bool {
					return r.Pool == s.Spec.Pool.Name && r.Device == d.Name
				}) {
					nodes[fmt.Sprintf("%s of %s", d.Name, driver)] = node
				}
			}
		}
	}
	return nodes
}

// nodeOf is the NUMA node that a device says, else that of its PCI function.
func nodeOf(h host.Host, d resourceapi.Device) (node int, says bool) {
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
