package testbed

import (
	"os"
	"testing"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/runtime/process"
)

// What measures keeps off the application's CPUs, also where it could use them, unless the application has all.
func TestStayOff(t *testing.T) {
	own, err := task.Affinity(0)
	if err != nil {
		t.Fatal(err)
	}
	if own.Len() < 2 {
		t.Skip("skipped: needs two CPUs")
	}
	t.Cleanup(func() {
		if kerr := process.KeepTo(own); kerr != nil {
			t.Error(kerr)
		}
	})
	b := &Bed{Root: host.Live()}
	online, err := host.Online(b.Root)
	if err != nil {
		t.Fatal(err)
	}
	application := cpuset.Of(own.First())
	for _, c := range []struct{ application, want cpuset.Set }{{online, own}, {application, own.Difference(application)}} {
		if err = b.stayOff(c.application); err != nil {
			t.Fatal(err)
		}
		for _, tid := range task.Threads(b.Root, os.Getpid()) {
			if now, aerr := task.Affinity(tid); aerr == nil && now != c.want {
				t.Errorf("application on CPUs %s: thread %d may use %s, want %s", c.application, tid, now, c.want)
			}
		}
	}
}
