package node

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"isolane.dev/isolane/kube/offer"
)

func slice(name string, devices ...string) apiruntime.Object {
	s := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourceapi.ResourceSliceSpec{Driver: offer.Driver, NodeName: &name}}
	for _, d := range devices {
		s.Spec.Devices = append(s.Spec.Devices, resourceapi.Device{Name: d})
	}
	return s
}

// A device that refused a pod offers less while the others are tried, and then all for as long.
func TestWithhold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := testNode(t, fake.NewClientset(slice("n0", "numa0", "numa1"), slice("n1", "numa0")), t.TempDir())
		_, small := waitingPod("small", "numa0", resource.MustParse("2"))
		_, large := waitingPod("large", "numa0", resource.MustParse("4"))
		refuse := func(claims ...*resourceapi.ResourceClaim) {
			if err := n.withhold(t.Context(), claims); err != nil {
				t.Fatal(err)
			}
		}
		offers := func(want int64) {
			t.Helper()
			limits := n.limits()
			most, limited := limits["numa0"][offer.CPUs]
			if limited != (want >= 0) || limited && most.Value() != want || len(limits) > 1 {
				t.Errorf("limits %v, expected of numa0 %d", limits, want)
			}
		}
		refuse(small, large) // of one pod: the larger one keeps it away
		offers(3)
		refuse(small)
		offers(3)
		<-time.After(2 * oneTry) // there are two other devices
		offers(-1)
		refuse(small)
		offers(-1)
		<-time.After(2*oneTry + time.Second)
		refuse(small)
		offers(1)
	})
}

// Nothing is withheld if there is no other device.
func TestWithholdAlone(t *testing.T) {
	n := testNode(t, fake.NewClientset(slice("n0", "numa0")), t.TempDir())
	_, c := waitingPod("small", "numa0", resource.MustParse("1"))
	if err := n.withhold(t.Context(), []*resourceapi.ResourceClaim{c}); err != nil || len(n.limits()) > 0 {
		t.Error(err, n.limits())
	}
}

// Only a refusal by the planner withholds CPUs, not a pod that no node can have as it is.
func TestWithholdNoMistake(t *testing.T) {
	for cpus, limited := range map[string]bool{"1000": true, "1500m": false} {
		pod, claim := waitingPod("edge", "numa0", resource.MustParse(cpus))
		n := testNode(t, fake.NewClientset(slice("n0", "numa0"), slice("n1", "numa0"), pod, claim),
			filepath.Join(t.TempDir(), "isolane"), claim)
		if err := n.answer(t.Context(), inForce(t, n.Lanes.Dir), ""); err != nil {
			t.Fatal(err)
		}
		c, err := n.Client.ResourceV1().ResourceClaims("default").Get(t.Context(), "edge", metav1.GetOptions{})
		if err != nil || len(c.Status.Devices) != 1 || !meta.IsStatusConditionTrue(c.Status.Devices[0].Conditions, offer.Refused) {
			t.Errorf("cpus %s: %+v %v: expected it refused", cpus, c.Status.Devices, err)
		}
		if limits := n.limits(); len(limits) > 0 != limited {
			t.Errorf("cpus %s: limits %v", cpus, limits)
		}
	}
}
