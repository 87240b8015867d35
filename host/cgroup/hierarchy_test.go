package cgroup

import (
	"testing"
	"testing/fstest"

	"isolane.dev/isolane/cpuset"
)

const mounts = `23 1 0:1 / / rw - ext4 /dev/vda rw
31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
34 31 0:31 /box /sys/fs/cgroup/cpuset\040x rw shared:9 - cgroup cgroup rw,cpuset
40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
`

func TestHierarchy(t *testing.T) {
	const x = "/sys/fs/cgroup/cpuset x"
	root := fstest.MapFS{
		"proc/self/mountinfo": {Data: []byte(mounts)},
		"proc/7/cgroup":       {Data: []byte("4:name=systemd:/s:1\n3:cpuset:/box/a/b\n2:cpu,cpuacct:/\n0::/u\n")},
		"proc/8/cgroup":       {Data: []byte("3:cpuset:/elsewhere\n0::/../u\n")},
		"sys/fs/cgroup/cpuset x/a/cpuset.effective_cpus":   {Data: []byte("2-3\n")},
		"sys/fs/cgroup/cpuset x/bad/cpuset.effective_cpus": {Data: []byte("2-\n")},
	}
	for dir, want := range map[string]string{
		"/sys/fs/cgroup/cpu,cpuacct/z": "/sys/fs/cgroup/cpu,cpuacct", x: x + "/a/b",
		"/sys/fs/cgroup/systemd": "/sys/fs/cgroup/systemd/s:1", "/sys/fs/cgroup/unified/a": "/sys/fs/cgroup/unified/u",
	} {
		h, err := HierarchyOf(root, dir)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := h.Of(root, "proc/7"); got != want || err != nil {
			t.Errorf("%s: process 7 is in %q, %v, want %q", dir, got, err, want)
		}
		if got, err := h.Of(root, "proc/8"); err == nil {
			t.Errorf("%s: process 8 is in %q, want an error", dir, got)
		}
	}
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unifiedx", "/home"} {
		if h, err := HierarchyOf(root, dir); err == nil {
			t.Errorf("%s: %+v", dir, h)
		}
	}
	h, err := HierarchyOf(root, x)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := h.CPUs(root, x+"/a/b"); got != cpuset.MustParse("2-3") || err != nil {
		t.Errorf("CPUs %s, %v", got, err)
	}
	for _, dir := range []string{"/bad", "/none"} {
		if got, err := h.CPUs(root, x+dir); err == nil {
			t.Errorf("%s: CPUs %s", dir, got)
		}
	}
}

func FuzzHierarchy(f *testing.F) {
	f.Add(mounts, "3:cpuset:/box/a\n", "/sys/fs/cgroup/cpuset x/a")
	f.Fuzz(func(t *testing.T, mountinfo, cgroup, dir string) {
		root := fstest.MapFS{"proc/self/mountinfo": {Data: []byte(mountinfo)}, "proc/7/cgroup": {Data: []byte(cgroup)}}
		h, err := HierarchyOf(root, dir)
		if err != nil {
			return
		}
		if at, err := h.Of(root, "proc/7"); err == nil && !IsBelow(at, h.Mount) {
			t.Errorf("%q is not below %q", at, h.Mount)
		}
	})
}

func TestPathOf(t *testing.T) {
	for text, want := range map[string]string{
		"0::/a.slice\n":                    "/a.slice",
		"3:cpuset:/b\n0::/a\n":             "/b",
		"4:cpu,cpuset:/c:d\n1:name=x:/y\n": "/c:d",
		"":                                 "",
		"?":                                "",
	} {
		if got := PathOf(fstest.MapFS{"proc/7/cgroup": {Data: []byte(text)}}, "proc/7"); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestCPUs(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string // "": an error
	}{
		"v2":         {map[string]string{"cpuset.cpus.effective": "0-1\n", "cpuset.cpus": "\n"}, "0-1"},
		"v1":         {map[string]string{"cpuset.effective_cpus": "1\n", "cpuset.cpus": "0-1\n"}, "1"},
		"older v1":   {map[string]string{"cpuset.cpus": "0\n"}, "0"},
		"no cpuset":  {map[string]string{"cgroup.procs": ""}, ""},
		"not a list": {map[string]string{"cpuset.cpus": "x\n"}, ""},
	} {
		root := fstest.MapFS{}
		for file, text := range c.files {
			root["c/"+file] = &fstest.MapFile{Data: []byte(text)}
		}
		if got, err := CPUs(root, "/c"); got.String() != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%s: got %q, %v; want %q", name, got, err, c.want)
		}
	}
}
