package knob

import (
	"testing"
	"testing/fstest"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/plan"
)

// Threads of the kernel may use CPUs that are offline or may yet come, and keep these.
func TestKernelThreadsAndOfflineCPUs(t *testing.T) {
	for allowed, want := range map[string]struct{ step, usual string }{
		"0-15":     {"task 12:77 -> 0-1,4-15 (optional)\n", ""},
		"2,8-15":   {"", ""}, // all that is left of them is offline
		"0-1,4-15": {"", "task 12:77 -> 0-15\n"},
		"0-1":      {"", "task 12:77 -> 0-3\n"},
	} {
		root, h := machine(t, "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0")
		root["proc/12/status"] = &fstest.MapFile{Data: []byte("Cpus_allowed_list:\t" + allowed + "\n")}
		steps, err := Thread(View{Root: root, Host: h}, plan.Placement{Lanes: placement().Lanes}, 12)
		u := &Unrecorded{Root: root, Host: h, Lanes: cpuset.MustParse("2-3")}
		if uerr := kernelThreadDefaults(u); lines(steps) != want.step || lines(u.Steps) != want.usual || err != nil || uerr != nil {
			t.Errorf("%s: %v, and to the defaults %v, %v, %v", allowed, lines(steps), lines(u.Steps), err, uerr)
		}
	}
}
