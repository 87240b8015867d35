package node

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/kube/ask"
	"isolane.dev/isolane/kube/offer"
	"isolane.dev/isolane/lanes"
)

// waiting is a pod that waits to be bound, and its claim of all CPUs of a device.
func waiting(name, device string, cpus resource.Quantity) (*corev1.Pod, *resourceapi.ResourceClaim) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("pod-" + name)}}
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "lane", ResourceClaimName: &name}}
	p.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
		Claims: []corev1.ResourceClaim{{Name: "lane"}}, Requests: corev1.ResourceList{corev1.ResourceCPU: cpus}}}}
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name),
		ResourceVersion: "1"}}
	amounts := map[resourceapi.QualifiedName]resource.Quantity{offer.CPUs: cpus}
	c.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "lane", Exactly: &resourceapi.ExactDeviceRequest{
		Capacity: &resourceapi.CapacityRequirements{Requests: amounts}}}}
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: name, UID: p.UID}}
	c.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{Request: "lane", Driver: offer.Driver, Pool: "n0", Device: device,
			ShareID: new(types.UID(name)), ConsumedCapacity: amounts, BindingConditions: []string{offer.Placed},
			BindingFailureConditions: []string{offer.Refused}}}}}
	return p, c
}

// Of two pods that want the same CPUs the first one gets them, though its lane is in force nowhere yet: what
// is promised stands in its claim alone, and a node part that was started again reads it there.
func TestAnswer(t *testing.T) {
	hosttest.Need(t, hosttest.CPUs(2))
	h, err := host.Read(host.Live())
	if err != nil {
		t.Fatal(err)
	}
	free := lanes.Options{Dir: filepath.Join(t.TempDir(), "isolane"), CPUs: h.Online(), MemoryNodes: h.MemoryNodes()}
	known := cache.NewStore(cache.MetaNamespaceKeyFunc)
	start := func(client *fake.Clientset) *Node {
		n := &Node{Config: Config{Name: "n0", Client: client, Lanes: free, Log: slog.New(slog.DiscardHandler)}, known: known}
		n.claims = cache.NewIntegerResourceVersionMutationCache(klog.Background(), known, nil, time.Minute, false)
		return n
	}
	a, err := start(nil).account(nil)
	if err != nil {
		t.Fatal(err)
	}
	devices, err := offer.Node{Host: a.host, Placed: a.placed, Pool: "n0"}.Devices()
	if err != nil || len(devices) == 0 {
		t.Fatal(devices, err)
	}
	all := devices[0].Capacity[offer.CPUs].Value
	firstPod, first := waiting("first", devices[0].Name, all)
	secondPod, second := waiting("second", devices[0].Name, all)
	_, elsewhere := waiting("elsewhere", devices[0].Name, all)
	elsewhere.Status.Allocation.Devices.Results[0].Pool = "n1"
	objects := []apiruntime.Object{firstPod, secondPod, first, second, elsewhere}
	client := fake.NewClientset(objects...)
	status := func(name string) *resourceapi.ResourceClaim {
		c, gerr := client.ResourceV1().ResourceClaims("default").Get(t.Context(), name, metav1.GetOptions{})
		if gerr != nil {
			t.Fatal(gerr)
		}
		c.ResourceVersion = "2"
		return c
	}
	for _, c := range []*resourceapi.ResourceClaim{first, elsewhere} {
		if err = known.Add(c); err != nil {
			t.Fatal(err)
		}
	}
	if err = start(client).answer(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	placed, err := ask.Answered(status("first"), "n0")
	if err != nil || len(placed) != 1 || int64(placed[0].CPUs.Len()) != all.Value() {
		t.Fatalf("%v %v %+v", placed, err, status("first").Status.Devices)
	}
	if got := status("elsewhere"); len(got.Status.Devices) > 0 {
		t.Errorf("the claim of another node was answered: %+v", got.Status.Devices)
	}
	for _, c := range []*resourceapi.ResourceClaim{status("first"), second} {
		if err = known.Update(c); err != nil {
			t.Fatal(err)
		}
	}
	if err = start(client).answer(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	s := status("second").Status.Devices
	if len(s) != 1 || !meta.IsStatusConditionTrue(s[0].Conditions, offer.Refused) ||
		!strings.Contains(string(s[0].Data.Raw), `"blocking":[`) {
		t.Errorf("%+v", s)
	}
	// It offers nothing any more: whoever still waits hears why.
	if err = known.Update(second); err != nil {
		t.Fatal(err)
	}
	if err = start(client).answer(t.Context(), "the kubelet is static"); err != nil {
		t.Fatal(err)
	}
	if c := meta.FindStatusCondition(status("second").Status.Devices[0].Conditions, offer.Refused); c == nil ||
		c.Message != "the kubelet is static" {
		t.Errorf("%+v", c)
	}
}
