package node

import (
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/kube/ask"
	"isolane.dev/isolane/kube/offer"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/solver"
)

// A claim belongs to this node only if the scheduler has allocated this node's pool for this node: a slice of
// another node can name the same pool.
func TestHere(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*resourceapi.AllocationResult)
		here   bool
		wakes  bool // the claim may concern this node
	}{
		"of this node":         {func(*resourceapi.AllocationResult) {}, true, true},
		"another pool":         {func(a *resourceapi.AllocationResult) { a.Devices.Results[0].Pool = "n1" }, false, false},
		"another driver":       {func(a *resourceapi.AllocationResult) { a.Devices.Results[0].Driver = "gpu.example.com" }, false, true},
		"for another node":     {func(a *resourceapi.AllocationResult) { a.NodeSelector = nodeSelector("n1") }, false, true},
		"for several":          {func(a *resourceapi.AllocationResult) { match(a).Values = []string{"n0", "n1"} }, false, true},
		"for all but this one": {func(a *resourceapi.AllocationResult) { match(a).Operator = corev1.NodeSelectorOpNotIn }, false, true},
		"for all":              {func(a *resourceapi.AllocationResult) { a.NodeSelector = nil }, false, true},
		"for nobody":           {func(a *resourceapi.AllocationResult) { a.NodeSelector.NodeSelectorTerms = nil }, false, true},
		"for this one or another": {func(a *resourceapi.AllocationResult) {
			a.NodeSelector.NodeSelectorTerms = append(a.NodeSelector.NodeSelectorTerms, corev1.NodeSelectorTerm{})
		}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			_, claim := waitingPod("claim", "numa0", resource.MustParse("1"))
			c.change(claim.Status.Allocation)
			n := testNode(t, nil, filepath.Join(t.TempDir(), "isolane"), claim)
			n.changed = make(chan struct{}, 1)
			claim.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
			if _, err := n.trimClaim(claim); err != nil || len(claim.ManagedFields) > 0 ||
				(len(claim.Spec.Devices.Requests) > 0) != (len(offer.Results(claim, n.Name)) > 0) {
				t.Errorf("%v: kept: %+v", err, claim)
			}
			if got := isAllocatedHere(claim, n.Name); got != c.here {
				t.Errorf("here: %t", got)
			}
			if got := len(n.nodeClaims()) == 1; got != c.here {
				t.Errorf("mine: %t", got)
			}
			n.wakeWatchFor(cache.DeletedFinalStateUnknown{Obj: claim})
			if got := len(n.changed) == 1; got != c.wakes {
				t.Errorf("wakes: %t", got)
			}
			if c.here {
				return
			}
			want, err := n.lanesFor(t.Context(), claim)
			if err == nil || !strings.Contains(err.Error(), "expected devices of pool n0 that are allocated for this node") {
				t.Errorf("wanted: %v %v", want, err)
			}
		})
	}
}

func match(a *resourceapi.AllocationResult) *corev1.NodeSelectorRequirement {
	return &a.NodeSelector.NodeSelectorTerms[0].MatchFields[0]
}

// A claim that is reserved for a pod which does not name it is refused, and does not wait forever. The
// scheduler makes such claims for extended resources, and others can write such a status.
func TestNotOf(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "isolane")
	pod, claim := waitingPod("edge", "numa0", resource.MustParse("1"))
	pod.Spec.ResourceClaims, pod.Spec.Containers[0].Resources.Claims = nil, nil
	pod.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: claim.Name}
	client := fake.NewClientset(pod, claim)
	if err := testNode(t, client, dir, claim).answer(t.Context(), inForce(t, dir), ""); err != nil {
		t.Fatal(err)
	}
	got, err := client.ResourceV1().ResourceClaims("default").Get(t.Context(), claim.Name, metav1.GetOptions{})
	if err != nil || len(got.Status.Devices) != 1 {
		t.Fatal(got, err)
	}
	c := meta.FindStatusCondition(got.Status.Devices[0].Conditions, offer.Refused)
	if c == nil || c.Status != metav1.ConditionTrue || !strings.Contains(c.Message, "expected it in spec.resourceClaims of pod edge: ask for a "+
		"lane by a ResourceClaimTemplate") {
		t.Errorf("%+v", c)
	}
}

// Another pod with the name of the one that a claim is reserved for gets nothing.
func TestPodOfTheName(t *testing.T) {
	pod, claim := waitingPod("edge", "numa0", resource.MustParse("1"))
	pod.UID = "another"
	n := testNode(t, fake.NewClientset(pod, claim), filepath.Join(t.TempDir(), "isolane"), claim)
	want, err := n.lanesFor(t.Context(), claim)
	if err == nil || !strings.Contains(err.Error(), "reserved for a pod edge that has gone: expected its uid pod-edge, found another") {
		t.Error(want, err)
	}
}

func answeredFor(c *resourceapi.ResourceClaim) *metav1.Condition {
	return meta.FindStatusCondition(c.Status.Devices[0].Conditions, "AnsweredFor")
}

// A claim whose CPUs a lane of the host has now, as after a boot, gets others, and its status says so. A pod
// that came after the answered one is checked too.
func TestPromiseThatIsGone(t *testing.T) {
	h := hosttest.Machine{Packages: 1, CoresPerPackage: 4, ThreadsPerCore: 1}.Host(t)
	pod, claim := waitingPod("edge", "numa0", resource.MustParse("1"))
	claims := []*resourceapi.ResourceClaim{claim}
	p, err := ask.Solve(h, plan.Placement{}, "n0", pod, claims)
	if err == nil {
		claim.Status.Devices, err = ask.Status(claim, "n0", offer.Remote, p, nil, metav1.Now())
	}
	if err != nil {
		t.Fatal(err)
	}
	promised := p.Lanes[0].CPUs
	want, err := ask.Pinned(h, claim, "n0")
	if err != nil {
		t.Fatal(err)
	}
	client := fake.NewClientset(pod, claim)
	n := testNode(t, client, t.TempDir(), claim)
	keep := func(a account) (cpuset.Set, error) {
		placed, kerr := n.placePromised(t.Context(), a, pod, claim, want)
		l, _ := placed.Lane(want[0].Metadata.Name)
		return l.CPUs, kerr
	}
	if cpus, kerr := keep(account{host: h}); kerr != nil || cpus != promised {
		t.Errorf("%s %v: it was promised %s", cpus, kerr, promised)
	}
	of := func(cpus string) account {
		l := lane.Lane{Metadata: lane.Metadata{Name: "vpp"}, Spec: lane.Spec{CPUs: lane.CPUs{List: cpuset.MustParse(cpus)}}}
		l.Spec.CPUs.Count = l.Spec.CPUs.List.Len()
		placed, serr := solver.Solve(h, plan.Placement{}, []lane.Lane{l})
		if serr != nil {
			t.Fatal(serr)
		}
		return account{host: h, placed: placed}
	}
	if cpus, kerr := keep(of(promised.String())); kerr != nil || cpus.Len() != 1 || cpus == promised {
		t.Errorf("%s %v", cpus, kerr)
	}
	now, err := client.ResourceV1().ResourceClaims("default").Get(t.Context(), "edge", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	said, err := ask.Answered(now, "n0")
	events, eerr := client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(said) != 1 || said[0].CPUs == promised || eerr != nil || len(events.Items) != 1 {
		t.Errorf("%+v %v, %v %v", said, err, events, eerr)
	}
	if cpus, kerr := keep(of("1-3")); kerr == nil || !strings.Contains(kerr.Error(), "and nothing else fits") {
		t.Error(cpus, kerr)
	}
	// The answered pod may have been resized since. If an older version answered, it is unknown for which pod.
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}
	answeredFor(claim).Message = string(pod.UID)
	if cpus, kerr := keep(account{host: h}); kerr != nil || cpus != promised {
		t.Errorf("answered for it: %s %v", cpus, kerr)
	}
	for _, of := range []string{"another", ""} {
		answeredFor(claim).Message = of
		if cpus, kerr := keep(account{host: h}); kerr == nil || !strings.Contains(kerr.Error(), "resources.requests.cpu: expected 1 or more") {
			t.Errorf("answered for %q: %s %v", of, cpus, kerr)
		}
	}
}
