package cgroup

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func TestMounted(t *testing.T) {
	const v1 = "cg /sys/fs/cgroup/cpuset\\040x cgroup rw,cpuset 0 0\n"
	const v2 = "cg2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"
	controllers := []string{"cpuset", "cpu"}
	at, unified := new("/sys/fs/cgroup/cpuset x"), new("/sys/fs/cgroup/unified")
	for mounts, want := range map[string]Mounts{
		v1: {Version: "v1", CpusetV1: at},
		v2: {Version: "v2", Unified: unified, UnifiedControllers: controllers},
		v2 + v1: {Version: "hybrid", CpusetV1: at,
			Unified: unified, UnifiedControllers: controllers},
		"cg /c cgroup rw,cpu,cpusets 0 0\n": {Version: "v1", CPUV1: new("/c")},
		"proc /proc proc rw 0 0\n":          {Version: "none"},
	} {
		root := fstest.MapFS{"proc/self/mounts": {Data: []byte(mounts)},
			"sys/fs/cgroup/unified/cgroup.controllers": {Data: []byte("cpuset cpu\n")}}
		if want.UnifiedControllers == nil {
			want.UnifiedControllers = []string{} // an empty list in JSON too
		}
		got, err := Mounted(root)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%q: %v (-want +got):\n%s", mounts, err, diff)
		}
	}
}

func TestMembers(t *testing.T) {
	root := fstest.MapFS{
		"c/a/cgroup.procs":       {Data: []byte("1\n2\n")},
		"c/a/cgroup.threads":     {Data: []byte("1\n2\n3\n")},
		"c/a/b/cgroup.procs":     {Data: []byte("4\n")},
		"c/a/b/tasks":            {Data: []byte("4\n5\n")}, // as with v1
		"c/broken/tasks":         {Data: []byte("x\n")},
		"c/a/b/empty/memory.max": {},
	}
	processes, err := Processes(root, "/c/a")
	threads, terr := Threads(root, "/c/a")
	if diff := cmp.Diff([][]int{{1, 2, 4}, {1, 2, 3, 4, 5}}, [][]int{processes, threads}); diff != "" || err != nil || terr != nil {
		t.Errorf("%v, %v (-want +got):\n%s", err, terr, diff)
	}
	if none, gerr := Processes(root, "/c/gone"); len(none) > 0 || gerr != nil {
		t.Error(none, gerr)
	}
	if ids, berr := Threads(root, "/c/broken"); berr == nil {
		t.Error(ids)
	}
	dirs, err := Tree(root, "/c/a")
	if diff := cmp.Diff([]string{"/c/a", "/c/a/b", "/c/a/b/empty"}, dirs); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if dirs, err = Tree(root, "/c/gone"); err == nil {
		t.Error(dirs)
	}
}
