package ask_test

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"isolane.dev/isolane/kube/ask"
	"isolane.dev/isolane/plan"
)

func TestPodContradicts(t *testing.T) {
	isolate := request{capacity: map[string]string{"cpus": "2"}, parameters: spec(`{"cpus":{"smt":"isolate"}}`)}
	limited := pod("4")
	limited.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m")}
	unused := pod("4")
	unused.Spec.Containers[0].Resources.Claims = nil
	before := pod("4")
	before.Spec.InitContainers = []corev1.Container{user("first", "4")}
	little := pod("4")
	little.Spec.InitContainers = []corev1.Container{user("first", "3")}
	sidecar := pod("4")
	sidecar.Spec.InitContainers = []corev1.Container{user("sidecar", "4")}
	sidecar.Spec.InitContainers[0].RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	whole := func(container, request, limit string, others ...corev1.Container) *corev1.Pod {
		p := pod(container, others...)
		p.Spec.Resources = &corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(request)},
			Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(limit)}}
		return p
	}
	beside := user("beside", "1")
	beside.Resources = corev1.ResourceRequirements{Requests: beside.Resources.Requests,
		Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m")}}
	free := *beside.DeepCopy()
	free.Resources.Limits = nil
	other := *free.DeepCopy() // its claim is of another driver, or a lane
	other.Resources.Claims = []corev1.ResourceClaim{{Name: "other"}}
	counts := func(p *corev1.Pod, claim, cpus string) *corev1.Pod {
		p.Status.NodeAllocatableResourceClaimStatuses = []corev1.NodeAllocatableResourceClaimStatus{{ResourceClaimName: claim,
			Mapping: []corev1.NodeAllocatableMappedResources{{Name: corev1.ResourceCPU, Quantity: new(resource.MustParse(cpus))}}}}
		return p
	}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		says string
		here bool // only this node refuses: a node whose cores have one thread could have it
	}{
		"the pod asks":           {whole("0", "4", "4"), "", false},
		"the pod asks for less":  {whole("0", "3", "4"), "container main: resources.requests.cpu: expected 4 or more", true},
		"and for another":        {whole("0", "4", "5", beside), "container main: resources.requests.cpu: expected 4 or more", true},
		"the pod and another":    {whole("0", "5", "5", beside), "", false},
		"the pod is throttled":   {whole("4", "4", "1500m"), "pod p: spec.resources.limits.cpu: expected none, or 2 or more, the CPUs of its lanes and the limits of its other containers: 1500m would throttle the lanes", false},
		"with another's limit":   {whole("4", "5", "3", beside), "pod p: spec.resources.limits.cpu: expected none, or 3500m or more, the CPUs of its lanes and the limits of its other containers: 3 would", false},
		"another has no limit":   {whole("4", "5", "5", free), "container beside: resources.limits.cpu: expected a limit, as the pod has one (spec.resources.limits.cpu)", false},
		"and another's claim":    {whole("4", "5", "5", other), "container beside: resources.limits.cpu: expected a limit", false},
		"asks for enough":        {pod("4"), "", false},
		"siblings alone":         {counts(pod("2"), "lane", "2"), "", false},
		"no siblings":            {counts(pod("1"), "lane", "2"), "container main: resources.requests.cpu: expected 2 or more, the idle siblings, which its claim does not count (9-10), found 1", true},
		"counts fewer":           {counts(pod("3"), "lane", "1"), "container main: resources.requests.cpu: expected 4 or more", true},
		"counts another claim":   {counts(pod("3"), "other", "2"), "container main: resources.requests.cpu: expected 4 or more", true},
		"init container first":   {before, "", false},
		"asks for the used ones": {pod("2"), "container main: resources.requests.cpu: expected 4 or more, the CPUs that the lane owns (1-2,9-10), found 2", true},
		"init asks for less":     {little, "container first: resources.requests.cpu: expected 4 or more", true},
		"asks for fewer":         {pod("1"), "container main: resources.requests.cpu: expected 4 or more, the CPUs that the lane owns (1-2,9-10), found 1", false},
		"throttled":              {limited, "container main: resources.limits.cpu: expected none, or 2 or more: 1500m would throttle the lane", false},
		"two containers":         {pod("4", user("second", "4")), "containers main, second: expected all but one to be named like a role of spec.roles (there are none)", false},
		"a sidecar":              {sidecar, "containers sidecar, main: expected all but one", false},
		"nobody":                 {unused, "expected one or more, by resources.claims, beside init containers, found none", false},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := solve(t, isolate, c.pod)
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%v: expected %q", err, c.says)
			}
			if _, mistake := errors.AsType[ask.Mistake](err); mistake != (c.says != "" && !c.here) {
				t.Errorf("%v: a mistake: %t", err, mistake)
			}
		})
	}
	for limit, enough := range map[string]bool{"4": true, "3": false} { // its other lane is placed with it, or separately
		p := whole("4", "8", limit, other)
		p.Spec.Containers[1].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("4")
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: "other", ResourceClaimName: new("second")})
		one, second := request{capacity: isolate.capacity}.claim(), request{capacity: isolate.capacity, device: "numa1"}.claim()
		second.Name, second.UID = "second", uidOf(1)
		_, both := ask.Solve(on(t), plan.Placement{}, "n0", p, []*resourceapi.ResourceClaim{one, second})
		_, alone := ask.Solve(on(t), plan.Placement{}, "n0", p, []*resourceapi.ResourceClaim{one}, second)
		for _, err := range []error{both, alone} {
			if (err == nil) != enough || err != nil && !strings.Contains(err.Error(), "expected none, or 4 or more") {
				t.Errorf("limit %s: %v", limit, err)
			}
		}
	}
	twice := isolate.claim()
	twice.Status.Allocation.Devices.Results = append(twice.Status.Allocation.Devices.Results, twice.Status.Allocation.Devices.Results[0])
	admin := isolate.claim()
	admin.Status.Allocation.Devices.Results[0].AdminAccess = new(true)
	for says, claim := range map[string]*resourceapi.ResourceClaim{"request lane: count: expected 1: a lane has the CPUs that capacity.requests.cpus says": twice,
		"adminAccess: expected none": admin} {
		_, err := ask.Solve(on(t), plan.Placement{}, "n0", pod("8"), []*resourceapi.ResourceClaim{claim})
		if _, is := errors.AsType[*plan.Refusal](err); !is || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: expected %q", err, says)
		}
	}
	shared := isolate.claim()
	shared.Status.ReservedFor = append(shared.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Name: "q", UID: "other"})
	_, err := ask.Solve(on(t), plan.Placement{}, "n0", pod("4"), []*resourceapi.ResourceClaim{shared})
	if err == nil || !strings.Contains(err.Error(), "reserved for q too: a lane is one pod's") {
		t.Error(err)
	}
}

// Containers have limits for hugepages, because the kubelet allows only these, and only pages in the pool are
// promised.
func TestPages(t *testing.T) {
	limits := func(pages string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Limits: corev1.ResourceList{"hugepages-2Mi": resource.MustParse(pages)}}
	}
	of := func(main, whole, first string) *corev1.Pod {
		p := pod("2")
		if main != "" {
			p.Spec.Containers[0].Resources.Limits = limits(main).Limits
		}
		if whole != "" {
			p.Spec.Resources = new(limits(whole))
		}
		if first != "" {
			p.Spec.InitContainers = []corev1.Container{user("first", "2")}
			p.Spec.InitContainers[0].Resources.Limits = limits(first).Limits
		}
		return p
	}
	for name, c := range map[string]struct {
		asks string
		pod  *corev1.Pod
		says string
	}{
		"no limit":            {"4Mi", of("", "", ""), "container main: resources.limits.hugepages-2Mi: expected 4Mi or more, as capacity.requests says, found 0"},
		"too little":          {"4Mi", of("2Mi", "", ""), "expected 4Mi or more, as capacity.requests says, found 2Mi"},
		"enough":              {"4Mi", of("4Mi", "", ""), ""},
		"of the whole pod":    {"4Mi", of("", "4Mi", ""), ""},
		"less than the pod":   {"4Mi", of("2Mi", "4Mi", ""), "found 2Mi"},
		"before it":           {"4Mi", of("", "", "4Mi"), "found 0"},
		"more than are there": {"34Mi", of("34Mi", "", ""), "capacity.requests.hugepages2Mi: expected pages that are in the pool of node 0 before the kubelet starts, found 16 of 17"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := solve(t, request{capacity: map[string]string{"cpus": "2", "hugepages2Mi": c.asks}}, c.pod)
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%v: expected %q", err, c.says)
			}
			if _, mistake := errors.AsType[ask.Mistake](err); mistake != (c.says != "" && name != "more than are there") {
				t.Errorf("%v: a mistake: %t", err, mistake)
			}
		})
	}
}

// Containers or their pod request the memory of the lane: the scheduler would give it to others too.
func TestMemory(t *testing.T) {
	requests := func(memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	of := func(whole string, memory ...string) *corev1.Pod {
		p := pod("2")
		p.Spec.Containers[0].Resources.Requests = requests(memory[0])
		if whole != "" {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: requests(whole)}
		}
		for _, m := range memory[1:] {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "beside",
				Resources: corev1.ResourceRequirements{Requests: requests(m)}})
		}
		return p
	}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		says string
	}{
		"asks for nothing":      {pod("2"), "container main: resources.requests.memory: expected 1Gi or more, as capacity.requests says, found 0"},
		"asks for less":         {of("", "1023Mi"), "found 1023Mi"},
		"asks for it":           {of("", "1Gi"), ""},
		"another asks for it":   {of("", "0", "1Gi"), "found 0"},
		"the pod asks":          {of("1Gi", "0"), ""},
		"the pod, for less":     {of("1023Mi", "0"), "found 0"},
		"the pod, for another":  {of("1Gi", "0", "1Mi"), "found 0"},
		"the pod, for both too": {of("1025Mi", "0", "1Mi"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := solve(t, request{capacity: map[string]string{"cpus": "2", "memory": "1Gi"}}, c.pod)
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%v: expected %q", err, c.says)
			}
		})
	}
}
