package change_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/knob"
)

// A journal that names what Isolane does not change is refused, with all files that knobs may write.
func TestCraftedJournal(t *testing.T) {
	boot, err := journal.BootID()
	if err != nil {
		t.Fatal(err)
	}
	victim := filepath.Join(t.TempDir(), "cpuset.cpus") // a known name, but a file of a disk
	for _, crafted := range []journal.Step{
		{Kind: "file", Target: "/etc/passwd", Before: "root::0:0::/:/bin/sh", After: "x"},
		{Kind: "file", Target: "/proc/irq/../sys/kernel/core_pattern", Before: "|/bin/sh", After: "core"},
		{Kind: "file", Target: "/proc/irq/1/smp_affinity_list", Before: "0\n1", After: "1"},
		{Kind: "file", Target: victim, Before: "owned", After: "0"},
		{Kind: "attribute", Target: "/sys/fs/cgroup/system.slice/cpuset.cpus", After: "0"},
		{Kind: "cgroup", Target: "/sys/fs/cgroup/system.slice", After: "present"},
		{Kind: "processes", Target: "/sys/fs/cgroup", After: change.Running},
		{Kind: "tasks", Target: "/sys/fs/cgroup/a", After: "/sys/fs/cgroup/b"},
		{Kind: "task", Target: "1", Before: "0", After: "1"},
		{Kind: "scheduling", Target: "1:2", Before: "deadline 0", After: "fifo 1"},
		{Kind: "affinities", Target: "threads", Before: "noted x", After: "1"},
		{Kind: "affinities", Target: "threads", Before: "noted 1\n1:2=0 /sys/fs/cgroup/a", After: "1"},
		{Kind: "affinities", Target: "1", Before: "noted 1\n1:2=0", After: "1"},
		{Kind: "scheduling", Target: "1:2", Before: "other 0 50000", After: "fifo 100"},
		{Kind: "scheduling", Target: "1", Before: "other 0 50000", After: "fifo 1"},
		{Kind: "member", Target: "1:1", Before: "/etc", After: "/sys/fs/cgroup/isolane-a"},
		{Kind: "member", Target: "1:1", Before: "/sys/fs/cgroup\n1:1= /tmp/x", After: "/sys/fs/cgroup/isolane-a"},
		{Kind: "member", Target: "1:1", Before: "/sys/fs/cgroup\n1:1=0 /sys/fs/cgroup/../../../tmp", After: "/sys/fs/cgroup/isolane-a"},
		{Kind: "cpuset", Target: "/sys/fs/cgroup/cpuset/a/cpuset.cpus", Before: "0\n1:1=0 /sys/fs/cgroup/cpuset/b", After: "1"},
		{Kind: "keeper", Target: "/sys/fs/cgroup/system.slice", After: change.Running},
		{Kind: "keeper", Target: "/sys/fs/cgroup/system.slice/isolane-1", Before: change.Running},
		{Kind: "controller", Target: "/sys/fs/cgroup:devices", After: "devices"},
		{Kind: "netns", Target: "../../etc"},
		{Kind: "sysctl", Target: "x:kernel/core_pattern", Before: "|sh"},
		{Kind: "link", Target: "eth0"},
		{Kind: "exec", Target: "/bin/sh"},
		{Kind: "scratch", Target: "/etc", After: change.Present},
		{Kind: "scratch", Target: filepath.Dir(victim), After: change.Present},
		{Kind: "scratch", Target: "/tmp/isolane-run-", After: change.Present},
		{Kind: "scratch", Target: "/tmp/isolane-run-a/../isolane-run-b", After: change.Present},
		{Kind: "scratch", Target: "tmp/isolane-run-a", After: change.Present},
		{Kind: "unit", Target: "ssh.service:AllowedCPUs", After: "0"},
		{Kind: "unit", Target: "-.slice:AllowedCPUs", After: "0"},
		{Kind: "unit", Target: "../system.slice:AllowedCPUs", After: "0"},
		{Kind: "unit", Target: "system.slice:ExecStart", After: "0"},
		{Kind: "unit", Target: "system.slice:AllowedCPUs", Before: "0\nExecStart=/bin/sh", After: "0"},
		{Kind: "file", Target: "/proc/sys/kernel/core_pattern", Before: "core", After: "x"},
		{Kind: "file", Target: "/proc/irq/1/smp_affinity", Before: "1", After: "2"},
		{Kind: "attribute", Target: "/sys/devices/virtual/workqueue/isolane-a/cpumask", Before: "1", After: "2"},
	} {
		if err = os.WriteFile(victim, []byte("0"), 0o600); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "run")
		if err = os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		line, err := json.Marshal(map[string]journal.Step{"done": crafted})
		if err != nil {
			t.Fatal(err)
		}
		text := `{"boot":"` + boot + `"}` + "\n" + string(line) + "\n"
		if err = os.WriteFile(filepath.Join(dir, "x.journal"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err = journal.Recover(t.Context(), dir, knob.Ops("/")); err == nil {
			t.Errorf("%s passed", crafted)
		}
		if data, _ := os.ReadFile(victim); string(data) != "0" {
			t.Fatalf("%s wrote %q", crafted, data)
		}
	}
}

// Of the files outside of cgroups only those may be written that a knob declares.
func TestDeclaredFiles(t *testing.T) {
	s := journal.Step{Kind: change.KindFile, Target: "/proc/irq/1/smp_affinity_list", Before: "0", After: "1"}
	if err := change.Ops("/")[change.KindFile].Check(s); err == nil {
		t.Error("passed without a knob that declares it")
	}
	if err := knob.Ops("/")[change.KindFile].Check(s); err != nil {
		t.Error(err)
	}
}

// Whatever a journal says, only what steps may change is named.
func FuzzCheck(f *testing.F) {
	for kind := range knob.Ops("/") {
		f.Add(kind, "/proc/irq/1/smp_affinity_list", "0-1", "0")
		f.Add(kind, "/sys/fs/cgroup/isolane-a/cpuset.cpus", "", "0")
		f.Add(kind, "12:34", "/sys/fs/cgroup\n12:34=0", "/sys/fs/cgroup/isolane-a")
	}
	groupFiles := []string{"cpuset.cpus", "cpuset.mems", "cpuset.cpus.partition", "cpuset.cpus.exclusive",
		"cpuset.sched_load_balance", "cpuset.memory_migrate", "cgroup.subtree_control", "cgroup.procs",
		"memory.swap.max", "memory.swappiness"}
	f.Fuzz(func(t *testing.T, kind, target, before, after string) {
		op, ok := knob.Ops("/")[kind]
		if !ok || op.Check(journal.Step{Kind: kind, Target: target, Before: before, After: after}) != nil {
			return
		}
		switch kind {
		case "file", "attribute", "cgroup", "cpuset", "processes", "tasks":
			if !filepath.IsAbs(target) || filepath.Clean(target) != target {
				t.Errorf("%s %q passed", kind, target)
			}
			known := slices.ContainsFunc([]string{"/proc/irq/", "/proc/sys/", "/sys/devices/"}, func(dir string) bool {
				return strings.HasPrefix(target, dir)
			}) ||
				slices.Contains(groupFiles, filepath.Base(target)) || kind == "tasks"
			if !known && !strings.HasPrefix(filepath.Base(target), change.GroupPrefix) {
				t.Errorf("%s %q passed", kind, target)
			}
		}
	})
}
