package lanes

import (
	"errors"
	"testing"
	"testing/fstest"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
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
