package ask_test

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/kube/ask"
	"isolane.dev/isolane/kube/offer"
	"isolane.dev/isolane/plan"
)

// twoRequests returns a claim of two requests, the second with subrequests of which the scheduler took one, and
// with parameters for each.
func twoRequests() *resourceapi.ResourceClaim {
	c := request{capacity: map[string]string{"cpus": "2"}}.claim()
	amounts := quantities(map[string]string{"cpus": "1"})
	c.Spec.Devices.Requests[0].Name = "fast"
	c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, resourceapi.DeviceRequest{Name: "slow", FirstAvailable: []resourceapi.DeviceSubRequest{
		{Name: "large", Capacity: &resourceapi.CapacityRequirements{Requests: quantities(map[string]string{"cpus": "6"})}},
		{Name: "small", Capacity: &resourceapi.CapacityRequirements{Requests: amounts}}}})
	results := &c.Status.Allocation.Devices.Results
	(*results)[0].Request = "fast"
	card := (*results)[0]
	card.Driver, card.Device, card.ShareID, card.Request = "nic.example.com", "eth0", nil, "card"
	second := (*results)[0]
	second.Request, second.Device, second.ShareID, second.ConsumedCapacity = "slow/small", "numa1", new(types.UID("other")), amounts
	*results = append(*results, card, second)
	for of, text := range map[string]string{"fast": `{"cpus":{"smt":"isolate"}}`, "slow/large": `{"cpus":{"smt":"none"}}`, "slow/small": `{"roles":{"worker":1}}`} {
		c.Status.Allocation.Devices.Config = append(c.Status.Allocation.Devices.Config, resourceapi.DeviceAllocationConfiguration{
			Source: resourceapi.AllocationConfigSourceClaim, Requests: []string{of}, DeviceConfiguration: resourceapi.DeviceConfiguration{
				Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: offer.Driver, Parameters: runtime.RawExtension{Raw: []byte(spec(text))}}}})
	}
	return c
}

// uses returns a container with these requests of the claim; "" is all of them.
func uses(name, cpu string, requests ...string) corev1.Container {
	c := user(name, cpu)
	c.Resources.Claims = nil
	for _, r := range requests {
		c.Resources.Claims = append(c.Resources.Claims, corev1.ResourceClaim{Name: "of-the-pod", Request: r})
	}
	return c
}

// Each request of a claim is a lane, with its own amounts and parameters, and a container names the one that it
// is in.
func TestSeveral(t *testing.T) {
	c := twoRequests()
	p := pod("0")
	p.Spec.Containers = []corev1.Container{uses("main", "4", "fast"), uses("beside", "1", "slow")}
	placed, err := ask.Solve(on(t), plan.Placement{}, "n0", p, []*resourceapi.ResourceClaim{c})
	if err != nil {
		t.Fatal(err)
	}
	fast, is := placed.Lane(ask.Name(uid, 0))
	slow, also := placed.Lane(ask.Name(uid, 2))
	if !is || !also || len(placed.Lanes) != 2 || fast.CPUs.String() != "1-2" || fast.Idle.String() != "9-10" ||
		slow.CPUs.String() != "4" || slow.Roles["worker"].String() != "4" {
		t.Fatalf("%+v", placed.Lanes)
	}
	if c.Status.Devices, err = ask.Status(c, "n0", offer.Remote, placed, nil, now()); err != nil {
		t.Fatal(err)
	}
	answered, err := ask.Answered(c, "n0")
	if err != nil || len(answered) != 2 || answered[0].CPUs != fast.CPUs || answered[1].CPUs != slow.CPUs {
		t.Errorf("%v %+v", err, answered)
	}
	parts, err := ask.Parts(on(t), p, c, "n0", placed)
	if err != nil || len(parts) != 2 || parts[0].Spec.CPUs.List != fast.CPUs || parts[1].Metadata.Name != slow.Name {
		t.Errorf("%v %+v", err, parts)
	}
	// The scheduler counts them together.
	p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("2") // the siblings
	p.Spec.Containers[1].Resources.Requests = nil
	for counted, says := range map[string]string{"3": "", "2": "expected 4 or more, the CPUs that the lane owns"} {
		p.Status.NodeAllocatableResourceClaimStatuses = []corev1.NodeAllocatableResourceClaimStatus{{ResourceClaimName: "lane",
			Mapping: []corev1.NodeAllocatableMappedResources{{Name: corev1.ResourceCPU, Quantity: new(resource.MustParse(counted))}}}}
		if _, err = ask.Solve(on(t), plan.Placement{}, "n0", p, []*resourceapi.ResourceClaim{c}); says == "" && err != nil ||
			says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("counted %s: %v, expected %q", counted, err, says)
		}
	}
}

func TestSeveralRefused(t *testing.T) {
	one := twoRequests()
	one.Status.Allocation.Devices.Results[2].Request = "fast"
	one.Status.Allocation.Devices.Results[2].ConsumedCapacity = one.Status.Allocation.Devices.Results[0].ConsumedCapacity
	large := twoRequests()
	large.Spec.Devices.Requests[1].FirstAvailable[1].Capacity.Requests = quantities(map[string]string{"cpus": "9"})
	large.Status.Allocation.Devices.Results[2].ConsumedCapacity = quantities(map[string]string{"cpus": "9"})
	for name, c := range map[string]struct {
		claim  *resourceapi.ResourceClaim
		main   []string
		beside []string
		says   string
	}{
		"all requests":       {twoRequests(), []string{""}, nil, "container main: 2 lanes: expected one: name one claim in its resources.claims, and if that has several requests, one of them"},
		"both":               {twoRequests(), []string{"fast", "slow"}, nil, "container main: 2 lanes: expected one"},
		"one is nobody's":    {twoRequests(), []string{"fast"}, nil, "containers that use it: expected one or more"},
		"two share a lane":   {twoRequests(), []string{"fast"}, []string{"fast"}, "containers main, beside: expected all but one to be named like a role"},
		"count":              {one, []string{"fast"}, []string{"slow"}, "request fast: count: expected 1: a lane has the CPUs that capacity.requests.cpus says"},
		"the second is more": {large, []string{"fast"}, []string{"slow"}, "request slow/small: "},
	} {
		t.Run(name, func(t *testing.T) {
			p := pod("0")
			p.Spec.Containers = []corev1.Container{uses("main", "9", c.main...), uses("beside", "9", c.beside...)}
			_, err := ask.Solve(on(t), plan.Placement{}, "n0", p, []*resourceapi.ResourceClaim{c.claim})
			if _, is := errors.AsType[*plan.Refusal](err); !is {
				t.Fatal(err)
			}
			status, serr := ask.Status(c.claim, "n0", offer.Remote, plan.Placement{}, err, now())
			if serr != nil || len(status) != 2 || !strings.Contains(status[1].Conditions[0].Message, c.says) {
				t.Errorf("%v %+v: expected %q", serr, status, c.says)
			}
		})
	}
}

// The example of docs/kubernetes.md: two cores of which one thread each is idle, huge pages, and two roles.
func TestExample(t *testing.T) {
	files := machine.FS()
	for _, file := range []string{"nr_hugepages", "free_hugepages"} {
		files["sys/devices/system/node/node0/hugepages/hugepages-2048kB/"+file] = &fstest.MapFile{Data: []byte("512")}
	}
	h, err := host.Read(files)
	if err != nil {
		t.Fatal(err)
	}
	p := pod("4")
	p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"hugepages-2Mi": resource.MustParse("512Mi")}
	c := request{capacity: map[string]string{"cpus": "2", "hugepages2Mi": "512Mi"},
		parameters: spec(`{"cpus":{"smt":"isolate"},"roles":{"main":1,"worker":1}}`)}.claim()
	placed, err := ask.Solve(h, plan.Placement{}, "n0", p, []*resourceapi.ResourceClaim{c})
	if err != nil {
		t.Fatal(err)
	}
	l := placed.Lanes[0]
	if l.CPUs.String() != "1-2" || l.Idle.String() != "9-10" || l.Roles["main"].Len() != 1 || l.Roles["worker"].Len() != 1 ||
		len(l.Hugepages) != 1 || l.Hugepages[0].Pages != 256 || l.Hugepages[0].Node != 0 {
		t.Errorf("%+v", l)
	}
}
