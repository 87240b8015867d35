package pods

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/quantity"
)

// reserve reserves a lane on an invented node with these devices, whose isolane-kube refuses some of them.
// asked has the devices in order, left the number of objects that remain.
func reserve(t *testing.T, devices []resourceapi.Device, refuses ...string) (l plan.Lane, asked []string, left int, err error) {
	t.Helper()
	p := Pod{Name: "default.web", Lanes: lanes.Options{Dir: filepath.Join(t.TempDir(), "none")},
		Spec: api.InstanceSpec{Lane: json.RawMessage(`{"cpus":{"count":1}}`), Tenant: "default",
			Workload: api.Workload{Image: "example.test/web:1"}}}
	client := fake.NewClientset(&resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "one"},
		Spec: resourceapi.ResourceSliceSpec{Driver: driver, NodeName: new("n0"), Pool: resourceapi.ResourcePool{Name: "n0"}, Devices: devices}})
	client.PrependReactor("update", "resourceclaims", func(a clienttesting.Action) (bool, runtime.Object, error) {
		c := a.(clienttesting.UpdateAction).GetObject().(*resourceapi.ResourceClaim).DeepCopy()
		r := c.Status.Allocation.Devices.Results[0]
		asked = append(asked, r.Device)
		if of := c.Status.ReservedFor[0].Name; of != "default.web.n0" || r.ShareID == nil || c.Status.Allocation.Devices.Config[0].Opaque == nil {
			t.Errorf("%+v", c.Status)
		}
		said, document := placed, any(answerFor(t, p, "kube-"+string(c.UID)+"-0"))
		if slices.Contains(refuses, r.Device) {
			said, document = refused, plan.Refusal{APIVersion: plan.APIVersion, Kind: plan.KindOfRefusal, Lane: "kube-1-0", Blocking: []string{"no room"}}
		}
		data, jerr := json.Marshal(document)
		if jerr != nil {
			t.Fatal(jerr)
		}
		c.Status.Devices = []resourceapi.AllocatedDeviceStatus{{Driver: driver, Pool: r.Pool, Device: r.Device, Data: &runtime.RawExtension{Raw: data},
			Conditions: []metav1.Condition{{Type: said, Status: metav1.ConditionTrue}}}}
		return true, c, client.Tracker().Update(resourceapi.SchemeGroupVersion.WithResource("resourceclaims"), c, "isolane-hub")
	})
	p.Cluster = Cluster{Client: client, Node: "n0", Namespace: "isolane-hub"}
	l, err = p.Reserve(t.Context())
	pods, perr := client.CoreV1().Pods("isolane-hub").List(t.Context(), metav1.ListOptions{})
	claims, cerr := client.ResourceV1().ResourceClaims("isolane-hub").List(t.Context(), metav1.ListOptions{})
	if perr = errors.Join(perr, cerr); perr != nil {
		t.Fatal(perr)
	}
	for _, pod := range pods.Items {
		c := pod.Spec.Containers[0]
		if pod.Spec.SchedulerName != scheduler || c.ImagePullPolicy != corev1.PullNever || c.Resources.Requests.Cpu().Value() != 1 ||
			pod.Spec.Hostname != "default-web" || *pod.Spec.ResourceClaims[0].ResourceClaimName != pod.Name {
			t.Errorf("%+v", pod.Spec)
		}
	}
	return l, asked, len(pods.Items) + len(claims.Items), err
}

// The container asks for the memory of its lane, and may use its hugepages.
func TestManifestMemory(t *testing.T) {
	want := lane.Lane{Spec: lane.Spec{Memory: lane.Memory{Size: 1 << 30, Hugepages: map[string]quantity.Bytes{"2Mi": 4 << 20}}}}
	of := Pod{Name: "default.web"}.manifest(want, 1).Spec.Containers[0].Resources
	if pages := of.Limits["hugepages-2Mi"]; len(of.Limits) != 1 || pages.Value() != 4<<20 || of.Requests.Memory().Value() != 1<<30 {
		t.Errorf("%v", of)
	}
}

// answerFor returns what isolane-kube says if a lane has room: here by this machine's own planner.
func answerFor(t *testing.T, p Pod, name string) plan.Placement {
	t.Helper()
	want, err := api.Lane(name, p.Spec.Lane)
	if err != nil {
		t.Fatal(err)
	}
	now, err := lanes.Look(p.Lanes)
	if err != nil {
		t.Fatal(err)
	}
	would, _, err := now.Want([]lane.Lane{want}, false)
	if err != nil {
		t.Fatal(err)
	}
	return would
}

// The NUMA node on which the planner would place the lane is asked first, another one if isolane-kube refuses
// that, and what was made for a refusal is removed.
func TestReserve(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.CPUs(2))
	device := func(name string) resourceapi.Device {
		return resourceapi.Device{Name: name, BindingConditions: []string{placed}, BindingFailureConditions: []string{refused}}
	}
	both := []resourceapi.Device{device("numa1"), device("numa0")}
	for _, c := range []struct {
		name    string
		devices []resourceapi.Device
		refuses []string
		asked   string
		left    int
		err     string
	}{
		{"there is room", both, nil, "numa0", 2, ""},
		{"on the other node", both, []string{"numa0"}, "numa0 numa1", 2, ""},
		{"nowhere", both, []string{"numa0", "numa1"}, "numa0 numa1", 0, "lane default.web refused: no room"},
		{"nothing is offered", nil, nil, "", 0, "node n0 offers no lanes: expected isolane-kube there"},
		{"nobody answers", []resourceapi.Device{{Name: "numa0"}}, nil, "", 0, "isolane-kube of node n0 answers no claims: expected it without --answer=false"},
	} {
		l, asked, left, err := reserve(t, c.devices, c.refuses...)
		if strings.Join(asked, " ") != c.asked || left != c.left {
			t.Errorf("%s: asked %v, left %d", c.name, asked, left)
		}
		if c.err == "" && (err != nil || l.Name != "default.web" || l.CPUs.Len() != 1) || c.err != "" && (err == nil || err.Error() != c.err) {
			t.Errorf("%s: %v, %v", c.name, l.Name, err)
		}
	}
}

// A pod runs once its container has started. Before that the answer says that it has not.
func TestRuns(t *testing.T) {
	waits := func(reason, message string) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}
	}
	for _, c := range []struct {
		name   string
		status corev1.PodStatus
		is     bool
		says   string
		notYet bool
	}{
		{"the kubelet is down", corev1.PodStatus{Phase: corev1.PodPending}, true, "the kubelet of node n0 has said nothing of it", true},
		{"its claim is not prepared", corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: waits("ContainerCreating", "")}, true,
			"pod default.web.n0 has not started: ContainerCreating; kubectl describe pod --namespace isolane-hub default.web.n0", true},
		{"no image", corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: waits("ErrImageNeverPull", "not present")}, true, "not present", false},
		{"it runs", corev1.PodStatus{Phase: corev1.PodRunning}, true, "", false},
		{"it has ended", corev1.PodStatus{Phase: corev1.PodFailed}, false, "", false},
	} {
		client := fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "default.web.n0", Namespace: "isolane-hub"},
			Spec: corev1.PodSpec{NodeName: "n0"}, Status: c.status})
		p := Pod{Name: "default.web", Cluster: Cluster{Client: client, Node: "n0", Namespace: "isolane-hub"}}
		is, err := p.Runs(t.Context())
		_, notYet := errors.AsType[api.NotYet](err)
		if is != c.is || notYet != c.notYet || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, %v", c.name, is, err)
		}
	}
}
