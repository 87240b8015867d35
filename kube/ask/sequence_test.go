package ask_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/kube/ask"
	"isolane.dev/isolane/kube/offer"
	"isolane.dev/isolane/plan"
)

var sequences = flag.Uint64("sequences", 20, "of TestSequences, on each node")

// shape is what a pod asks of a NUMA node.
type shape struct {
	cpus, cores int
	smt         string // "": the default
}

// fits reports whether a shape has room on a node beside CPUs that have owners. It counts without the
// planner. The boot core belongs to housekeeping.
func (s shape) fits(h host.Host, node int, owned cpuset.Set) bool {
	threads, whole := 0, 0
	for _, core := range h.Cores() {
		if core.Contains(0) || nodeOf(h, core.First()) != node {
			continue
		}
		left := core.Difference(owned)
		threads += left.Len()
		if left == core {
			whole++
		}
	}
	switch {
	case s.cores > 0:
		return whole >= s.cores
	case s.smt == "isolate":
		return whole >= s.cpus
	}
	return threads >= s.cpus
}

func nodeOf(h host.Host, cpu int) int {
	for _, n := range h.NUMANodes {
		if n.CPUs.Contains(cpu) {
			return n.ID
		}
	}
	return -1
}

// TestSequences lets pods come and go at random on made-up and recorded nodes. No CPU has two owners. No lane
// has CPUs of the boot core, or of another NUMA node than the scheduler chose. What fits is never refused. An
// answered pod keeps its CPUs when the node part restarts. When all pods have gone, the node offers the same
// as at first.
func TestSequences(t *testing.T) {
	hosts := map[string]host.Host{
		"two packages":  machine.Host(t),
		"one thread":    hosttest.Machine{Packages: 2, CoresPerPackage: 8, ThreadsPerCore: 1}.Host(t),
		"eight nodes":   hosttest.Machine{Packages: 2, CoresPerPackage: 16, ThreadsPerCore: 2, NodesPerPackage: 4, CoresPerL3: 2}.Host(t),
		"eight threads": hosttest.Machine{Packages: 1, CoresPerPackage: 6, ThreadsPerCore: 8}.Host(t),
	}
	for _, name := range []string{"hwloc/64amd64-4s2n4ca2co.tar.bz2", "hwloc/32intel64-2p8co2t+8ve.tar.bz2"} {
		h, err := host.Read(hosttest.Snapshot(t, name))
		if err != nil {
			t.Fatal(err)
		}
		hosts[name] = h
	}
	for name, h := range hosts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			counts := [2]int{}
			for seed := range *sequences {
				s := pods{T: t, host: h, random: rand.New(rand.NewPCG(seed, 0)), claims: map[string]*resourceapi.ResourceClaim{}}
				if s.run(); t.Failed() {
					t.Fatalf("seed %d", seed)
				}
				counts[0], counts[1] = counts[0]+s.placedCount, counts[1]+s.refusedCount
			}
			t.Logf("%d sequences: %d lanes placed, %d refused", *sequences, counts[0], counts[1])
			if counts[0] == 0 || counts[1] == 0 {
				t.Error("expected some of both")
			}
		})
	}
}

// pods are the pods of one sequence.
type pods struct {
	*testing.T

	host                      host.Host
	random                    *rand.Rand
	placed                    plan.Placement
	claims                    map[string]*resourceapi.ResourceClaim // by lane
	placedCount, refusedCount int
}

func (s *pods) run() {
	before := s.devices()
	for i := range 30 {
		if len(s.placed.Lanes) > 0 && s.random.IntN(3) == 0 {
			s.release(s.random.IntN(len(s.placed.Lanes)))
			continue
		}
		s.ask(i)
		s.look()
	}
	for len(s.placed.Lanes) > 0 {
		s.release(0)
	}
	if after := s.devices(); !reflect.DeepEqual(before, after) {
		s.Errorf("when all have gone the node offers %+v, before %+v", after, before)
	}
}

func (s *pods) devices() []resourceapi.Device {
	var claims []*resourceapi.ResourceClaim
	for _, l := range s.placed.Lanes {
		claims = append(claims, s.claims[l.Name])
	}
	devices, err := offer.Node{Host: s.host, Placed: s.placed, Pool: "n0", Claims: claims}.Devices()
	if err != nil {
		s.Fatal(err)
	}
	return devices
}

func (s *pods) release(i int) {
	delete(s.claims, s.placed.Lanes[i].Name)
	var left []plan.Lane
	for j, l := range s.placed.Lanes {
		if j != i {
			left = append(left, l)
		}
	}
	s.placed.Lanes = left
}

// ask adds a pod on a node that has CPUs.
func (s *pods) ask(i int) {
	devices := s.devices()
	if len(devices) == 0 {
		return
	}
	device := devices[s.random.IntN(len(devices))].Name
	shapes := []shape{{cpus: 1 + s.random.IntN(4)}, {cpus: 1 + s.random.IntN(3), smt: "isolate"}, {cores: 1 + s.random.IntN(2), smt: "pack"}}
	want := shapes[s.random.IntN(len(shapes))]
	r := request{device: device, capacity: map[string]string{"cpus": fmt.Sprint(want.cpus)}}
	if want.cores > 0 {
		r.capacity = map[string]string{"cores": fmt.Sprint(want.cores)}
	}
	if want.smt != "" {
		r.parameters = spec(`{"cpus":{"smt":"` + want.smt + `"}}`)
	}
	c := r.claim()
	c.UID = uidOf(i)
	node, err := offer.NUMANode(device)
	if err != nil {
		s.Fatal(err)
	}
	fits := want.fits(s.host, node, s.placed.CPUs())
	next, err := ask.Solve(s.host, s.placed, "n0", pod("64"), []*resourceapi.ResourceClaim{c})
	if err != nil {
		if s.refusedCount++; fits {
			s.Errorf("%+v on %s beside %s: %v", want, device, s.placed.CPUs(), err)
		}
		return
	}
	if s.placedCount++; !fits {
		s.Errorf("%+v on %s beside %s does not fit: %+v", want, device, s.placed.CPUs(), next.Lanes)
	}
	c = answered(s.T, c, next)
	l, is := next.Lane(ask.Name(string(c.UID), 0))
	if again, aerr := ask.Answered(c, "n0"); !is || aerr != nil || len(again) != 1 || again[0].CPUs != l.CPUs {
		s.Errorf("answered %+v, %t; read again %+v, %v", l, is, again, aerr)
	}
	s.placed, s.claims[l.Name] = next, c
}

// look checks that each CPU has one owner at most, and the right one.
func (s *pods) look() {
	var owned cpuset.Set
	for _, l := range s.placed.Lanes {
		own := l.CPUs.Union(l.Idle)
		device := s.claims[l.Name].Status.Allocation.Devices.Results[0].Device
		node, _ := offer.NUMANode(device) // ask has parsed it before
		for cpu := range own.All() {
			if nodeOf(s.host, cpu) != node || s.host.Siblings(0).Contains(cpu) {
				s.Errorf("lane %s of %s has CPU %d", l.Name, device, cpu)
			}
		}
		if both := owned.Intersection(own); !both.IsEmpty() {
			s.Errorf("CPUs %s have two owners", both)
		}
		owned = owned.Union(own)
	}
}
