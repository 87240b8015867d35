package cards

import (
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/kube/ask"
	"isolane.dev/isolane/kube/offer"
	"isolane.dev/isolane/plan"
)

// An answer names a card of another driver on another NUMA node than the lane's, as its driver or the machine
// says.
func TestFar(t *testing.T) {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "edge", UID: "6ab1f2d4-9a0e-4a3e-8f5b-0d2f5c1e7a90"}}
	claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{Request: "lane", Driver: offer.Driver, Pool: "n0", Device: "numa0"}}}}
	slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "cards"}, Spec: resourceapi.ResourceSliceSpec{
		Driver: "cards.example.com", NodeName: new("n0"), Pool: resourceapi.ResourcePool{Name: "cards"}}}
	for name, attributes := range map[string]map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
		"near":    {"resource.kubernetes.io/numaNode": {IntValue: new(int64(0))}},
		"far":     {"resource.kubernetes.io/numaNode": {IntValue: new(int64(1))}},
		"by-bus":  {"resource.kubernetes.io/pciBusID": {StringValue: new("0000:81:00.0")}},
		"unknown": {"resource.kubernetes.io/pciBusID": {StringValue: new("0000:82:00.0")}},
	} {
		slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{Name: name, Attributes: attributes})
		claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results,
			resourceapi.DeviceRequestAllocationResult{Request: name, Driver: "cards.example.com", Pool: "cards", Device: name})
	}
	elsewhere := slice.DeepCopy() // devices with these names that the pod does not have
	elsewhere.Name, elsewhere.Spec.Pool.Name = "others", "others"
	for i := range elsewhere.Spec.Devices {
		elsewhere.Spec.Devices[i].Attributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"resource.kubernetes.io/numaNode": {IntValue: new(int64(2))}}
	}
	client, claims := fake.NewClientset(slice, elsewhere), []*resourceapi.ResourceClaim{claim}
	h := host.Host{PCIDevices: []host.PCIDevice{{Address: "0000:81:00.0", NUMANode: new(1)}, {Address: "0000:82:00.0"}}}
	before := plan.Placement{Lanes: []plan.Lane{{Name: ask.Name(string(claim.UID), 0), Reasons: []string{"node 0"}}, {Name: "vpp"}}}
	got, err := Explain(t.Context(), client, h, "n0", claims, claims, before)
	if err != nil {
		t.Fatal(err)
	}
	const how = " is on NUMA node 1: matchAttribute resource.kubernetes.io/numaNode in the claim of both brings them together"
	if want := []string{"node 0", "device by-bus of cards.example.com" + how, "device far of cards.example.com" + how}; !slices.Equal(got.Lanes[0].Reasons, want) {
		t.Errorf("%s", strings.Join(got.Lanes[0].Reasons, "\n"))
	}
	if len(before.Lanes[0].Reasons) != 1 || len(got.Lanes[1].Reasons) != 0 {
		t.Errorf("%+v %+v", before, got)
	}
}
