package settings

import (
	"io/fs"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/task"
)

// A thread's name may contain anything, and valid lines are parsed.
func FuzzTask(f *testing.F) {
	const status = "Name:\tvrouter\nCpus_allowed_list:\t2-3\nMems_allowed_list:\t0\nVmLck:\t 12 kB\n"
	const stat = "900 (a) b) R 1 1 1 0 -1 2129984 1 1 1 1 1 1 1 1 20 0 1 0 1 1 1 1 1 1 1 1 1 1 1 1 1 1 0 0 17 2 50 1 0 0 0"
	if got, ok := parseTask(task.Status(status), stat); !ok || got.Processor != 2 || got.Policy != "fifo" || got.Priority != 50 || !got.Kernel ||
		got.Allowed != cpuset.MustParse("2-3") || got.Locked != 12<<10 || got.Nodes != cpuset.Of(0) {
		f.Errorf("got %+v, %v", got, ok)
	}
	f.Add(status, stat)
	f.Add("Cpus_allowed_list: 3-1", "1 ()")
	f.Fuzz(func(t *testing.T, status, stat string) {
		if got, ok := parseTask(task.Status(status), stat); ok && !strings.Contains(stat, strconv.Itoa(got.Processor)) {
			t.Errorf("%q: %+v", stat, got)
		}
	})
}

func TestPages(t *testing.T) {
	got := parsePages("55d0 default file=/bin/N7=9 anon=5 N0=5 N1=3 kernelpagesize_kB=4\n7f00 bind:1 N1=2 kernelpagesize_kB=2048\n\n7f N=1 N0=x\n")
	if diff := cmp.Diff(map[int]uint64{0: 5 << 12, 1: 3<<12 + 2<<21}, got); diff != "" {
		t.Error(diff)
	}
}

// counted counts how often each directory of a machine is listed.
type counted struct {
	fs.FS
	listed map[string]int
}

func (c counted) ReadDir(name string) ([]fs.DirEntry, error) {
	c.listed[name]++
	return fs.ReadDir(c.FS, name)
}

// Each directory is listed only once, and no file is: a machine may have ten thousand cgroups, and many
// patterns look in them.
func TestListedOnce(t *testing.T) {
	machine := fstest.MapFS{}
	for _, name := range []string{"sys/fs/cgroup/a/cpu.max", "sys/fs/cgroup/a/b/cpu.max", "sys/fs/cgroup/a/b/c/d/cpu.max",
		"sys/fs/cgroup/cpu.max", "sys/fs/cgroup/a/b/c/d/e/cpu.max", "sys/class/net/eth0/ifindex"} {
		machine[name] = &fstest.MapFile{Data: []byte(" 1\n")}
	}
	c := counted{machine, map[string]int{}}
	want := map[string]string{"/sys/fs/cgroup/a/cpu.max": "1", "/sys/fs/cgroup/a/b/cpu.max": "1", "/sys/fs/cgroup/a/b/c/d/cpu.max": "1",
		"/sys/class/net/eth0/ifindex": "1"} // without the file of the hierarchy's root, and without cgroups below the fourth level
	if diff := cmp.Diff(want, Read(c).Files); diff != "" {
		t.Error(diff)
	}
	for name, times := range c.listed {
		if _, file := machine[name]; file || times > 1 && !strings.HasPrefix(name, "proc") {
			t.Errorf("%s: listed %d times", name, times)
		}
	}
}
