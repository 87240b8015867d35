package node

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/enforce/attached"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/kube/ask"
	"isolane.dev/isolane/kube/node/drift"
	"isolane.dev/isolane/kube/offer"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/solver"
)

// waitingPod returns a pod that waits to be bound, and its claim of all CPUs of a device.
func waitingPod(name, device string, cpus resource.Quantity) (*corev1.Pod, *resourceapi.ResourceClaim) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("pod-" + name)}}
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "lane", ResourceClaimName: &name}}
	p.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
		Claims: []corev1.ResourceClaim{{Name: "lane"}}, Requests: corev1.ResourceList{corev1.ResourceCPU: cpus}}}}
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: uidOf(name),
		ResourceVersion: "1"}}
	amounts := map[resourceapi.QualifiedName]resource.Quantity{offer.CPUs: cpus}
	c.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "lane", Exactly: &resourceapi.ExactDeviceRequest{
		Capacity: &resourceapi.CapacityRequirements{Requests: amounts}}}}
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: name, UID: p.UID}}
	c.Status.Allocation = &resourceapi.AllocationResult{NodeSelector: nodeSelector("n0"), Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{Request: "lane", Driver: offer.Driver, Pool: "n0", Device: device,
			ShareID: new(types.UID(name)), ConsumedCapacity: amounts, BindingConditions: []string{offer.Placed},
			BindingFailureConditions: []string{offer.Refused}}}}}
	return p, c
}

// uidOf returns the uid of a claim, made from its name.
func uidOf(name string) types.UID { return types.UID(uuid.NewSHA1(uuid.Nil, []byte(name)).String()) }

// nodeSelector returns what the scheduler writes into an allocation of devices of one node.
func nodeSelector(node string) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
		{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}}}
}

// testNode returns a Node in a cluster with these claims. Its lanes are recorded in a directory of the test.
func testNode(tb testing.TB, client kubernetes.Interface, dir string, claims ...*resourceapi.ResourceClaim) *Node {
	tb.Helper()
	h, err := host.Read(host.Live())
	if err != nil {
		tb.Fatal(err)
	}
	known := cache.NewStore(cache.MetaNamespaceKeyFunc)
	for _, c := range claims {
		if err = known.Add(c); err != nil {
			tb.Fatal(err)
		}
	}
	n := &Node{uncounted: true, claimStore: known, withheld: map[string]withheld{}, prepared: map[string]bool{}, cpuSetters: map[string]string{}, untouched: map[string]bool{}, keptOff: map[string]keptOff{},
		foreign: map[types.UID]bool{}, restored: map[types.UID]time.Time{}, drift: drift.New(lanes.Options{}), change: make(turn, 1), Config: Config{Name: "n0", Client: client, Log: slog.New(slog.DiscardHandler),
			Lanes: lanes.Options{Dir: dir, CPUs: h.Online(), MemoryNodes: h.MemoryNodes()}}}
	n.claims = cache.NewIntegerResourceVersionMutationCache(klog.Background(), known, nil, time.Minute, false)
	return n
}

func inForce(t *testing.T, dir string) *lanes.Lanes {
	t.Helper()
	l, err := lanes.Look(lanes.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestAnswer has two pods that want the same CPUs. The first gets them, though its lane is not in force
// anywhere yet: the promise is only in its claim, where a restarted node part reads it.
func TestAnswer(t *testing.T) {
	hosttest.Need(t, hosttest.CPUs(2))
	dir := filepath.Join(t.TempDir(), "isolane")
	a, err := testNode(t, nil, dir).account(inForce(t, dir), nil)
	if err != nil {
		t.Fatal(err)
	}
	devices, err := offer.Node{Host: a.host, Placed: a.placed, Pool: "n0"}.Devices()
	if err != nil || len(devices) == 0 {
		t.Fatal(devices, err)
	}
	all := devices[0].Capacity[offer.CPUs].Value
	firstPod, first := waitingPod("first", devices[0].Name, all)
	secondPod, second := waitingPod("second", devices[0].Name, all)
	_, elsewhere := waitingPod("elsewhere", devices[0].Name, all)
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
	answer := func(why string, claims ...*resourceapi.ResourceClaim) {
		n := testNode(t, client, dir, claims...)
		n.partition = offer.Cpusets
		if aerr := n.answer(t.Context(), inForce(t, dir), why); aerr != nil {
			t.Fatal(aerr)
		}
	}
	answer("", first, elsewhere)
	placed, err := ask.Answered(status("first"), "n0")
	if err != nil || len(placed) != 1 || int64(placed[0].CPUs.Len()) != all.Value() {
		t.Fatalf("%v %v %+v", placed, err, status("first").Status.Devices)
	}
	// An event of its pod says so too, with the kind of partition that the node makes.
	events, err := client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(events.Items) != 1 {
		t.Fatal(events, err)
	}
	says := fmt.Sprintf("claim first: CPUs %s, memory of NUMA node ", placed[0].CPUs)
	if e := events.Items[0]; e.InvolvedObject.Name != "first" || e.InvolvedObject.Kind != "Pod" || e.Reason != "Placed" ||
		!strings.HasPrefix(e.Message, says) || !strings.Contains(e.Message, ", cpuset (other containers are kept out by Isolane): ") ||
		!strings.Contains(e.Message, placed[0].Reasons[0]) {
		t.Errorf("%+v", e)
	}
	if got := status("elsewhere"); len(got.Status.Devices) > 0 {
		t.Errorf("the claim of another node was answered: %+v", got.Status.Devices)
	}
	answer("", status("first"), second)
	s := status("second").Status.Devices
	if len(s) != 1 || !meta.IsStatusConditionTrue(s[0].Conditions, offer.Refused) ||
		!strings.Contains(string(s[0].Data.Raw), `"blocking":[`) {
		t.Errorf("%+v", s)
	}
	// The node offers nothing any more: a pod that still waits gets the reason.
	answer("the kubelet is static", second)
	if c := meta.FindStatusCondition(status("second").Status.Devices[0].Conditions, offer.Refused); c == nil ||
		c.Message != "the kubelet is static" {
		t.Errorf("%+v", c)
	}
}

// A claim that a pod has from another one, which was deleted by force, is answered when the lane of that has gone.
func TestAnswerAfterForce(t *testing.T) {
	hosttest.Need(t, hosttest.CPUs(2))
	dir := filepath.Join(t.TempDir(), "isolane")
	pod, claim := waitingPod("again", "numa0", resource.MustParse("1"))
	client := fake.NewClientset(pod, claim)
	n := testNode(t, client, dir, claim)
	n.CDI = t.TempDir()
	if err := n.writeCDI(string(claim.UID), "pod-gone", nil); err != nil {
		t.Fatal(err)
	}
	recordLanes(t, dir, plan.Lane{Name: ask.Name(string(claim.UID), 0), CPUs: cpuset.Of(1), Spec: lane.Spec{CPUs: lane.CPUs{Count: 1}},
		Reasons: []string{}})
	for _, answered := range []bool{false, true} {
		err := n.answer(t.Context(), inForce(t, dir), "")
		c, gerr := client.ResourceV1().ResourceClaims("default").Get(t.Context(), "again", metav1.GetOptions{})
		if err != nil || gerr != nil || (len(c.Status.Devices) > 0) != answered {
			t.Fatalf("%v %v: %+v, expected an answer: %t", err, gerr, c, answered)
		}
		recordLanes(t, dir)
	}
}

// recordLanes records in a directory of the test that lanes are in force.
func recordLanes(tb testing.TB, dir string, placed ...plan.Lane) {
	tb.Helper()
	recordAttached(tb, dir, nil, placed...)
}

func recordAttached(tb testing.TB, dir string, with []attached.Workload, placed ...plan.Lane) {
	tb.Helper()
	recordAll(tb, dir, with, plan.Placement{APIVersion: plan.APIVersion, Kind: plan.Kind, Lanes: placed})
}

func recordAll(tb testing.TB, dir string, with []attached.Workload, p plan.Placement) {
	tb.Helper()
	boot, err := journal.BootID()
	if err != nil {
		tb.Fatal(err)
	}
	state, err := json.Marshal(enforce.Applied{APIVersion: plan.APIVersion, Kind: "AppliedLanes", BootID: boot, Attached: with,
		Placement: p})
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "lanes.json"), state, 0o600)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// BenchmarkCreateContainer creates a container without a lane beside eight lanes.
func BenchmarkCreateContainer(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "isolane")
	var placed []plan.Lane
	for i := range 8 {
		placed = append(placed, plan.Lane{Name: ask.Name(string(uidOf(fmt.Sprint(i))), 0), CPUs: cpuset.Of(i + 1),
			Spec: lane.Spec{CPUs: lane.CPUs{Count: 1}}, Reasons: []string{}})
	}
	recordLanes(b, dir, placed...)
	r := &runtime{Node: testNode(b, nil, dir)}
	r.partition = offer.Cpusets
	for b.Loop() {
		a, _, err := r.CreateContainer(b.Context(), &api.PodSandbox{}, &api.Container{})
		if err != nil || a.GetLinux().GetResources().GetCpu() == nil {
			b.Fatal(a, err)
		}
	}
}

// BenchmarkAnswer reads a machine of 256 CPUs with 60 lanes in force from a real directory, and answers a
// pod. It includes neither the API server nor the kernel's work to make the text of its files.
func BenchmarkAnswer(b *testing.B) {
	root, dir := hosttest.Large(b), filepath.Join(b.TempDir(), "isolane")
	h, err := host.Read(root)
	if err != nil {
		b.Fatal(err)
	}
	p := plan.Placement{}
	for i := range 60 {
		l := lane.Lane{Metadata: lane.Metadata{Name: ask.Name(string(uidOf(fmt.Sprint(i))), 0)},
			Spec: lane.Spec{CPUs: lane.CPUs{Count: 2, SMT: lane.Pack}}}
		if p, err = solver.Solve(h, p, []lane.Lane{l}); err != nil {
			b.Fatal(err)
		}
	}
	recordAll(b, dir, nil, p)
	pod, claim := waitingPod("edge", "numa3", resource.MustParse("2"))
	n := testNode(b, fake.NewClientset(pod, claim), dir, claim)
	before := cpuTime(b)
	for b.Loop() {
		n.claims = cache.NewIntegerResourceVersionMutationCache(klog.Background(), n.claimStore, nil, time.Minute, false)
		inner, lerr := enforce.Look(dir, root, enforce.Drivers{})
		if lerr == nil {
			lerr = n.answer(b.Context(), &lanes.Lanes{Lanes: inner}, "")
		}
		if lerr != nil {
			b.Fatal(lerr)
		}
	}
	b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/float64(b.N)/1e3, "cpu-ms/op")
	done, err := n.Client.ResourceV1().ResourceClaims("default").Get(b.Context(), "edge", metav1.GetOptions{})
	if err != nil || len(done.Status.Devices) != 1 || !meta.IsStatusConditionTrue(done.Status.Devices[0].Conditions, offer.Placed) {
		b.Fatal(err, done.Status.Devices)
	}
}

// cpuTime returns the CPU time that this process has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// A container gets the lane of its own pod's claim, and no other lane that it names.
func TestLaneOf(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "isolane")
	_, mine := waitingPod("mine", "numa0", resource.MustParse("1"))
	shared := mine.DeepCopy()
	shared.Status.ReservedFor = append(shared.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{UID: "pod-second"})
	lane0 := ask.Name(string(mine.UID), 0)
	placed := plan.Lane{Name: lane0, CPUs: cpuset.Of(1), Spec: lane.Spec{CPUs: lane.CPUs{Count: 1}}, Reasons: []string{}}
	part := plan.Lane{Name: lane0 + ".1", CPUs: cpuset.Of(2), Roles: map[string]cpuset.Set{"worker": cpuset.Of(2)},
		Spec: lane.Spec{CPUs: lane.CPUs{Count: 1}, Roles: map[string]int{"worker": 1}}, Reasons: []string{}}
	recordLanes(t, dir, placed, part)
	for name, c := range map[string]struct {
		claim   *resourceapi.ResourceClaim
		pod     string
		devices []string
		has     bool
		says    string // the error if it has no lane, else the lane
	}{
		"none":                                   {mine, "pod-mine", nil, false, ""},
		"another driver's":                       {mine, "pod-mine", []string{"nvidia.com/gpu=0"}, false, ""},
		"its own":                                {mine, "pod-mine", []string{"nvidia.com/gpu=0", "isolane.dev/lane=" + lane0}, true, lane0},
		"another pod's":                          {mine, "pod-thief", []string{"isolane.dev/lane=" + lane0}, false, "expected the claim of this pod alone"},
		"two":                                    {mine, "pod-mine", []string{"isolane.dev/lane=" + lane0, "isolane.dev/lane=" + ask.Name(string(mine.UID), 1)}, false, "expected one"},
		"not in force":                           {mine, "pod-mine", []string{"isolane.dev/lane=" + ask.Name(string(mine.UID), 1)}, false, "there is no lane"},
		"the host's":                             {mine, "pod-mine", []string{"isolane.dev/lane=edge"}, false, "expected the claim of this pod alone"},
		"first of two pods":                      {shared, "pod-mine", []string{"isolane.dev/lane=" + lane0}, true, lane0},
		"a role of its name":                     {mine, "pod-mine", []string{"isolane.dev/lane=" + lane0}, true, lane0 + ".1"},
		"the pod that was prepared for has gone": {mine, "pod-mine", []string{"isolane.dev/lane=" + lane0}, false, "a lane is one pod's"},
		"second of two pods":                     {shared, "pod-second", []string{"isolane.dev/lane=" + lane0}, false, "a lane is one pod's"},
	} {
		t.Run(name, func(t *testing.T) {
			n := testNode(t, nil, dir, c.claim)
			n.CDI = t.TempDir()
			l, lerr := lanes.Look(n.Lanes)
			if strings.HasPrefix(name, "the pod that was") && lerr == nil {
				lerr = n.writeCDI(string(mine.UID), "pod-first", nil)
			}
			if lerr != nil {
				t.Fatal(lerr)
			}
			container := &api.Container{Name: "main"}
			if strings.HasSuffix(c.says, ".1") {
				container.Name = "worker"
			}
			for _, d := range c.devices {
				container.CDIDevices = append(container.CDIDevices, &api.CDIDevice{Name: d})
			}
			p, has, lerr := (&runtime{Node: n}).laneOf(l, &api.PodSandbox{Uid: c.pod}, container)
			if has != c.has || has && p.Name != c.says || (lerr == nil) != (has || c.says == "") ||
				lerr != nil && !strings.Contains(lerr.Error(), c.says) {
				t.Errorf("%v %v %v", p, has, lerr)
			}
			if !has {
				return
			}
			a := &api.ContainerAdjustment{}
			want := fmt.Sprintf("ISOLANE_CPUS=%s ISOLANE_LANE=%s", p.CPUs, c.says)
			var env []string
			if lerr = adjustForPart(l, p.Name, lane0, a); lerr == nil {
				for _, e := range a.Env {
					env = append(env, e.Key+"="+e.Value)
				}
			}
			for _, e := range strings.Fields(want) {
				if !slices.Contains(env, e) {
					t.Errorf("%v %v: expected %s", env, lerr, e)
				}
			}
		})
	}
}

// TestCounted has pods that do not request their CPUs because the scheduler counts their claims as CPUs of
// the node. Their status says so a moment after the claim is reserved. If only that is missing, all pods
// together wait for it.
func TestCounted(t *testing.T) {
	hosttest.Need(t, hosttest.CPUs(2))
	dir := filepath.Join(t.TempDir(), "isolane")
	a, err := testNode(t, nil, dir).account(inForce(t, dir), nil)
	if err != nil {
		t.Fatal(err)
	}
	devices, err := offer.Node{Host: a.host, Placed: a.placed, Pool: "n0"}.Devices()
	if err != nil || len(devices) == 0 {
		t.Fatal(devices, err)
	}
	for name, c := range map[string]struct {
		uncounted, writes, throttles, placed bool
		takes                                time.Duration // for two pods
	}{
		"counts":                 {writes: true, placed: true, takes: 50 * time.Millisecond},
		"the scheduler does not": {takes: time.Second},
		"the API server drops":   {uncounted: true, writes: true},
		"refused anyhow":         {writes: true, throttles: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pod, claim := waitingPod("edge", devices[0].Name, resource.MustParse("1"))
				_, other := waitingPod("other", devices[0].Name, resource.MustParse("1"))
				pod.Spec.Containers[0].Resources.Requests = nil
				if c.throttles {
					pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}
				}
				client := fake.NewClientset(claim, other)
				began := time.Now()
				client.PrependReactor("get", "pods", func(a k8stesting.Action) (bool, apiruntime.Object, error) {
					is, of := pod.DeepCopy(), a.(k8stesting.GetAction).GetName()
					is.Name, is.UID, is.Spec.ResourceClaims[0].ResourceClaimName = of, types.UID("pod-"+of), &of
					if time.Since(began) > 0 && c.writes {
						is.Status.NodeAllocatableResourceClaimStatuses = []corev1.NodeAllocatableResourceClaimStatus{{ResourceClaimName: of,
							Mapping: []corev1.NodeAllocatableMappedResources{{Name: corev1.ResourceCPU, Quantity: new(resource.MustParse("1"))}}}}
					}
					return true, is, nil
				})
				n := testNode(t, client, dir, claim, other)
				n.uncounted = c.uncounted
				if err := n.answer(t.Context(), inForce(t, dir), ""); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took != c.takes {
					t.Errorf("took %s, expected %s", took, c.takes)
				}
				is, err := client.ResourceV1().ResourceClaims("default").Get(t.Context(), "edge", metav1.GetOptions{})
				if err != nil || len(is.Status.Devices) != 1 || meta.IsStatusConditionTrue(is.Status.Devices[0].Conditions, offer.Placed) != c.placed {
					t.Errorf("%v: %+v", err, is.Status.Devices)
				}
			})
		})
	}
}
