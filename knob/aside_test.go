package knob

import (
	"maps"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/plan"
)

// Where a workload's cgroup is no partition all beside the way there are kept off the lanes' CPUs, and nobody below them
// is asked for it; units of systemd are told.
func TestAside(t *testing.T) {
	root, h := machine(t, "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0")
	const top = "sys/fs/cgroup/"
	maps.DeleteFunc(root, func(name string, _ *fstest.MapFile) bool { return strings.HasPrefix(name, top+"cpuset/") }) // of v1
	for name, cpus := range map[string]string{"kubepods": "", "kubepods/besteffort": "", "kubepods/besteffort/pod3/c": "",
		"kubepods/burstable": "", "kubepods/burstable/pod1": "", "kubepods/burstable/pod1/edge": "0-1", "kubepods/burstable/pod1/edge/below": "",
		"kubepods/burstable/pod1/pause": "2", "kubepods/burstable/pod2": "1-3", "housekept": "0-1", "isolane-host": "3"} {
		root[top+name+"/cpuset.cpus"] = &fstest.MapFile{Data: []byte(cpus + "\n")}
	}
	edge := plan.Lane{Name: "edge", CPUs: cpuset.Of(2), MemoryNodes: cpuset.Of(0)}
	edge.Spec.CPUs.Count, edge.Spec.Cgroup.Partition = 1, Member
	host := plan.Lane{Name: "host", CPUs: cpuset.Of(3), MemoryNodes: cpuset.Of(0)}
	p := plan.Placement{Housekeeping: cpuset.MustParse("0-1"), Lanes: []plan.Lane{edge, host}}
	own := map[string]string{"edge": "/" + top + "kubepods/burstable/pod1/edge"}
	for _, alone := range [][]string{nil, {"edge"}} {
		v := View{Root: root, Host: h, Own: own, Alone: alone}
		steps, err := v.keepOthersOff("/sys/fs/cgroup", p)
		if err != nil {
			t.Fatal(err)
		}
		want := ""
		if alone != nil {
			want = `file kubepods/besteffort/cpuset.cpus -> 0-1 (optional)
file kubepods/burstable/pod1/pause/cpuset.cpus -> 0-1 (optional)
file kubepods/burstable/pod2/cpuset.cpus -> 1 (optional)
`
		}
		if d := cmp.Diff(want, strings.ReplaceAll(lines(steps), "/"+top, "")); d != "" {
			t.Errorf("%v (-want +got):\n%s", alone, d)
		}
	}
}
