package unit

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/plan"
)

// Units that ask for a lane's CPUs are named, with the file that decides.
func TestAskingCPUs(t *testing.T) {
	placed := plan.Placement{Lanes: []plan.Lane{{Name: "web", CPUs: cpuset.Of(2, 3)}}}
	root := fstest.MapFS{}
	for name, text := range map[string]string{
		"run/systemd/system/x":                                                 "",
		"usr/lib/systemd/system/pinned.service":                                "[Service]\nCPUAffinity=2 3\n",
		"usr/lib/systemd/system/range.service":                                 "[Service]\nCPUAffinity=0-1\nCPUAffinity=3\n",
		"usr/lib/systemd/system/free.service":                                  "[Service]\nCPUAffinity=0,1\n",
		"usr/lib/systemd/system/numa.service":                                  "[Service]\nCPUAffinity=numa\n",
		"usr/lib/systemd/system/shadowed.service":                              "[Service]\nCPUAffinity=2\n",
		"etc/systemd/system/shadowed.service":                                  "[Service]\nAllowedCPUs=2-3\n",
		"usr/lib/systemd/system/reset.service":                                 "[Service]\nCPUAffinity=2\n",
		"etc/systemd/system/reset.service.d/10-none.conf":                      "[Service]\nCPUAffinity=\n",
		"run/systemd/system.control/system.slice.d/50-AllowedCPUs.conf":        "[Slice]\nAllowedCPUs=0-3\n",
		"etc/systemd/system.control/backup.service.d/50-AllowedCPUs.conf":      "[Service]\nAllowedCPUs=3 1\n",
		"usr/lib/systemd/system/continued.service":                             "[Service]\nCPUAffinity=0 \\\n 2\n",
		"etc/systemd/system/multi-user.target.wants/pinned.service/not-a-file": "",
	} {
		root[name] = &fstest.MapFile{Data: []byte(text)}
	}
	units, err := AskingCPUs(root, placed)
	var got []string
	for _, u := range units {
		got = append(got, u.String())
	}
	want := []string{
		"backup.service: AllowedCPUs=1,3 (/etc/systemd/system.control/backup.service.d/50-AllowedCPUs.conf): it loses CPUs 3",
		"continued.service: CPUAffinity=0,2 (/usr/lib/systemd/system/continued.service): it loses CPUs 2",
		"pinned.service: CPUAffinity=2-3 (/usr/lib/systemd/system/pinned.service): these are lanes' CPUs, it will not start any more",
		"range.service: CPUAffinity=0-1,3 (/usr/lib/systemd/system/range.service): it loses CPUs 3",
		"shadowed.service: AllowedCPUs=2-3 (/etc/systemd/system/shadowed.service): these are lanes' CPUs, it gets those of its slice",
	}
	if err != nil || cmp.Diff(want, got) != "" {
		t.Error(err, cmp.Diff(want, got))
	}
	delete(root, "run/systemd/system/x")
	if units, err = AskingCPUs(root, placed); err != nil || len(units) > 0 {
		t.Errorf("without systemd: %v, %v", units, err)
	}
}
