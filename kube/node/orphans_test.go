package node

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/enforce/attached"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/kube/ask"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
)

// A lane whose claim is gone stays while something runs in it, and watch looks again.
func TestOrphansThatAreBusy(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	mounts, err := cgroup.Mounted(os.DirFS("/"))
	if err != nil {
		t.Fatal(err)
	}
	top, v2 := mounts.Cpuset()
	group := makeGroup(t, top, "isolane-orphan-"+strconv.Itoa(os.Getpid()), v2)
	cmd := exec.Command("sh", "-c", "echo $$ > $0/cgroup.procs; echo; exec sleep 1000", group)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = change.EndProcesses(context.WithoutCancel(t.Context()), group)
		_ = cmd.Wait()
	})
	if _, err = out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	n := testNode(t, nil, filepath.Join(t.TempDir(), "isolane"))
	orphan := plan.Lane{Name: ask.Name(string(uidOf("gone")), 0), CPUs: cpuset.Of(1), Spec: lane.Spec{CPUs: lane.CPUs{Count: 1}}, Reasons: []string{}}
	recordAttached(t, n.Lanes.Dir, []attached.Workload{{Lane: orphan.Name, Group: group, Journal: "attach-1"}}, orphan)
	for range 2 {
		if err = n.releaseOrphans(t.Context()); err != nil || !n.orphans {
			t.Fatalf("%v: busy: %v", err, n.orphans)
		}
	}
	if l := inForce(t, n.Lanes.Dir); len(l.Placement.Lanes) != 1 {
		t.Errorf("lanes %v: a busy one was released", l.Placement.Lanes)
	}
	n.prepared = map[string]bool{string(uidOf("gone")): true} // the kubelet has asked for the claim again
	if err = n.releaseOrphans(t.Context()); err != nil || n.orphans {
		t.Errorf("%v: busy: %v", err, n.orphans)
	}
}
