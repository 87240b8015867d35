package lanes

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/quantity"
)

// Who is confined to a few CPUs, as a pod is, plans for those that it names, and Free tells of the same.
func TestConfinedPlansForOthers(t *testing.T) {
	root := hosttest.Machine{Packages: 1, CoresPerPackage: 6, ThreadsPerCore: 1}.FS()
	root["proc/self/status"] = &fstest.MapFile{Data: []byte("Cpus_allowed_list:\t0-1\nMems_allowed_list:\t0\n")}
	root["proc/self/mounts"] = &fstest.MapFile{Data: []byte("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n")}
	want := lane.Lane{Metadata: lane.Metadata{Name: "a"}, Spec: lane.Spec{CPUs: lane.CPUs{Count: 2, List: cpuset.MustParse("3-4")}}}
	for cpus, free := range map[string]string{"": "1", "0,2-4": "2-4", "2,3": "3"} {
		l, err := Look(Options{Dir: t.TempDir() + "/none", root: root, CPUs: cpuset.MustParse(cpus)})
		if err != nil {
			t.Fatal(err)
		}
		room, err := l.Free()
		if err != nil || room.CPUs.String() != free {
			t.Errorf("%q: free are %s, %v", cpus, room.CPUs, err)
		}
		p, _, err := l.Want([]lane.Lane{want}, false)
		var refusal *plan.Refusal
		switch all := cpus == "0,2-4"; {
		case all && (err != nil || p.Lanes[0].CPUs != want.Spec.CPUs.List):
			t.Errorf("%q: %v", cpus, err)
		case !all && !errors.As(err, &refusal):
			t.Errorf("%q: placed on %v, %v", cpus, p.Lanes, err)
		}
	}
}

// CPUs that a caller keeps from lanes stay housekeeping's, also beside lanes in force: all else of the machine may be there.
func TestOthers(t *testing.T) {
	root := hosttest.Machine{Packages: 1, CoresPerPackage: 6, ThreadsPerCore: 1}.FS()
	root["proc/self/mounts"] = &fstest.MapFile{Data: []byte("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n")}
	l, err := Look(Options{Dir: t.TempDir() + "/none", root: root, CPUs: cpuset.MustParse("2-5"), Others: cpuset.MustParse("0-1")})
	if err != nil {
		t.Fatal(err)
	}
	one := lane.Lane{Metadata: lane.Metadata{Name: "a"}, Spec: lane.Spec{CPUs: lane.CPUs{Count: 1}}}
	p, _, err := l.Want([]lane.Lane{one}, false)
	if err != nil || p.Housekeeping.Union(p.CPUs()).String() != "0-5" || p.Housekeeping.Len() != 5 {
		t.Fatalf("%v: lane %s, housekeeping %s", err, p.CPUs(), p.Housekeeping)
	}
	l.Placement = p
	room, err := l.Free()
	if err != nil || room.CPUs.Len() != 2 || room.CPUs.Intersects(cpuset.MustParse("0-1")) {
		t.Errorf("free beside it are %s, %v", room.CPUs, err)
	}
}

// Memory and huge pages that a caller keeps are nobody's: a pool of 8 pages on a node of 1 GiB, of which lanes
// may have 4 pages and 64 MiB.
func TestKeepsWhatIsNotAllowed(t *testing.T) {
	const size = 2 << 20
	root := hosttest.Machine{Packages: 1, CoresPerPackage: 6, ThreadsPerCore: 1}.FS()
	root["proc/self/mounts"] = &fstest.MapFile{Data: []byte("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n")}
	node := "sys/devices/system/node/node0/"
	root[node+"meminfo"] = &fstest.MapFile{Data: []byte("Node 0 MemTotal: 1048576 kB\n")}
	root[node+"hugepages/hugepages-2048kB/nr_hugepages"] = &fstest.MapFile{Data: []byte("8\n")}
	l, err := Look(Options{Dir: t.TempDir() + "/none", root: root, Memory: map[int]uint64{0: 64 << 20},
		Hugepages: map[int]map[uint64]uint64{0: {size: 4}}})
	if err != nil {
		t.Fatal(err)
	}
	room, err := l.Free()
	if err != nil || room.Nodes[0].Memory != 64<<20 || room.Nodes[0].Hugepages[size] != 4 {
		t.Errorf("free: %+v, %v", room.Nodes, err)
	}
	for pages, want := range map[quantity.Bytes]uint64{4: 0, 6: 2} {
		spec := lane.Spec{CPUs: lane.CPUs{Count: 1}}
		spec.Memory.Hugepages = map[string]quantity.Bytes{"2Mi": pages * size}
		p, _, werr := l.Want([]lane.Lane{{Metadata: lane.Metadata{Name: "a"}, Spec: spec}}, false)
		if werr != nil || p.Lanes[0].Hugepages[0].Reserve != want {
			t.Errorf("%d pages: %+v, %v; want %d beyond the pool", pages, p.Lanes, werr, want)
		}
	}
	var refusal *plan.Refusal
	spec := lane.Spec{CPUs: lane.CPUs{Count: 1}, Memory: lane.Memory{Size: 65 << 20}}
	if _, _, err = l.Want([]lane.Lane{{Metadata: lane.Metadata{Name: "a"}, Spec: spec}}, false); !errors.As(err, &refusal) {
		t.Errorf("more than is allowed: %v", err)
	}
}

// A machine has no KVM where it has devices and that is not among them; a recording has none and does not say.
func TestEmulated(t *testing.T) {
	for devices, want := range map[string]bool{"": false, "dev/null": true, "dev/null dev/kvm": false} {
		root := hosttest.Machine{Packages: 1, CoresPerPackage: 2, ThreadsPerCore: 1}.FS()
		for name := range strings.FieldsSeq(devices) {
			root[name] = &fstest.MapFile{}
		}
		h, err := host.Read(root)
		if err != nil {
			t.Fatal(err)
		}
		r := CoresOf(Options{}, h, root, plan.Placement{}, plan.Lane{Name: "a", CPUs: cpuset.Of(1)}, cpuset.Set{})
		if r.Emulated != want {
			t.Errorf("%q: %v", devices, r.Emulated)
		}
	}
}
