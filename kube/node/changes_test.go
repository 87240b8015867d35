package node

import (
	"maps"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/kube/ask"
	"isolane.dev/isolane/kube/offer"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
)

// What somebody else writes into the status of a claim whose lane is in force is written right again, but not
// as fast as they write.
func TestRestoreStatus(t *testing.T) {
	hosttest.Need(t, hosttest.CPUs(2))
	pod, claim := waitingPod("edge", "numa0", resource.MustParse("1"))
	client := fake.NewClientset(pod, claim)
	dir, files := filepath.Join(t.TempDir(), "isolane"), t.TempDir()
	one := plan.Lane{Name: ask.Name(string(claim.UID), 0), CPUs: cpuset.Of(1), MemoryNodes: cpuset.Of(0), Spec: lane.Spec{CPUs: lane.CPUs{Count: 1}}, Reasons: []string{}}
	recordLanes(t, dir, one)
	now := func() *resourceapi.ResourceClaim {
		t.Helper()
		c, err := client.ResourceV1().ResourceClaims("default").Get(t.Context(), "edge", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	writes := 0
	restore := func(n *Node, want int) {
		t.Helper()
		err := n.restoreStatus(t.Context(), inForce(t, dir))
		writes = 0
		for _, a := range client.Actions() {
			if a.Matches("update", "resourceclaims") {
				writes++
			}
		}
		if writes != want {
			t.Fatalf("%d writes, expected %d: %v", writes, want, err)
		}
	}
	of := func(c *resourceapi.ResourceClaim) *Node {
		n := testNode(t, client, dir, c)
		n.CDI = files
		return n
	}
	restore(of(claim), 0) // nobody knows whose lane it is
	if err := of(claim).writeCDI(string(claim.UID), "pod-edge", nil); err != nil {
		t.Fatal(err)
	}
	n := of(claim)
	restore(n, 1) // the status was removed
	answered, err := ask.Answered(now(), "n0")
	if err != nil || len(answered) != 1 || answered[0].CPUs != one.CPUs {
		t.Fatal(answered, err)
	}
	restore(of(now()), 1)
	for name, forge := range map[string]func(*resourceapi.AllocatedDeviceStatus){
		"data": func(s *resourceapi.AllocatedDeviceStatus) {
			s.Data.Raw = []byte(strings.ReplaceAll(string(s.Data.Raw), `"cpus":"1"`, `"cpus":"0"`))
		},
		"no data": func(s *resourceapi.AllocatedDeviceStatus) { s.Data = nil },
		"message": func(s *resourceapi.AllocatedDeviceStatus) {
			meta.FindStatusCondition(s.Conditions, offer.Placed).Message = "CPUs 0, memory of NUMA node 0"
		},
		"refused": func(s *resourceapi.AllocatedDeviceStatus) {
			meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: offer.Refused, Status: metav1.ConditionTrue})
		},
		"of another pod": func(s *resourceapi.AllocatedDeviceStatus) {
			meta.FindStatusCondition(s.Conditions, "AnsweredFor").Message = "another"
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := now()
			forge(&c.Status.Devices[0])
			before := writes
			n := of(c)
			restore(n, before+1)
			if !ask.Says(now(), "n0", "pod-edge", map[string]cpuset.Set{one.Name: one.CPUs}) {
				t.Errorf("%+v", now().Status.Devices)
			}
			if err := n.claimStore.Update(c); err != nil {
				t.Fatal(err)
			}
			again := of(c)
			again.restored = n.restored
			if err := again.restoreStatus(t.Context(), inForce(t, dir)); err == nil || !strings.Contains(err.Error(), "again and again") {
				t.Error(err)
			}
			restore(of(now()), before+1)
		})
	}
}

// A claim of this node's pool that is allocated for another node waits for nobody: its pod is told why, once.
func TestForeign(t *testing.T) {
	pod, claim := waitingPod("edge", "numa0", resource.MustParse("1"))
	claim.Status.Allocation.NodeSelector = nodeSelector("n1")
	client := fake.NewClientset(pod, claim)
	n := testNode(t, client, t.TempDir(), claim)
	for range 2 {
		n.tellForeign(t.Context())
	}
	events, err := client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(events.Items) != 1 || events.Items[0].InvolvedObject.Name != "edge" ||
		!strings.Contains(events.Items[0].Message, "has devices of pool n0, and is not allocated for node n0 alone: another ResourceSlice has the pool's name") {
		t.Errorf("%v %+v", err, events)
	}
}

// A claim that is reserved for no pod is refused.
func TestNoPod(t *testing.T) {
	_, claim := waitingPod("edge", "numa0", resource.MustParse("1"))
	claim.Status.ReservedFor[0].APIGroup, claim.Status.ReservedFor[0].Resource = "scheduling.k8s.io", "podgroups"
	client, dir := fake.NewClientset(claim), filepath.Join(t.TempDir(), "isolane")
	n := testNode(t, client, dir, claim)
	if err := n.answer(t.Context(), inForce(t, dir), ""); err != nil {
		t.Fatal(err)
	}
	c, err := client.ResourceV1().ResourceClaims("default").Get(t.Context(), "edge", metav1.GetOptions{})
	if err != nil || len(c.Status.Devices) != 1 || !strings.Contains(c.Status.Devices[0].Conditions[0].Message, "reserved for podgroups edge: expected a pod") {
		t.Errorf("%v %+v", err, c.Status.Devices)
	}
	if _, err = n.podOf(t.Context(), claim, true); err == nil || !strings.Contains(err.Error(), "expected a pod") {
		t.Error(err)
	}
}

// An API server that is too old is said, and not waited for.
func TestAPI(t *testing.T) {
	client := fake.NewClientset()
	n := testNode(t, client, t.TempDir())
	err := n.checkAPI(t.Context())
	events, eerr := client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
	if err == nil || !strings.Contains(err.Error(), "resource.k8s.io/v1: the API server does not have it: expected Kubernetes 1.34") ||
		strings.Contains(err.Error(), "\n") || eerr != nil || len(events.Items) != 1 || events.Items[0].InvolvedObject.Kind != "Node" {
		t.Errorf("%v, %v %+v", err, eerr, events)
	}
	client.Resources = []*metav1.APIResourceList{{GroupVersion: "resource.k8s.io/v1"}}
	if err = n.checkAPI(t.Context()); err != nil {
		t.Error(err)
	}
}

// What others have changed of a lane is an event of its pod; of lanes of the host, or of all, one of the node.
func TestTellChanged(t *testing.T) {
	_, claim := waitingPod("edge", "numa0", resource.MustParse("1"))
	client := fake.NewClientset(claim)
	name := ask.Name(string(claim.UID), 0)
	testNode(t, client, t.TempDir(), claim).tellChanged(t.Context(), map[string]string{"": "of all", name + ".1": "of the pod", "own": "of the host"})
	said := map[string]string{}
	for _, a := range client.Actions() {
		if create, is := a.(k8stesting.CreateAction); is {
			e := create.GetObject().(*corev1.Event)
			said[e.Message] = e.InvolvedObject.Kind + " " + e.InvolvedObject.Name
		}
	}
	want := map[string]string{"of all": "Node n0", "lane " + name + ".1: of the pod": "Pod edge", "lane own: of the host": "Node n0"}
	if !maps.Equal(said, want) {
		t.Errorf("%v, expected %v", said, want)
	}
}
