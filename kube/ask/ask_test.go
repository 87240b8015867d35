package ask_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/kube/ask"
	"isolane.dev/isolane/kube/offer"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
)

const uid = "6ab1f2d4-9a0e-4a3e-8f5b-0d2f5c1e7a90"

type capacity = map[resourceapi.QualifiedName]resource.Quantity

// request is a claim of one device, and what a test changes in it.
type request struct {
	device     string
	capacity   map[string]string
	counted    map[string]string // if the scheduler has counted something else
	parameters string            // of the claim; "": no config
	class      string            // of its class
}

func quantities(texts map[string]string) capacity {
	c := capacity{}
	for name, text := range texts {
		c[resourceapi.QualifiedName(name)] = resource.MustParse(text)
	}
	return c
}

func (r request) claim() *resourceapi.ResourceClaim {
	if r.device == "" {
		r.device = "numa0"
	}
	counted := quantities(r.capacity)
	if _, asked := counted[offer.Memory]; !asked { // without a request the scheduler counts all that the device has
		counted[offer.Memory] = resource.Quantity{}
	}
	for name, amount := range quantities(r.counted) {
		counted[name] = amount
	}
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "lane", Namespace: "default", UID: uid}}
	c.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "lane", Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: "lane.isolane.dev", Capacity: &resourceapi.CapacityRequirements{Requests: quantities(r.capacity)}}}}
	allocation := &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{Request: "lane", Driver: offer.Driver, Pool: "n0", Device: r.device,
			ShareID: new(types.UID("share")), ConsumedCapacity: counted}}}}
	for source, text := range map[resourceapi.AllocationConfigSource]string{
		resourceapi.AllocationConfigSourceClaim: r.parameters, resourceapi.AllocationConfigSourceClass: r.class} {
		if text != "" {
			allocation.Devices.Config = append(allocation.Devices.Config, resourceapi.DeviceAllocationConfiguration{
				Source: source, DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
					Driver: offer.Driver, Parameters: runtime.RawExtension{Raw: []byte(text)}}}})
		}
	}
	c.Status.Allocation = allocation
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "p", UID: "pod"}}
	return c
}

// spec returns parameters with a spec.
func spec(text string) string {
	return `{"apiVersion":"isolane.dev/v1alpha1","kind":"Lane","spec":` + text + `}`
}

// pod returns a pod with a container that uses the claim and requests CPUs.
func pod(cpu string, others ...corev1.Container) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "pod"}}
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "of-the-pod", ResourceClaimName: new("lane")}}
	p.Spec.Containers = append([]corev1.Container{user("main", cpu)}, others...)
	return p
}

func user(name, cpu string) corev1.Container {
	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{
		Claims:   []corev1.ResourceClaim{{Name: "of-the-pod"}},
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}}
}

// machine has two NUMA nodes, each of four cores with two threads.
var machine = hosttest.Machine{Packages: 2, CoresPerPackage: 4, ThreadsPerCore: 2}

// on returns that machine with a pool of hugepages.
func on(t *testing.T) host.Host {
	t.Helper()
	files := machine.FS()
	for file, text := range map[string]string{"nr_hugepages": "16", "free_hugepages": "16"} {
		files["sys/devices/system/node/node0/hugepages/hugepages-2048kB/"+file] = &fstest.MapFile{Data: []byte(text)}
	}
	h, err := host.Read(files)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func solve(t *testing.T, r request, p *corev1.Pod) (plan.Placement, error) {
	t.Helper()
	return ask.Solve(on(t), plan.Placement{}, "n0", p, []*resourceapi.ResourceClaim{r.claim()})
}

func TestPlaced(t *testing.T) {
	for name, c := range map[string]struct {
		request
		cpus, idle, roles string
	}{
		"amounts only":   {request{capacity: map[string]string{"cpus": "2"}}, "1,9", "", ""},
		"another node":   {request{device: "numa1", capacity: map[string]string{"cpus": "2"}}, "4,12", "", ""},
		"siblings idle":  {request{capacity: map[string]string{"cpus": "2"}, parameters: spec(`{"cpus":{"smt":"isolate"}}`)}, "1-2", "9-10", ""},
		"roles":          {request{capacity: map[string]string{"cpus": "2"}, parameters: spec(`{"roles":{"worker":2}}`)}, "1,9", "", "1,9"},
		"the same count": {request{capacity: map[string]string{"cpus": "2"}, parameters: spec(`{"cpus":{"count":2}}`)}, "1,9", "", ""},
		"whole cores":    {request{capacity: map[string]string{"cores": "1"}, parameters: spec(`{"cpus":{"smt":"pack"}}`)}, "1,9", "", ""},
		"of the class":   {request{capacity: map[string]string{"cpus": "1"}, class: spec(`{"cpus":{"smt":"isolate"}}`)}, "1", "9", ""},
		"claim before class": {request{capacity: map[string]string{"cpus": "1"}, class: spec(`{"cpus":{"smt":"isolate"}}`),
			parameters: spec(`{}`)}, "1", "", ""},
		"qualified": {request{capacity: map[string]string{"isolane.dev/cpus": "1"}}, "1", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := solve(t, c.request, pod("8"))
			if err != nil {
				t.Fatal(err)
			}
			l, ok := p.Lane(ask.Name(uid, 0))
			if !ok || l.CPUs.String() != c.cpus || l.Idle.String() != c.idle || l.Roles["worker"].String() != c.roles {
				t.Errorf("%+v", p.Lanes)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	two := map[string]string{"cpus": "2"}
	for name, c := range map[string]struct {
		request
		says string
	}{
		"no parameters of ours":  {request{capacity: two, parameters: `{"apiVersion":"v1","kind":"Pod"}`}, "apiVersion: expected isolane.dev/v1alpha1"},
		"null":                   {request{capacity: two, parameters: `null`}, "expected a document of kind Lane"},
		"a list":                 {request{capacity: two, parameters: `[]`}, "expected a document of kind Lane"},
		"a list as spec":         {request{capacity: two, parameters: spec(`[]`)}, "spec: expected"},
		"unknown field":          {request{capacity: two, parameters: spec(`{"cpus":{"smtt":"isolate"}}`)}, "spec.cpus.smtt: unknown field, did you mean smt?"},
		"wrong word":             {request{capacity: two, parameters: spec(`{"cpus":{"smt":"none"}}`)}, "spec.cpus.smt: expected"},
		"a name":                 {request{capacity: two, parameters: `{"apiVersion":"isolane.dev/v1alpha1","kind":"Lane","metadata":{"name":"a"}}`}, "metadata: expected none"},
		"count twice":            {request{capacity: two, parameters: spec(`{"cpus":{"count":3}}`)}, "spec.cpus.count: 3 contradicts capacity.requests, which says 2"},
		"a field twice":          {request{capacity: two, parameters: spec(`{"cpus":{"count":5,"count":2}}`)}, "parameters: spec.cpus.count: is given a second time"},
		"a deep field twice":     {request{capacity: two, parameters: spec(`{"roles":{"worker":1,"worker":2}}`)}, "parameters: spec.roles.worker: is given a second time"},
		"two specs":              {request{capacity: two, parameters: `{"apiVersion":"isolane.dev/v1alpha1","kind":"Lane","spec":{"cpus":{"smt":"isolate"}},"spec":{}}`}, "parameters: spec: is given a second time"},
		"cpus twice":             {request{capacity: two, parameters: spec(`{"cpus":{"smt":"isolate"},"cpus":{}}`)}, "parameters: spec.cpus: is given a second time"},
		"half a CPU":             {request{capacity: map[string]string{"cpus": "500m"}}, "capacity.requests.cpus: expected a whole number, 0 or more, found 500m"},
		"negative":               {request{capacity: map[string]string{"cpus": "-1"}}, "capacity.requests.cpus: expected a whole number, 0 or more, found -1"},
		"none":                   {request{}, "capacity.requests.cpus: missing"},
		"zero":                   {request{capacity: map[string]string{"cpus": "0"}}, "capacity.requests.cpus: missing"},
		"counted otherwise":      {request{capacity: two, counted: map[string]string{"cpus": "1"}}, "the scheduler has counted 1 for it, expected 2"},
		"too many":               {request{capacity: map[string]string{"cpus": "9"}}, "; cheapest change: capacity.requests.cpus: 6"},
		"too many of a kind":     {request{capacity: two, parameters: spec(`{"cpus":{"kind":"efficiency"}}`)}, "; cheapest change: spec.preferred: {kind: 1}"},
		"too much memory":        {request{capacity: map[string]string{"cpus": "2", "memory": "9Ti"}}, "; capacity.requests.memory: 9Ti (32736Mi are free, of which 512Mi stay housekeeping's); cheapest change: capacity.requests.memory: 16352Mi"},
		"too many hugepages":     {request{capacity: map[string]string{"cpus": "2", "hugepages2Mi": "9Ti"}}, "; capacity.requests of hugepages: 9Ti of 2Mi, where pools have 32Mi (32736Mi are free, of which 512Mi stay housekeeping's); cheapest change: capacity.requests.hugepages2Mi: 16Gi"},
		"too many cores":         {request{capacity: map[string]string{"cores": "4"}, parameters: spec(`{"cpus":{"smt":"pack"}}`)}, "; cheapest change: capacity.requests.cpus: 6, in place of cores"},
		"far too many":           {request{capacity: map[string]string{"cpus": "9E"}}, ": capacity.requests.cpus: expected"},
		"unknown capacity":       {request{capacity: map[string]string{"cpu": "2"}}, "capacity.requests.cpu: unknown: expected cpus"},
		"page size":              {request{capacity: map[string]string{"cpus": "1", "hugepages16Mi": "16Mi"}}, ": capacity.requests.hugepages16Mi: the machine has no"},
		"part of a page":         {request{capacity: map[string]string{"cpus": "1", "hugepages2Mi": "3Mi"}}, ": capacity.requests.hugepages2Mi: expected a multiple of the page"},
		"hugepages twice":        {request{capacity: map[string]string{"cpus": "1", "hugepages2Mi": "4Mi"}, parameters: spec(`{"memory":{"hugepages":{"2Mi":"2Mi"}}}`)}, "spec.memory.hugepages.2Mi: 2Mi contradicts capacity.requests.hugepages2Mi, which says 4Mi"},
		"memory not counted":     {request{capacity: two, parameters: spec(`{"memory":{"size":"1Gi"}}`)}, "spec.memory.size: 1Gi contradicts capacity.requests.memory, which says 0"},
		"cores of single CPUs":   {request{capacity: map[string]string{"cores": "1"}}, "capacity.requests.cores: expected spec.cpus.smt"},
		"cores and other CPUs":   {request{capacity: map[string]string{"cores": "1", "cpus": "1"}, parameters: spec(`{"cpus":{"smt":"pack"}}`)}, "are 2 CPUs, and capacity.requests.cpus says 1"},
		"a path":                 {request{capacity: two, parameters: spec(`{"network":{"path":"bridge"}}`)}, "spec.network: expected none"},
		"a cgroup":               {request{capacity: two, parameters: spec(`{"cgroup":{"path":"system.slice"}}`)}, "spec.cgroup: expected none"},
		"chosen CPUs":            {request{capacity: two, parameters: spec(`{"cpus":{"list":"0-1"}}`)}, "spec.cpus.list: expected none"},
		"another NUMA node":      {request{capacity: two, parameters: spec(`{"near":{"numaNode":1}}`)}, "spec.near: expected none"},
		"no such device":         {request{device: "gpu0", capacity: two}, `device "gpu0": expected numa`},
		"no such node":           {request{device: "numa7", capacity: two}, "numa"},
		"more roles than CPUs":   {request{capacity: two, parameters: spec(`{"roles":{"worker":3}}`)}, "spec.roles: expected at most 2 CPUs"},
		"no such kind":           {request{capacity: two, parameters: spec(`{"cpus":{"kind":"efficiency"}}`)}, "kind"},
		"more than the L3 has":   {request{capacity: map[string]string{"cpus": "7"}, parameters: spec(`{"cpus":{"l3":"one"}}`)}, "CPUs"},
		"boot CPU":               {request{capacity: two, parameters: spec(`{"cpus":{"boot":true}}`)}, "spec.cpus.boot: expected none"},
		"shared CPUs":            {request{capacity: two, parameters: spec(`{"cpus":{"share":2}}`)}, "spec.cpus.share: expected none"},
		"priority without class": {request{capacity: two, parameters: spec(`{"scheduling":{"priority":3}}`)}, "spec.scheduling.priority"},
		"counted in part":        {request{capacity: map[string]string{"cpus": "2", "hugepages2Mi": "2Mi"}, counted: map[string]string{"hugepages2Mi": "0"}}, "capacity.requests.hugepages2Mi: the scheduler has counted 0 for it, expected 2Mi"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := solve(t, c.request, pod("8"))
			r, is := errors.AsType[*plan.Refusal](err)
			if !is || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("%v: expected %q", err, c.says)
			}
			if r.Lane != ask.Name(uid, 0) {
				t.Errorf("lane %q", r.Lane)
			}
		})
	}
}

// No lanes are given if the scheduler counts no amounts, as when the feature is off.
func TestNotCounted(t *testing.T) {
	for name, drop := range map[string]func(*resourceapi.ResourceClaim){
		"by an old scheduler": func(*resourceapi.ResourceClaim) {},
		"by an old API server": func(c *resourceapi.ResourceClaim) {
			c.Spec.Devices.Requests[0].Exactly.Capacity = nil
			c.Status.Allocation.Devices.Results[0].ShareID = nil
		},
	} {
		c := request{capacity: map[string]string{"cpus": "2"}}.claim()
		c.Status.Allocation.Devices.Results[0].ConsumedCapacity = nil
		drop(c)
		p, err := ask.Solve(on(t), plan.Placement{}, "n0", pod("8"), []*resourceapi.ResourceClaim{c})
		if _, is := errors.AsType[*plan.Refusal](err); !is || !strings.Contains(err.Error(), "the scheduler has counted no amounts") {
			t.Errorf("%s: %v %v", name, p.Lanes, err)
		}
	}
}

// A lane is a plain cpuset in the container's cgroup if the kernel makes no partition of it.
func TestOlderKernel(t *testing.T) {
	c := request{capacity: map[string]string{"cpus": "2"}}.claim()
	top := "/sys/fs/cgroup"
	for release, want := range map[string]string{"6.1.0-40-amd64": lane.Member, "6.7.0": ""} {
		h := on(t)
		h.Kernel.Release, h.Kernel.Cgroup.Unified = release, &top
		p, err := ask.Solve(h, plan.Placement{}, "n0", pod("2"), []*resourceapi.ResourceClaim{c})
		if err != nil || p.Lanes[0].Spec.Cgroup.Partition != want {
			t.Errorf("%s: %v %+v", release, err, p.Lanes)
		}
		if kind := map[string]string{lane.Member: offer.Cpusets, "": offer.Remote}[want]; offer.Partition(h) != kind {
			t.Errorf("%s: %s", release, offer.Partition(h))
		}
	}
}

// An answer is read back, even by a program that was restarted, and what somebody else has written into the
// status gives nobody a CPU of another claim.
func TestStatus(t *testing.T) {
	r := request{capacity: map[string]string{"cpus": "2", "hugepages2Mi": "4Mi"}, parameters: spec(`{"roles":{"main":1,"worker":1}}`)}
	c := r.claim()
	foreign := resourceapi.AllocatedDeviceStatus{Driver: "nic.example.com", Pool: "n0", Device: "eth0"}
	c.Status.Devices = []resourceapi.AllocatedDeviceStatus{foreign}
	huge := pod("2")
	huge.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"hugepages-2Mi": resource.MustParse("4Mi")}
	p, err := solve(t, r, huge)
	if err != nil {
		t.Fatal(err)
	}
	if c.Status.Devices, err = ask.Status(c, "n0", offer.Remote, p, nil, now()); err != nil {
		t.Fatal(err)
	}
	if len(c.Status.Devices) != 2 || c.Status.Devices[0].Driver != foreign.Driver ||
		!meta.IsStatusConditionTrue(c.Status.Devices[1].Conditions, offer.Placed) ||
		meta.IsStatusConditionTrue(c.Status.Devices[1].Conditions, offer.Refused) ||
		!strings.HasPrefix(c.Status.Devices[1].Conditions[0].Message, "CPUs 1,9, memory of NUMA node 0, 2 hugepages of 2Mi on node 0, partition remote (the kernel keeps others off): ") {
		t.Fatalf("%+v", c.Status.Devices)
	}
	if of := ask.AnsweredFor(c, "n0"); of != "pod" || ask.AnsweredFor(c, "n1") != "" {
		t.Error(of)
	}
	answered, err := ask.Answered(c, "n0")
	if err != nil || len(answered) != 1 || answered[0].CPUs.String() != "1,9" {
		t.Fatal(answered, err)
	}
	h := on(t)
	again, err := ask.Solve(h, plan.Placement{}, "n0", huge, []*resourceapi.ResourceClaim{c})
	if err != nil || again.Lanes[0].CPUs != answered[0].CPUs || again.Lanes[0].Roles["worker"] != answered[0].Roles["worker"] {
		t.Fatal(again, err)
	}
	// Now the CPUs have an owner.
	other := request{capacity: map[string]string{"cpus": "2"}}.claim()
	other.UID = uidOf(1)
	taken, err := ask.Solve(h, plan.Placement{}, "n0", pod("2"), []*resourceapi.ResourceClaim{other})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = ask.Solve(h, taken, "n0", huge, []*resourceapi.ResourceClaim{c}); err == nil {
		t.Error("CPUs of another lane were given")
	}
	for _, forged := range []string{`{}`, `[]`, `{"kind":"Placement"}`,
		strings.Replace(string(c.Status.Devices[1].Data.Raw), uid, "another", 1),
		strings.Replace(string(c.Status.Devices[1].Data.Raw), `"cpus":"1,9"`, `"cpus":"0-99"`, 1),
	} {
		f := c.DeepCopy()
		f.Status.Devices[1].Data.Raw = []byte(forged)
		if l, aerr := ask.Answered(f, "n0"); aerr == nil {
			t.Errorf("%s: %v", forged, l)
		}
	}
	refused, err := ask.Status(c, "n0", offer.Remote, plan.Placement{}, errors.New("no"), now())
	if err != nil || !meta.IsStatusConditionTrue(refused[1].Conditions, offer.Refused) ||
		meta.IsStatusConditionTrue(refused[1].Conditions, offer.Placed) || len(refused[1].Data.Raw) == 0 {
		t.Fatal(refused, err)
	}
}

// uidOf returns the uid of another claim.
func uidOf(i int) types.UID { return types.UID(fmt.Sprintf("%s%012d", uid[:24], i)) }

func now() metav1.Time { return metav1.NewTime(time.Unix(1, 0)) }

func TestNames(t *testing.T) {
	for name, want := range map[string]string{ask.Name(uid, 0): uid, ask.Name(uid, 12): uid, ask.Name(uid, 0) + ".2": uid, "edge": "", "kube-": "", "kube-x": "",
		"kube-a-0": "", "kube-ovn-pmd": "", "kube-" + uid: "", "kube-" + uid + "-pmd": "", "kube-" + uid + "0-1": ""} {
		if got := ask.Claim(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// BenchmarkSolve solves a pod on a machine of 256 CPUs with 60 lanes.
func BenchmarkSolve(b *testing.B) {
	h := hosttest.Machine{Packages: 2, CoresPerPackage: 64, ThreadsPerCore: 2, NodesPerPackage: 4, CoresPerL3: 8}.Host(b)
	placed := plan.Placement{}
	for i := range 60 {
		r := request{device: fmt.Sprint("numa", i%8), capacity: map[string]string{"cpus": "2"}}
		c := r.claim()
		c.UID = uidOf(i)
		var err error
		if placed, err = ask.Solve(h, placed, "n0", pod("8"), []*resourceapi.ResourceClaim{c}); err != nil {
			b.Fatal(err)
		}
	}
	r := request{device: "numa3", capacity: map[string]string{"cpus": "3"}, parameters: spec(`{"cpus":{"smt":"isolate","l3":"one"}}`)}
	for b.Loop() {
		if _, err := ask.Solve(h, placed, "n0", pod("8"), []*resourceapi.ResourceClaim{r.claim()}); err != nil {
			b.Fatal(err)
		}
	}
}

// A status written by somebody else gives a claim no CPUs that it could not have had.
func TestForgedStatus(t *testing.T) {
	isolate := request{capacity: map[string]string{"cpus": "2"}, parameters: spec(`{"cpus":{"smt":"isolate"}}`)}
	c := isolate.claim()
	p, err := solve(t, isolate, pod("4"))
	if err == nil {
		c.Status.Devices, err = ask.Status(c, "n0", offer.Remote, p, nil, now())
	}
	if err != nil || p.Lanes[0].CPUs.String() != "1-2" {
		t.Fatal(p, err)
	}
	written := string(c.Status.Devices[0].Data.Raw)
	for name, f := range map[string]struct{ cpus, gets, says string }{
		"as it was":           {"1-2", "1-2", ""},
		"others that fit":     {"2-3", "2-3", ""},
		"more":                {"1-3", "", "expected 2 CPUs, as spec.cpus.count says"},
		"more, and the count": {"1-3\",\"forged", "1-2", ""},
		"fewer":               {"1", "", "expected 2 CPUs, as spec.cpus.count says"},
		"siblings":            {"1,9", "", "idle: 9 are among its cpus"},
		"the boot core":       {"0-1", "", "0 are of the boot core"},
		"another node":        {"4-5", "", "spec.near: node 0"},
		"two nodes":           {"3-4", "", "spec.cpus.numa: all on one node"},
		"not there":           {"98-99", "", "98-99 are offline or not allowed"},
		"none":                {"", "", "expected 2 CPUs, as spec.cpus.count says"},
		"no list":             {"one", "", "is not a CPU number"},
	} {
		t.Run(name, func(t *testing.T) {
			forged := c.DeepCopy()
			cpus, _, count := strings.Cut(f.cpus, `"`)
			text := strings.Replace(written, `"cpus":"1-2"`, `"cpus":"`+cpus+`"`, 1)
			if count {
				text = strings.Replace(text, `"count":2`, `"count":3`, 1)
				text = strings.Replace(text, `"idle":"9-10"`, `"idle":"9-11"`, 1)
			}
			if text == written && f.cpus != "1-2" {
				t.Fatal(written)
			}
			forged.Status.Devices[0].Data.Raw = []byte(text)
			got, err := ask.Solve(on(t), plan.Placement{}, "n0", pod("4"), []*resourceapi.ResourceClaim{forged})
			if f.says != "" {
				if err == nil || !strings.Contains(err.Error(), f.says) {
					t.Errorf("%v %v: expected %q", got.Lanes, err, f.says)
				}
				return
			}
			if err != nil || got.Lanes[0].CPUs.String() != f.gets || got.Lanes[0].Idle.Len() != 2 {
				t.Errorf("%v %v", got.Lanes, err)
			}
		})
	}
}
