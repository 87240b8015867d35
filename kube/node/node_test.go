package node

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	cdi "tags.cncf.io/container-device-interface/specs-go"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/kube/ask"
	"isolane.dev/isolane/kube/offer"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
)

func TestCgroupOf(t *testing.T) {
	for path, want := range map[string]string{
		"/kubepods/burstable/pod1/c1":                       "kubepods/burstable/pod1/c1",
		"kubepods-burstable-pod1_2.slice:cri-containerd:c1": "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/cri-containerd-c1.scope",
		"kubelet-kubepods-pod1_2.slice:cri-containerd:c1":   "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod1_2.slice/cri-containerd-c1.scope",
		"": "", ":a:b": "", "a.slice:b": "",
	} {
		if got := cgroupOf(path); got != want {
			t.Errorf("%s: %s", path, got)
		}
	}
}

// The file of a claim is replaced atomically and is the only one: a second file that the runtime reads would
// be a second owner.
func TestCDI(t *testing.T) {
	n := &Node{Config: Config{CDI: filepath.Join(t.TempDir(), "cdi"), Kubelet: "/kubelet"}}
	uid := string(uidOf("uid"))
	parts := []plan.Lane{{Name: "kube-" + uid + "-0", CPUs: cpuset.MustParse("2-3"), MemoryNodes: cpuset.Of(0)},
		{Name: "kube-" + uid + "-0.1", CPUs: cpuset.Of(4), MemoryNodes: cpuset.Of(1), Roles: map[string]cpuset.Set{"worker": cpuset.Of(4)}}}
	for range 2 {
		if err := n.writeCDI(uid, "pod", []edit{{lane: parts[0].Name, parts: parts}}); err != nil {
			t.Fatal(err)
		}
	}
	files, err := os.ReadDir(n.CDI)
	if err != nil || len(files) != 1 || files[0].Name() != "isolane.dev-lane-"+uid+".json" {
		t.Fatal(files, err)
	}
	data, err := os.ReadFile(n.cdiFile(uid))
	if err != nil {
		t.Fatal(err)
	}
	if pod, perr := n.preparedFor(uid); perr != nil || pod != "pod" {
		t.Error(pod, perr)
	}
	var spec cdi.Spec
	if err = json.Unmarshal(data, &spec); err != nil {
		t.Fatal(err)
	}
	d := spec.Devices[0]
	if name, ours := laneOfDevice(spec.Kind + "=" + d.Name); !ours || name != parts[0].Name {
		t.Error(name)
	}
	if h := d.ContainerEdits.Hooks[0]; h.HookName != "startContainer" || strings.Join(h.Args[1:], " ") != parts[0].Name+" Memory=0-1 2-3 worker=4" ||
		d.ContainerEdits.Mounts[0].ContainerPath != h.Path {
		t.Errorf("%+v", h)
	}
	for range 2 {
		if err = n.removeCDI(uid); err != nil {
			t.Fatal(err)
		}
		if pod, perr := n.preparedFor(uid); perr != nil || pod != "" {
			t.Error(pod, perr)
		}
	}
	if err = n.removeCDI("../../etc/passwd"); err != nil || !strings.HasPrefix(n.cdiFile("../../x"), n.CDI) {
		t.Error(n.cdiFile("../../x"), err)
	}
}

// The owner of a lane is in the claim's file before the lane is in force, so that another pod does not get
// the lane after a kill, nor after an older version that recorded no owner.
func TestOwner(t *testing.T) {
	_, claim := waitingPod("edge", "numa0", resource.MustParse("1"))
	n := testNode(t, nil, filepath.Join(t.TempDir(), "isolane"), claim)
	n.CDI = t.TempDir()
	owner := func(uid types.UID, want string) {
		t.Helper()
		claim.Status.ReservedFor[0].UID = uid
		got, err := n.owner(inForce(t, n.Lanes.Dir), claim)
		if err != nil || got != want {
			t.Errorf("%s %v: expected %s", got, err, want)
		}
	}
	owner("gone", "gone") // before its lane is in force
	owner("first", "first")
	recordLanes(t, n.Lanes.Dir, plan.Lane{Name: ask.Name(string(claim.UID), 0), CPUs: cpuset.Of(1),
		Spec: lane.Spec{CPUs: lane.CPUs{Count: 1}}, Reasons: []string{}})
	owner("second", "first")
	if err := n.saveCDI(string(claim.UID), cdi.Spec{Kind: cdiKind, Devices: []cdi.Device{{Name: "lane"}}}); err != nil {
		t.Fatal(err)
	}
	claim.Status.ReservedFor[0].UID = "first"
	n.recordFirstPods(t.Context())
	owner("second", "first")
	if spec, err := n.loadCDI(string(claim.UID)); err != nil || len(spec.Devices) != 1 {
		t.Errorf("%+v %v: expected the rest as it was", spec, err)
	}
}

// The next start removes files that a kill has left, and no other files.
func TestTidy(t *testing.T) {
	_, mine := waitingPod("mine", "numa0", resource.MustParse("1"))
	dir := filepath.Join(t.TempDir(), "isolane")
	n := testNode(t, nil, dir, mine)
	n.CDI, n.Kubelet = t.TempDir(), t.TempDir()
	hooks := filepath.Dir(n.hookPath())
	if err := os.MkdirAll(hooks, 0o700); err != nil {
		t.Fatal(err)
	}
	stay := []string{n.cdiFile(string(mine.UID)), n.cdiFile(string(uidOf("in-force"))), filepath.Join(n.CDI, "nvidia.com-gpu-1.json"), n.hookPath()}
	for _, name := range append([]string{n.cdiFile("gone"), filepath.Join(n.CDI, ".isolane-12"), filepath.Join(hooks, ".isolane-3")}, stay...) {
		if err := os.WriteFile(name, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l := inForce(t, dir)
	l.Placement.Lanes = []plan.Lane{{Name: ask.Name(string(uidOf("in-force")), 0)}}
	for range 2 {
		if err := n.removeStaleCDI(l); err != nil {
			t.Fatal(err)
		}
	}
	var left []string
	for _, dir := range []string{n.CDI, hooks} {
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			left = append(left, filepath.Join(dir, f.Name()))
		}
	}
	slices.Sort(left)
	slices.Sort(stay)
	if !slices.Equal(left, stay) {
		t.Errorf("%v, expected %v", left, stay)
	}
}

// A quota below the lane's CPUs is refused, and no other.
func TestThrottles(t *testing.T) {
	of := func(quota int64, period uint64) *api.LinuxResources {
		return &api.LinuxResources{Cpu: &api.LinuxCPU{Quota: &api.OptionalInt64{Value: quota}, Period: &api.OptionalUInt64{Value: period}}}
	}
	for _, to := range []*api.LinuxResources{nil, {}, of(-1, 100000), of(0, 100000), of(200000, 100000), of(5, 0)} {
		if err := checkQuota(resource.MustParse("2"), to); err != nil {
			t.Errorf("%v: %v", to, err)
		}
	}
	if err := checkQuota(resource.Quantity{}, of(5000, 100000)); err != nil { // a pod without lanes
		t.Error(err)
	}
	err := checkQuota(resource.MustParse("2"), of(150000, 100000))
	if err == nil || err.Error() != "resources.limits.cpu: expected none, or 2 or more: 1.5 would throttle the lane" {
		t.Error(err)
	}
}

// A lane without a partition keeps nobody off if the kernel makes partitions, and otherwise it must be in its
// container's cgroup.
func TestKeepsOff(t *testing.T) {
	for _, c := range []struct {
		kind string
		own  bool
		says string
		want bool
	}{
		{offer.Remote, true, "root", true}, {offer.Remote, true, "isolated", true}, {offer.Remote, true, "member", false},
		{offer.Remote, true, "root invalid (Cpu list in cpuset.cpus not exclusive)", false}, {offer.Remote, false, "root", false},
		{offer.Cpusets, true, "member", true}, {offer.Cpusets, false, "member", false}, {offer.Cpusets, false, "", true},
	} {
		if got := isExclusive(c.kind, c.own, c.says); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
}

// impatient is a container runtime with a short timeout.
type impatient struct{ stub.Stub }

func (impatient) RequestTimeout() time.Duration { return time.Millisecond }

// A caller waits for its turn no longer than its timeout.
func TestTurn(t *testing.T) {
	n := testNode(t, nil, t.TempDir())
	if err := n.change.acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, claim := waitingPod("edge", "numa0", resource.MustParse("1"))
	c := &api.Container{Name: "main", Linux: &api.LinuxContainer{CgroupsPath: "/kubepods/edge"}}
	r := &runtime{Node: n, stub: impatient{}}
	for name, wait := range map[string]func() error{
		"prepare": func() error { _, err := n.prepare(ctx, claim); return err },
		"release": func() error { return n.release(ctx, string(claim.UID)) },
		"attach":  func() error { return r.attach(t.Context(), plan.Lane{}, c) },
	} {
		if err := wait(); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "another change of the lanes goes on") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
