package node

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/nri/pkg/api"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/kube/offer"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/plan"
)

// synchronizedNode returns a node that the container runtime has called.
func synchronizedNode(n *Node) *Node {
	n.changed, n.runtimeSynced = make(chan struct{}, 1), make(chan struct{})
	n.markSynchronized()
	return n
}

func TestNotOffered(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		says  string
	}{
		"no state":      {nil, ""},
		"none":          {map[string]string{"cpu": `{"policyName":"none","defaultCpuSet":""}`, "memory": `{"policyName":"None"}`}, ""},
		"static CPUs":   {map[string]string{"cpu": `{"policyName":"static"}`}, `cpu_manager_state: the kubelet's policy is "static": no lanes are offered: set cpuManagerPolicy: none`},
		"static memory": {map[string]string{"memory": `{"policyName":"Static"}`}, "set memoryManagerPolicy: none"},
		"no JSON":       {map[string]string{"cpu": `x`}, "cpu_manager_state: expected the state of the kubelet's manager"},
		"empty":         {map[string]string{"cpu": `{}`}, `policy is ""`},
	} {
		t.Run(name, func(t *testing.T) {
			n := synchronizedNode(&Node{Config: Config{Kubelet: t.TempDir()}})
			for manager, text := range c.files {
				if err := os.WriteFile(filepath.Join(n.Kubelet, manager+"_manager_state"), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if why := n.whyNotOffered(); !strings.Contains(why, c.says) || (why == "") != (c.says == "") {
				t.Error(why)
			}
		})
	}
}

// Nothing is offered if the API server drops fields of the offer, and the reason names the feature.
func TestDroppedFields(t *testing.T) {
	n := testNode(t, nil, t.TempDir())
	n.Kubelet = t.TempDir()
	<-synchronizedNode(n).changed
	n.HandleError(t.Context(), errors.New("connection refused"), "slices")
	if why := n.whyNotOffered(); why != "" || len(n.changed) > 0 {
		t.Error(why)
	}
	of := func(d resourceapi.Device) *resourceapi.ResourceSlice {
		return &resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{Devices: []resourceapi.Device{d}}}
	}
	// If it drops only that claims count as CPUs of the node, the rest is offered again.
	all := resourceapi.Device{AllowMultipleAllocations: new(true)}
	counted := all
	counted.NodeAllocatableResources = map[corev1.ResourceName]resourceapi.NodeAllocatableResource{corev1.ResourceCPU: {}}
	n.uncounted = false
	n.HandleError(t.Context(), &resourceslice.DroppedFieldsError{PoolName: "n0", DesiredSlice: of(counted), ActualSlice: of(all)}, "slices")
	if why := n.whyNotOffered(); why != "" || n.claimsCountAsCPUs() || len(n.changed) == 0 {
		t.Error(why)
	}
	<-n.changed
	n.HandleError(t.Context(), fmt.Errorf("slices: %w", &resourceslice.DroppedFieldsError{PoolName: "n0",
		DesiredSlice: of(resourceapi.Device{AllowMultipleAllocations: new(true)}), ActualSlice: of(resourceapi.Device{})}), "slices")
	if why := n.whyNotOffered(); !strings.Contains(why, "DRAConsumableCapacity: no lanes are offered") || len(n.changed) == 0 {
		t.Error(why)
	}
	if why := n.findConflict(); why != "" { // lanes that were given before still go to their containers
		t.Error(why)
	}
}

// The reference in events: kubectl describe node looks for its name and this uid.
func TestReference(t *testing.T) {
	if of := testNode(t, nil, t.TempDir()).nodeReference(); of.Kind != "Node" || of.Name != "n0" || of.UID != "n0" || of.Namespace != "" {
		t.Errorf("%+v", of)
	}
}

// TestNeverSynchronized: until the container runtime has called this plugin, no container would get its lane.
func TestNeverSynchronized(t *testing.T) {
	n := testNode(t, nil, filepath.Join(t.TempDir(), "isolane"))
	n.Kubelet, n.NRI, n.changed, n.runtimeSynced = t.TempDir(), "/nri.sock", make(chan struct{}, 1), make(chan struct{})
	if why := n.whyNotOffered(); !strings.Contains(why, "/nri.sock: the container runtime has never spoken with this plugin") {
		t.Error(why)
	}
	if why := n.findConflict(); why != "" {
		t.Error(why)
	}
	for range 2 { // the runtime may restart
		if _, err := (&runtime{Node: n}).Synchronize(t.Context(), nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	if why := n.whyNotOffered(); why != "" || len(n.changed) != 1 {
		t.Errorf("%q, and watch is told %d times", why, len(n.changed))
	}
}

// A restarted program withdraws the offer only if the runtime does not call it in time.
func TestWaitForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		(&Node{runtimeSynced: make(chan struct{})}).waitForOthers(t.Context())
		if d := time.Since(began); d != 10*time.Second {
			t.Error(d)
		}
		began = time.Now()
		synchronizedNode(&Node{}).waitForOthers(t.Context())
		if d := time.Since(began); d != 0 {
			t.Error(d)
		}
	})
}

// Another driver of CPUs keeps lanes away while it runs, and a leftover socket does not.
func TestOtherDriver(t *testing.T) {
	n := synchronizedNode(&Node{Config: Config{Kubelet: t.TempDir()}})
	dir := filepath.Join(n.Kubelet, "plugins", "dra.cpu")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "dra-1.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if why := n.whyNotOffered(); !strings.Contains(why, "dra-1.sock: the driver dra.cpu gives CPUs to containers too") {
		t.Error(why)
	}
	if err = l.Close(); err != nil {
		t.Fatal(err)
	}
	if why := n.whyNotOffered(); why != "" {
		t.Error(why)
	}
}

// lookLanes returns the lanes of a node.
func lookLanes(t *testing.T, n *Node) *lanes.Lanes {
	t.Helper()
	l, err := lanes.Look(n.Lanes)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A node says so if lanes may have only the boot core.
func TestNoneEver(t *testing.T) {
	n := testNode(t, nil, filepath.Join(t.TempDir(), "isolane"))
	h, err := host.Read(host.Live())
	if err != nil {
		t.Fatal(err)
	}
	if why, nerr := n.findImpossible(lookLanes(t, n)); nerr != nil || (why == "") != (h.Online().Len() > h.Siblings(h.Online().First()).Len()) {
		t.Error(why, nerr)
	}
	n.Lanes.CPUs = cpuset.Of(h.Online().First())
	if n.whyImpossible, err = n.findImpossible(lookLanes(t, n)); err != nil || !strings.HasPrefix(n.whyImpossible, "CPUs 0 are all that lanes may have here") {
		t.Error(n.whyImpossible, err)
	}
	n.Kubelet = t.TempDir()
	if why := synchronizedNode(n).whyNotOffered(); why != n.whyImpossible {
		t.Error(why)
	}
}

// Nothing is offered if a CPU of a lane has gone, and the reason names the lane and the CPU.
func TestLostCPU(t *testing.T) {
	n := testNode(t, nil, filepath.Join(t.TempDir(), "isolane"))
	h, err := host.Read(host.Live())
	if err != nil {
		t.Fatal(err)
	}
	gone := plan.Lane{Name: "vpp", CPUs: cpuset.Of(h.Possible().Last() + 1), Spec: lane.Spec{CPUs: lane.CPUs{Count: 1}}, Reasons: []string{}}
	recordLanes(t, n.Lanes.Dir, gone)
	l := lookLanes(t, n)
	l.Placement.Host = plan.MachineOf(h)
	devices, why, err := n.devices(l, nil)
	if err != nil || len(devices) > 0 || !strings.HasSuffix(why, fmt.Sprintf("vpp has CPUs %s, which are offline or no longer allowed: no lanes are offered: "+
		"expected them back, or the lane released", gone.CPUs)) {
		t.Errorf("%v %q %v", devices, why, err)
	}
}

// Another plugin that sets CPUs of containers keeps lanes away while it runs in a container, or while a
// container runs whose CPUs it has set.
func TestOtherPlugin(t *testing.T) {
	pod := &api.PodSandbox{Id: "p", Namespace: "default", Name: "web"}
	of := func(id, cpus string, args ...string) *api.Container {
		return &api.Container{Id: id, PodSandboxId: "p", Name: "main", Args: args, Mounts: []*api.Mount{{Source: "/var/run/nri"}}, State: api.ContainerState_CONTAINER_RUNNING,
			Linux: &api.LinuxContainer{Resources: &api.LinuxResources{Cpu: &api.LinuxCPU{Cpus: cpus}}}}
	}
	named := of("a", "", "/bin/nri-resource-policy-balloons")
	named.Mounts = []*api.Mount{{Source: "/var/lib"}, {Source: "/run/nri2"}}
	const balloons, set = "container default/web/main: nri-resource-policy-balloons gives CPUs to containers too: no lanes are offered",
		"container default/web/main: another plugin of the container runtime has set its CPUs (2-3): no lanes are offered"
	for name, c := range map[string]struct {
		partition   string
		sync        []*api.Container
		made, start []*api.Container
		end         []*api.Container
		says        string
	}{
		"others":             {partition: offer.Remote, start: []*api.Container{of("a", "", "/nginx")}},
		"a plugin":           {partition: offer.Remote, start: []*api.Container{of("a", "", "/bin/nri-resource-policy-balloons")}, says: balloons},
		"there already":      {partition: offer.Cpusets, sync: []*api.Container{of("a", "", "/bin/nri-resource-policy-balloons")}, says: balloons},
		"a name alone":       {partition: offer.Remote, start: []*api.Container{named}},
		"a plugin that went": {partition: offer.Remote, start: []*api.Container{of("a", "", "nri-resource-policy-balloons")}, end: []*api.Container{of("a", "")}},
		"CPUs":               {partition: offer.Remote, made: []*api.Container{of("a", "")}, start: []*api.Container{of("a", "2-3")}, says: set},
		"CPUs of one of two": {partition: offer.Remote, start: []*api.Container{of("a", "1"), of("b", "2-3")}, end: []*api.Container{of("a", "1")}, says: set},
		"both":               {partition: offer.Remote, start: []*api.Container{of("a", "1"), of("b", "3", "/nri-resource-policy-balloons"), of("c", "2")}, says: balloons},
		"CPUs there already": {partition: offer.Remote, sync: []*api.Container{of("a", "2-3")}, says: set},
		"by cgroup v1":       {partition: offer.Cpusets, made: []*api.Container{of("a", "")}, start: []*api.Container{of("a", "2-3")}, says: set},
		"this program's":     {partition: offer.Cpusets, sync: []*api.Container{of("a", "0")}, start: []*api.Container{of("b", "0")}},
	} {
		t.Run(name, func(t *testing.T) {
			n := synchronizedNode(testNode(t, nil, filepath.Join(t.TempDir(), "isolane")))
			n.Kubelet, n.NRI, n.partition = t.TempDir(), "/run/nri/nri.sock", c.partition
			r := &runtime{Node: n, stub: impatient{}}
			n.cpuSetters["of a runtime before"] = "gone"
			if _, err := r.Synchronize(t.Context(), []*api.PodSandbox{pod}, c.sync); err != nil {
				t.Fatal(err)
			}
			for _, made := range c.made {
				if _, _, err := r.CreateContainer(t.Context(), pod, made); err != nil {
					t.Fatal(err)
				}
			}
			for _, s := range c.start {
				if err := r.StartContainer(t.Context(), pod, s); err != nil {
					t.Fatal(err)
				}
			}
			for _, e := range c.end {
				if _, err := r.StopContainer(t.Context(), pod, e); err != nil {
					t.Fatal(err)
				}
			}
			if why := n.whyNotOffered(); !strings.HasPrefix(why, c.says) || (why == "") != (c.says == "") {
				t.Error(why)
			}
		})
	}
}
