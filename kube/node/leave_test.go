package node

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/kube/ask"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
)

// What the node part has left is removed, and nothing else, and only if no pod has a lane.
func TestLeave(t *testing.T) {
	n := testNode(t, nil, filepath.Join(t.TempDir(), "isolane"))
	n.CDI, n.Kubelet, n.Hook = t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "hook")
	ours := []string{n.cdiFile(string(uidOf("gone"))), filepath.Join(n.CDI, ".isolane-12"), filepath.Dir(n.hookPath())}
	others := []string{filepath.Join(n.CDI, "nvidia.com-gpu-1.json"), filepath.Join(n.Kubelet, "plugins", "nvidia")}
	for _, name := range append([]string{n.Hook, others[0]}, ours[:2]...) {
		if err := os.WriteFile(name, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(n.installHook(), os.Mkdir(others[1], 0o700)); err != nil {
		t.Fatal(err)
	}
	there := func(want bool, names ...string) {
		t.Helper()
		for _, name := range names {
			if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) == want {
				t.Errorf("%s: %v: expected it there: %t", name, err, want)
			}
		}
	}
	placed := func(name string) {
		recordLanes(t, n.Lanes.Dir, plan.Lane{Name: name, CPUs: cpuset.Of(1), Spec: lane.Spec{CPUs: lane.CPUs{Count: 1}}, Reasons: []string{}})
	}
	of := ask.Name(string(uidOf("edge")), 0)
	placed(of)
	if err := Leave(t.Context(), n.Config); err == nil || !strings.HasPrefix(err.Error(), "lanes "+of+": expected none of pods in force") {
		t.Error(err)
	}
	there(true, append(ours, others...)...)
	placed("of-the-host")
	for range 2 {
		if err := Leave(t.Context(), n.Config); err != nil {
			t.Error(err)
		}
	}
	there(false, ours...)
	there(true, others...)
}
