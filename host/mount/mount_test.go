package mount

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func TestMounts(t *testing.T) {
	root := fstest.MapFS{
		"proc/mounts":         {Data: []byte("h /dev/huge\\040pages hugetlbfs rw,pagesize=2M 0 0\nbroken line\n")},
		"proc/self/mountinfo": {Data: []byte("34 31 0:31 /b\\134x /c\\011d rw shared:9 - cgroup cgroup rw,cpuset\n35 31\n")},
	}
	var got []Point
	add := func(p Point) { got = append(got, p) }
	if err := Table(root, add); err != nil {
		t.Error(err)
	}
	if err := Info(root, add); err != nil {
		t.Error(err)
	}
	want := []Point{{Dir: "/dev/huge pages", Type: "hugetlbfs", Options: []string{"rw", "pagesize=2M"}},
		{Dir: "/c\td", Type: "cgroup", Root: `/b\x`, Options: []string{"rw", "cpuset"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, broken := range map[string]fstest.MapFS{
		"none": {}, "a directory": {"proc/mounts/x": {}}, "a long line": {"proc/self/mounts": {Data: make([]byte, 2<<20)}}} {
		if err := Table(broken, add); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
