package ask_test

import (
	"strings"
	"testing"
	"testing/fstest"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"isolane.dev/isolane/kube/ask"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/sched"
)

// A real-time policy is refused if cgroups have shares of real-time, and only for these claims.
func TestRealTime(t *testing.T) {
	shares := fstest.MapFS{"sys/fs/cgroup/cpu,cpuacct/cpu.rt_runtime_us": {Data: []byte("950000\n")}}
	var l plan.Lane
	l.Name, l.Spec.Scheduling.Policy = ask.Name(string(uidOf(1)), 0), sched.FIFO
	p := plan.Placement{Lanes: []plan.Lane{l}}
	one := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{UID: uidOf(1)}}
	other := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{UID: uidOf(2)}}
	if err := ask.RefuseRealTime(shares, p, other, one); err == nil || !strings.Contains(err.Error(), "spec.scheduling.policy: expected none, found fifo") {
		t.Error(err)
	}
	if err := ask.RefuseRealTime(shares, p, other); err != nil {
		t.Error(err)
	}
	if err := ask.RefuseRealTime(fstest.MapFS{}, p, one); err != nil {
		t.Error(err)
	}
	p.Lanes[0].Spec.Scheduling.Policy = ""
	if err := ask.RefuseRealTime(shares, p, one); err != nil {
		t.Error(err)
	}
}
