package change

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/journal"
)

// CPUs that are offline are a thread's still: what is read has them, and with and without them a step is in force.
func TestThreadsAndOfflineCPUs(t *testing.T) {
	online, err := task.Affinity(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	has, offline := online.Union(cpuset.MustParse("8100-8103")), cpuset.MustParse("8100-8101")
	stat := fmt.Sprintf("%d (x) S 0 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 77 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 3 0 0", os.Getpid())
	dir := task.Dir(os.Getpid())
	op := taskCPUs{fstest.MapFS{"sys/devices/system/cpu/online": {Data: []byte(online.String())},
		dir + "/stat": {Data: []byte(stat)}, dir + "/status": {Data: []byte("Cpus_allowed_list:\t" + has.String() + "\n")}}}
	for after, want := range map[cpuset.Set]cpuset.Set{online: online, online.Union(offline): online.Union(offline),
		cpuset.Of(8000): has, offline: has} {
		s := journal.Step{Kind: KindTask, Target: TaskTarget(os.Getpid(), 77), After: after.String()}
		if now, rerr := op.Read(t.Context(), s); now != want.String() || rerr != nil {
			t.Errorf("of %s reads %s, %v, want %s", after, now, rerr, want)
		}
	}

	// Some kernels forget CPUs of their own threads that are offline: 0-1,4-7 is what is left of 0-1,4-15.
	of := func(release string) taskCPUs {
		return taskCPUs{fstest.MapFS{"proc/sys/kernel/osrelease": {Data: []byte(release)},
			dir + "/stat": {Data: []byte(strings.Replace(stat, "S 0 0 0 0 -1 0", "S 2 0 0 0 -1 2097216", 1))}}}
	}
	s := journal.Step{Target: TaskTarget(os.Getpid(), 77), Before: "0-15", After: "0-1,4-15"}
	for now, want := range map[string]bool{"0-1,4-7": true, "0-15": true, "2": false, "0-7": false, "": false} {
		older, newer, program := of("5.15.0-91").MayOverwrite(s, now), of("6.12.9").MayOverwrite(s, now), op.MayOverwrite(s, now)
		if more := now == "0-15"; older != want || newer != more || program != more {
			t.Errorf("%q: %v, %v, of a program's: %v", now, older, newer, program)
		}
	}
}

// A worker of the kernel that was bound to its CPU after its step counts as one that has ended.
func TestBoundSince(t *testing.T) {
	dir, s := task.Dir(os.Getpid()), journal.Step{Kind: KindTask, Target: TaskTarget(os.Getpid(), 77), Before: "0-1", After: "0"}
	for flags, want := range map[int]error{0x00200040: nil, 0x04200040: fs.ErrNotExist} { // include/linux/sched.h, PF_NO_SETAFFINITY
		stat := fmt.Sprintf("%d (kworker/0:0) I 2 0 0 0 -1 %d 0 0 0 0 0 0 0 0 20 0 1 0 77 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 3 0 0", os.Getpid(), flags)
		op := taskCPUs{fstest.MapFS{dir + "/stat": {Data: []byte(stat)}, "sys/devices/system/cpu/online": {Data: []byte("0")},
			dir + "/status": {Data: []byte("Cpus_allowed_list:\t0\n")}}}
		if _, err := op.Read(t.Context(), s); !errors.Is(err, want) {
			t.Errorf("flags %#x: %v, want %v", flags, err, want)
		}
		if want == nil {
			continue
		}
		if err := op.Write(t.Context(), s, s.Before); !errors.Is(err, want) {
			t.Errorf("flags %#x: %v, want %v", flags, err, want)
		}
	}
}

// What a thread gets back of 5-6 and, with 4, of a lane's: CPU 5 is offline.
func TestSettledAndOfflineCPUs(t *testing.T) {
	set, online := cpuset.MustParse, cpuset.MustParse("0-4,6-7")
	own := set("5-6")
	for _, c := range []struct{ may, all, want string }{
		{"0-7", "0-3,6-7", "5-6"}, // the kernel has opened all
		{"0-3,6-7", "0-3,6-7", "5-6"},
		{"4,6", "0-3,6-7", "5-6"}, // as before
		{"4-6", "0-4,6-7", "5-6"},
		{"3", "0-3,6-7", ""}, // of somebody else
		{"0-7", "0-3", ""},   // its cpuset has none
		{"0-7", "", ""},      // it has ended
	} {
		got := cpusToSet(set(c.may), own, set("4-6"), set(c.all), online)
		if got != set(c.want) {
			t.Errorf("%+v: %s", c, got)
		}
	}
	for all, want := range map[string]bool{"0-3,6": true, "0-3": false} {
		if got := (pin{cpus: own}).fitsIn(set(all), online); got != want {
			t.Errorf("5-6 in %s: %v", all, got)
		}
	}
	if (pin{cpus: cpuset.Of(5)}).fitsIn(online, online) || (pin{}).fitsIn(online, online) {
		t.Error("CPUs that are offline, or none, fit")
	}
}
