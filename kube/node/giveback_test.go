package node

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/nri/pkg/api"

	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/kube/offer"
)

// A pod's cgroup that was made beside a lane lacks its CPUs when the lane has gone before the first container is made.
func TestMadeNarrow(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.CPUs(2))
	const cpusets = "/sys/fs/cgroup/cpuset"
	all, err := os.ReadFile(cpusets + "/cpuset.effective_cpus")
	if err != nil {
		t.Skip("skipped: needs cgroup v1")
	}
	above := filepath.Join(cpusets, "isolane-test-narrow")
	pod := filepath.Join(above, "pod")
	for _, dir := range []string{above, pod} {
		if err = os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = os.Remove(dir) }()
	}
	write := func(dir, cpus string) {
		t.Helper()
		if err = os.WriteFile(dir+"/cpuset.cpus", []byte(cpus), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(above, string(all))
	sandbox := &api.PodSandbox{Linux: &api.LinuxPodSandbox{CgroupsPath: "/isolane-test-narrow/pod/container"}}
	r := &runtime{Node: &Node{cpusets: cpusets, partition: offer.Cpusets}}
	for cpus, narrow := range map[string]bool{"0": true, string(all): false} {
		if write(pod, cpus); r.madeNarrow(sandbox) != narrow {
			t.Errorf("CPUs %s of %s: expected narrow: %v", cpus, all, narrow)
		}
	}
	write(pod, "0")
	for _, other := range []*runtime{{Node: &Node{cpusets: cpusets, partition: offer.Cpusets, unified: true}}, {Node: &Node{cpusets: cpusets}}} {
		if other.madeNarrow(sandbox) {
			t.Errorf("%+v: the kernel sees to this", other.Node)
		}
	}
}
