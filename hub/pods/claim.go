package pods

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	typedresource "k8s.io/client-go/kubernetes/typed/resource/v1"

	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/plan"
)

// Names in the Kubernetes module: its driver, its class, and its answers to a claim.
const (
	driver  = "isolane.dev"
	class   = "lane.isolane.dev"
	placed  = "Placed"
	refused = "Refused"
	request = "lane" // of the claim, and the claim's name in the pod
)

func (p Pod) claimsOf() typedresource.ResourceClaimInterface {
	return p.Client.ResourceV1().ResourceClaims(p.Namespace)
}

// Reserve has the lane placed. It makes the pod and the claim, gives the claim a device of this node, and
// waits for the answer of isolane-kube. It first tries the device of the NUMA node on which the planner would
// place the lane now, then the others, because lanes that are promised but not yet in force may need that
// node. If each answer is no, the error is a *plan.Refusal and nothing is left behind.
func (p Pod) Reserve(ctx context.Context) (l plan.Lane, err error) {
	want, err := api.Lane(p.Name, p.Spec.Lane)
	if err != nil {
		return l, err
	}
	now, err := lanes.Look(p.Lanes)
	if err != nil {
		return l, err
	}
	would, _, err := now.Want([]lane.Lane{want}, false)
	if err != nil {
		return l, err
	}
	planned, _ := would.Lane(p.Name)
	devices, err := p.devices(ctx, planned)
	for i := 0; err == nil && i < len(devices); i++ {
		var no error
		if l, no = p.ask(ctx, want, planned.Owned().Len(), devices[i]); no == nil {
			return l, nil
		}
		if err = p.End(context.WithoutCancel(ctx)); err != nil {
			return l, errors.Join(no, err)
		}
		if _, refused := errors.AsType[*plan.Refusal](no); !refused || i == len(devices)-1 {
			err = no
		}
	}
	return l, err
}

// ask tries one of the devices for Reserve. It does not clean up after a no.
func (p Pod) ask(ctx context.Context, want lane.Lane, owned int,
	given resourceapi.DeviceRequestAllocationResult) (plan.Lane, error) {
	made, err := p.pods().Create(ctx, p.manifest(want, owned), metav1.CreateOptions{})
	if err != nil {
		return plan.Lane{}, err
	}
	claim, err := p.claim(want)
	if err != nil {
		return plan.Lane{}, err
	}
	if claim, err = p.claimsOf().Create(ctx, claim, metav1.CreateOptions{}); err != nil {
		return plan.Lane{}, err
	}
	given.Request = request
	given.ConsumedCapacity = claim.Spec.Devices.Requests[0].Exactly.Capacity.Requests
	p.allocate(claim, given, made)
	if _, err = p.claimsOf().UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err != nil {
		return plan.Lane{}, err
	}
	return p.Promised(ctx)
}

// devices returns the devices of this node of which a lane may have a part. That of the lane's NUMA node is
// first.
func (p Pod) devices(ctx context.Context, l plan.Lane) (all []resourceapi.DeviceRequestAllocationResult,
	err error) {
	offers, err := p.Client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{
		FieldSelector: resourceapi.ResourceSliceSelectorNodeName + "=" + p.Node + "," +
			resourceapi.ResourceSliceSelectorDriver + "=" + driver})
	if err != nil {
		return nil, err
	}
	first := fmt.Sprintf("numa%d", l.MemoryNodes.First())
	for _, s := range offers.Items {
		for _, d := range s.Spec.Devices {
			if len(d.BindingConditions) == 0 {
				return nil, fmt.Errorf("isolane-kube of node %s answers no claims: expected it without "+
					"--answer=false", p.Node)
			}
			all = append(all, resourceapi.DeviceRequestAllocationResult{Driver: driver, Pool: s.Spec.Pool.Name,
				Device: d.Name, ShareID: new(uuid.NewUUID()), BindingConditions: d.BindingConditions,
				BindingFailureConditions: d.BindingFailureConditions})
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("node %s offers no lanes: expected isolane-kube there", p.Node)
	}
	slices.SortStableFunc(all, func(a, b resourceapi.DeviceRequestAllocationResult) int {
		return map[bool]int{true: -1}[a.Device == first] - map[bool]int{true: -1}[b.Device == first]
	})
	return all, nil
}

// claim returns the claim of the Instance: counted amounts as its capacity, the whole lane as its parameters.
func (p Pod) claim(want lane.Lane) (*resourceapi.ResourceClaim, error) {
	parameters, err := json.Marshal(map[string]any{"apiVersion": lane.APIVersion, "kind": lane.Kind,
		"spec": p.Spec.Lane})
	if err != nil {
		return nil, err
	}
	amounts := map[resourceapi.QualifiedName]resource.Quantity{
		"cpus": *resource.NewQuantity(int64(want.Spec.CPUs.Count), resource.DecimalSI)}
	if size := want.Spec.Memory.Size; size > 0 {
		amounts["memory"] = *resource.NewQuantity(int64(size), resource.BinarySI)
	}
	for page, size := range want.Spec.Memory.Hugepages {
		amounts[resourceapi.QualifiedName("hugepages"+page)] = *resource.NewQuantity(int64(size), resource.BinarySI)
	}
	return &resourceapi.ResourceClaim{ObjectMeta: p.metadata(), Spec: resourceapi.ResourceClaimSpec{
		Devices: resourceapi.DeviceClaim{
			Requests: []resourceapi.DeviceRequest{{Name: request, Exactly: &resourceapi.ExactDeviceRequest{
				DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
				Capacity: &resourceapi.CapacityRequirements{Requests: amounts}}}},
			Config: []resourceapi.DeviceClaimConfiguration{{DeviceConfiguration: resourceapi.DeviceConfiguration{
				Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: driver,
					Parameters: runtime.RawExtension{Raw: parameters}}}}},
		}}}, nil
}

// allocate gives a claim a device and reserves the claim for a pod, as a scheduler does.
func (p Pod) allocate(c *resourceapi.ResourceClaim, r resourceapi.DeviceRequestAllocationResult,
	of *corev1.Pod) {
	c.Status.Allocation = &resourceapi.AllocationResult{
		Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{r},
			Config: []resourceapi.DeviceAllocationConfiguration{{Source: resourceapi.AllocationConfigSourceClaim,
				DeviceConfiguration: c.Spec.Devices.Config[0].DeviceConfiguration}}},
		NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField,
				Operator: corev1.NodeSelectorOpIn, Values: []string{p.Node}}}}}},
		AllocationTimestamp: new(metav1.Now())}
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: of.Name,
		UID: of.UID}}
}

// Promised waits for the answer of isolane-kube, and returns its lane or a *plan.Refusal.
func (p Pod) Promised(ctx context.Context) (plan.Lane, error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		c, err := p.claimsOf().Get(ctx, p.object(), metav1.GetOptions{})
		if err != nil {
			return plan.Lane{}, err
		}
		for _, s := range c.Status.Devices {
			switch {
			case s.Driver != driver || s.Data == nil:
			case meta.IsStatusConditionTrue(s.Conditions, placed):
				return p.placedBy(s.Data.Raw)
			case meta.IsStatusConditionTrue(s.Conditions, refused):
				no := &plan.Refusal{}
				if err = json.Unmarshal(s.Data.Raw, no); err != nil {
					return plan.Lane{}, fmt.Errorf("status.devices of claim %s: %w", c.Name, err)
				}
				no.Lane = p.Name
				return plan.Lane{}, no
			}
		}
		select {
		case <-ctx.Done():
			return plan.Lane{}, fmt.Errorf("isolane-kube of node %s has not answered: %w", p.Node, ctx.Err())
		case <-tick.C:
		}
	}
}

// placedBy returns the lane of an answer, under the name of the Instance.
func (p Pod) placedBy(data []byte) (plan.Lane, error) {
	said, err := plan.Read("status.devices", bytes.NewReader(data))
	if err != nil {
		return plan.Lane{}, err
	}
	if len(said.Lanes) != 1 {
		return plan.Lane{}, fmt.Errorf("status.devices: expected one lane, found %d", len(said.Lanes))
	}
	l := said.Lanes[0]
	l.Name = p.Name
	return l, nil
}
