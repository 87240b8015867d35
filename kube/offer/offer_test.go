package offer_test

import (
	"encoding/json"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/kube/offer"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/solver"
	"isolane.dev/isolane/test/golden"
)

func place(t *testing.T, h host.Host, lanes ...lane.Lane) plan.Placement {
	t.Helper()
	p, err := solver.Solve(h, plan.Placement{}, lanes)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func want(name string, count int, smt string, node int) lane.Lane {
	return lane.Lane{Metadata: lane.Metadata{Name: name},
		Spec: lane.Spec{CPUs: lane.CPUs{Count: count, SMT: smt}, Near: lane.Near{NUMANode: &node}}}
}

// counted returns a claim for which the scheduler has counted CPUs of a device.
func counted(device string, cpus int64) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{
		Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
			{Driver: offer.Driver, Pool: "n0", Device: device, ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{
				offer.CPUs: *resource.NewQuantity(cpus, resource.DecimalSI)}},
			{Driver: offer.Driver, Pool: "another", Device: device, ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{
				offer.CPUs: *resource.NewQuantity(1000, resource.DecimalSI)}},
		}}}}}
}

func TestDevices(t *testing.T) {
	two := hosttest.Machine{Packages: 2, CoresPerPackage: 4, ThreadsPerCore: 2, CoresPerL3: 2}.Host(t)
	epyc, err := host.Read(hosttest.Snapshot(t, "hwloc/64amd64-4s2n4ca2co.tar.bz2"))
	if err != nil {
		t.Fatal(err)
	}
	hybrid, err := host.Read(hosttest.Snapshot(t, "hwloc/32intel64-2p8co2t+8ve.tar.bz2"))
	if err != nil {
		t.Fatal(err)
	}
	for name, n := range map[string]offer.Node{
		// CPU 0 and its sibling 8 are housekeeping CPUs.
		"free": {Host: two, Pool: "n0", Partition: "remote", Answers: true},
		// Two cores of node 1 are a lane of the host. The pod's lane there asked for 1 CPU and owns 2.
		"lanes": {Host: two, Pool: "n0", Partition: "remote",
			Placed: place(t, two, want("vpp", 4, lane.Pack, 1), want("kube-a-0", 1, lane.Isolate, 1)),
			Claims: []*resourceapi.ResourceClaim{counted("numa1", 1)}},
		"offline": {Host: hosttest.Machine{Packages: 1, CoresPerPackage: 4, ThreadsPerCore: 1,
			Offline: cpuset.Of(3)}.Host(t), Pool: "n0", Partition: "cpuset"},
		"small":   {Host: hosttest.Machine{Packages: 1, CoresPerPackage: 2, ThreadsPerCore: 1}.Host(t), Pool: "n0"},
		"counted": {Host: hosttest.Machine{Packages: 1, CoresPerPackage: 2, ThreadsPerCore: 1}.Host(t), Pool: "n0", Counted: true},
		"one":     {Host: hosttest.Machine{Packages: 1, CoresPerPackage: 1, ThreadsPerCore: 2}.Host(t), Pool: "n0"},
		"epyc":    {Host: epyc, Pool: "n0", Partition: "isolated"},
		"hybrid":  {Host: hybrid, Pool: "n0", Partition: "remote"},
	} {
		t.Run(name, func(t *testing.T) {
			devices, err := n.Devices()
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.MarshalIndent(devices, "", " ")
			if err != nil {
				t.Fatal(err)
			}
			golden.Check(t, "testdata/"+name+".json", append(text, '\n'))
		})
	}
}

func TestNUMANode(t *testing.T) {
	for device, want := range map[string]int{"numa0": 0, "numa12": 12, "numa": -1, "numa-1": -2, "numa01": -2, "cpu0": -2, "": -2} {
		if n, err := offer.NUMANode(device); n != want && (want != -2 || err == nil) {
			t.Errorf("%q: %d, %v", device, n, err)
		}
	}
}
