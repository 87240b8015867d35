package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes/fake"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/kube/ask"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
)

// A resized pod keeps enough for its lanes and its other containers.
func TestUpdatePodSandbox(t *testing.T) {
	pod, claim := waitingPod("edge", "numa0", resource.MustParse("2"))
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "beside", Resources: corev1.ResourceRequirements{
		Claims: []corev1.ResourceClaim{{Name: "card"}}, // the claim is of another driver
		Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}}})
	n := testNode(t, fake.NewClientset(pod), filepath.Join(t.TempDir(), "isolane"), claim)
	recordLanes(t, n.Lanes.Dir, plan.Lane{Name: ask.Name(string(claim.UID), 0), CPUs: cpuset.Of(1, 2),
		Spec: lane.Spec{CPUs: lane.CPUs{Count: 2}}, Reasons: []string{}})
	r := &runtime{Node: n, stub: impatient{}}
	for _, c := range []struct {
		uid   string
		quota int64
		says  string
	}{
		{string(pod.UID), 200000, "resources.limits.cpu: expected none, or 2500m or more: 2 would throttle the lane"},
		{string(pod.UID), 250000, ""}, {string(pod.UID), -1, ""}, {"another", 1000, ""},
	} {
		err := r.UpdatePodSandbox(t.Context(), &api.PodSandbox{Namespace: pod.Namespace, Name: pod.Name, Uid: c.uid}, nil,
			&api.LinuxResources{Cpu: &api.LinuxCPU{Quota: &api.OptionalInt64{Value: c.quota}, Period: &api.OptionalUInt64{Value: 100000}}})
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// A node whose record of lanes cannot be read updates its other pods, and none with a lane.
func TestUpdateUnread(t *testing.T) {
	_, claim := waitingPod("edge", "numa0", resource.MustParse("2"))
	n := testNode(t, nil, filepath.Join(t.TempDir(), "isolane"), claim)
	recordLanes(t, n.Lanes.Dir)
	if err := os.WriteFile(filepath.Join(n.Lanes.Dir, "lanes.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &runtime{Node: n, stub: impatient{}}
	quota := &api.LinuxResources{Cpu: &api.LinuxCPU{Quota: &api.OptionalInt64{Value: 1000}, Period: &api.OptionalUInt64{Value: 100000}}}
	device := &api.CDIDevice{Name: deviceID(ask.Name(string(claim.UID), 0))}
	for _, c := range []struct {
		pod     string
		devices []*api.CDIDevice
		fails   bool
	}{{"pod-other", nil, false}, {"pod-edge", []*api.CDIDevice{device}, true}} {
		pod := &api.PodSandbox{Uid: c.pod}
		_, err := r.UpdateContainer(t.Context(), pod, &api.Container{CDIDevices: c.devices}, quota)
		if perr := r.UpdatePodSandbox(t.Context(), pod, nil, quota); (err != nil) != c.fails || (perr != nil) != c.fails {
			t.Errorf("%s: %v, %v", c.pod, err, perr)
		}
	}
}
