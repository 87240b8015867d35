package prove

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"isolane.dev/isolane/prove/testbed"
)

// What is asked to be in pods, and cannot, is refused before the host is touched.
func TestPodsAsked(t *testing.T) {
	o, err := Request{Runtime: testbed.Pod, Kinds: kinds(), Dir: "d"}.Options()
	if err != nil || !o.Pods || o.Scenario.Spec.Baseline != "quiet-floating" {
		t.Errorf("%v: %+v", err, o.Scenario.Spec.Baseline)
	}
	if _, err = (Request{Runtime: testbed.Pod, Kinds: kinds(), Cells: []string{"quiet-floating", "noisy-pinned"}}).Options(); err == nil ||
		!strings.Contains(err.Error(), `"noisy-pinned" is excluded: a cpuset of its own is what the kubelet's CPU manager gives`) {
		t.Error(err)
	}
	if _, err = (Request{Runtime: "vm", Kinds: kinds()}).Options(); err == nil || err.Error() != `--runtime: "vm": expected pod` {
		t.Error(err)
	}
}

// An algorithm of TCP that the kernel lets no network namespace have is refused before the first run.
func TestLacksAlgorithm(t *testing.T) {
	s := edge(t)
	root := fstest.MapFS{"proc/sys/net/ipv4/tcp_allowed_congestion_control": {Data: []byte("reno bbr\n")}}
	for name, want := range map[string]string{"": "", "reno": "", "bbr": "", "cubic": `spec.congestionControl: "cubic": expected what this kernel allows in network namespaces: reno, bbr`} {
		s.Spec.CongestionControl = name
		err := lacksAlgorithm(s, root)
		missing, is := errors.AsType[*MissingError](err)
		if is != (want != "") || is && (missing.What != want ||
			missing.Remedy != "name one of these, or: modprobe tcp_cubic; sysctl -w net.ipv4.tcp_allowed_congestion_control='reno bbr cubic'") {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := lacksAlgorithm(s, fstest.MapFS{}); err != nil {
		t.Errorf("a kernel that does not say: %v", err)
	}
}
