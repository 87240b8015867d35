package running

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"isolane.dev/isolane/enforce/attached"
)

// A container of a pod and the pod itself have quotas, which the lane lifts; that of the class above is left.
func TestNoQuota(t *testing.T) {
	for name, c := range map[string]struct {
		v2          bool
		files       map[string]string
		group, want string
	}{
		"v1": {false, map[string]string{
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1", "sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_quota_us": "400000",
			"sys/fs/cgroup/cpu,cpuacct/docker/c1/cpu.cfs_quota_us":      "400000",
			"sys/fs/cgroup/cpu,cpuacct/docker/c1/init/cpu.cfs_quota_us": "400000",
		}, "/sys/fs/cgroup/cpuset/docker/c1/init", `file /sys/fs/cgroup/cpu,cpuacct/docker/c1/cpu.cfs_quota_us -> -1
file /sys/fs/cgroup/cpu,cpuacct/docker/c1/init/cpu.cfs_quota_us -> -1
`},
		"v2": {true, map[string]string{"sys/fs/cgroup/docker/cpu.max": "400000 100000", "sys/fs/cgroup/docker/c1/cpu.max": "max 100000",
			"sys/fs/cgroup/docker/c1/init/cpu.max": "400000 100000"},
			"/sys/fs/cgroup/docker/c1/init", "file /sys/fs/cgroup/docker/c1/init/cpu.max -> max 100000\n"},
		"no controller": {true, nil, "/sys/fs/cgroup/docker/c1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := machine(t, c.v2)
			write(root, c.files)
			if !c.v2 {
				root["proc/self/mounts"].Data = append(root["proc/self/mounts"].Data, "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n"...)
			}
			l := laneA(nil)
			for _, lifts := range []bool{true, false} {
				steps, _, err := Steps(read(t, root), root, l, c.group, attached.Workload{Group: c.group, Own: true, NoQuota: lifts}, nil)
				want := map[bool]string{true: c.want}[lifts]
				if d := cmp.Diff(want, lines(steps)); d != "" || err != nil {
					t.Errorf("quotas are lifted: %t: %v (-want +got):\n%s", lifts, err, d)
				}
			}
		})
	}
}
