package change

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"isolane.dev/isolane/journal"
)

func TestFileAndGroup(t *testing.T) {
	root := t.TempDir()
	const knob, made = "/sys/devices/virtual/workqueue/cpumask", "/sys/isolane-made"
	if err := os.MkdirAll(filepath.Join(root, filepath.Dir(knob)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, knob), []byte("0-1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(filepath.Join(t.TempDir(), "run"), "test", Ops(root, knob))
	if err != nil {
		t.Fatal(err)
	}
	_, err = j.Apply(t.Context(), []journal.Step{{Kind: "cgroup", Target: made, After: Present},
		{Kind: "attribute", Target: made + "/cpuset.cpus", After: "1"}, {Kind: "file", Target: knob, After: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	if data, rerr := os.ReadFile(filepath.Join(root, made, "cpuset.cpus")); rerr != nil || string(data) != "1\n" {
		t.Error(data, rerr)
	}
	if err = errors.Join(j.Undo(t.Context()), j.Close()); err != nil {
		t.Error(err)
	}
	data, err := os.ReadFile(filepath.Join(root, knob))
	if err != nil || string(data) != "0-1\n" {
		t.Errorf("knob %q, %v", data, err)
	}
	if _, err := os.Stat(filepath.Join(root, made)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("directory still there: %v", err)
	}
}

// irqbalance moves an interrupt among the CPUs that lanes leave it: that is no drift, and is taken back with the rest.
// What Isolane itself had set for fewer CPUs is widened.
func TestInterruptNarrowed(t *testing.T) {
	root := t.TempDir()
	const irq = "/proc/irq/9/smp_affinity_list"
	file := filepath.Join(root, irq)
	write := func(cpus string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(cpus), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write("0-3")
	j, err := journal.Open(filepath.Join(t.TempDir(), "run"), "test", Ops(root, irq))
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ now, to, want string }{
		{"0-3", "0", "0"}, {"0", "0-1", "0-1"}, {"1", "0-1", "1"}, {"1-2", "0-1", "0-1"}, {"", "0-1", "0-1"}, {"1", "0-1", "1"},
	} {
		write(step.now)
		_, err = j.Apply(t.Context(), []journal.Step{{Kind: KindFile, Target: irq, After: step.to}})
		if data, rerr := os.ReadFile(file); errors.Join(err, rerr) != nil || strings.TrimSpace(string(data)) != step.want {
			t.Errorf("%q to %q: %q, %v, %v", step.now, step.to, data, err, rerr)
		}
	}
	err = errors.Join(j.Undo(t.Context()), j.Close())
	if data, rerr := os.ReadFile(file); errors.Join(err, rerr) != nil || string(data) != "0-3\n" {
		t.Errorf("undone: %q, %v, %v", data, err, rerr)
	}
}

// A file that shows its choices, and the one in force in brackets, is held against that, and has it back.
func TestChoice(t *testing.T) {
	root := t.TempDir()
	const knob = "/sys/kernel/mm/transparent_hugepage/defrag"
	file := filepath.Join(root, knob)
	write := func(text string) error { return os.WriteFile(file, []byte(text), 0o600) }
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), write("always [madvise] never\n")); err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(filepath.Join(t.TempDir(), "run"), "test", Ops(root, knob))
	if err != nil {
		t.Fatal(err)
	}
	never := []journal.Step{{Kind: KindFile, Target: knob, After: "never"}}
	_, err = j.Apply(t.Context(), never)
	if err = errors.Join(err, write("always madvise [never]\n")); err != nil { // what the kernel makes of it
		t.Fatal(err)
	}
	if missing, merr := j.Missing(t.Context(), never); merr != nil || len(missing) > 0 {
		t.Errorf("missing: %v, %v", missing, merr)
	}
	err = errors.Join(j.Undo(t.Context()), j.Close())
	if data, rerr := os.ReadFile(file); errors.Join(err, rerr) != nil || string(data) != "madvise\n" {
		t.Errorf("undone: %q, %v, %v", data, err, rerr)
	}
}

// The governor of CPUs that are offline can be neither read nor written (a directory, here): nothing is missing, and it
// is taken back when they are online again.
func TestGovernorOffline(t *testing.T) {
	root := t.TempDir()
	const policy = "/sys/devices/system/cpu/cpufreq/policy2/"
	governor, cpus := filepath.Join(root, policy, "scaling_governor"), filepath.Join(root, policy, "affected_cpus")
	write := func(name, text string) error { return os.WriteFile(name, []byte(text+"\n"), 0o600) }
	if err := errors.Join(os.MkdirAll(filepath.Dir(governor), 0o700), write(governor, "powersave"), write(cpus, "2 3")); err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(filepath.Join(t.TempDir(), "run"), "test", Ops(root, policy+"scaling_governor"))
	if err != nil {
		t.Fatal(err)
	}
	step := journal.Step{Kind: KindFile, Target: policy + "scaling_governor", After: "performance", Optional: true}
	if refused, aerr := j.Apply(t.Context(), []journal.Step{step}); len(refused) > 0 || aerr != nil {
		t.Fatal(refused, aerr)
	}
	undo := func() error {
		left, uerr := j.UndoWhere(t.Context(), func(journal.Step) bool { return true })
		if len(left) > 0 {
			t.Error(left)
		}
		return uerr
	}
	if err = errors.Join(os.Remove(governor), os.Mkdir(governor, 0o700), write(cpus, "")); err != nil {
		t.Fatal(err)
	}
	if missing, merr := j.Missing(t.Context(), nil); merr != nil || len(missing) > 0 {
		t.Errorf("missing: %v, %v", missing, merr)
	}
	if err = undo(); err != nil || len(j.Waiting()) != 1 || len(j.Pending()) != 1 {
		t.Errorf("offline: %v, waiting %v, pending %v", err, j.Waiting(), j.Pending())
	}
	if err = errors.Join(os.Remove(governor), write(governor, "performance"), write(cpus, "2 3"), undo(), j.Close()); err != nil {
		t.Error(err)
	}
	if data, rerr := os.ReadFile(governor); rerr != nil || string(data) != "powersave\n" {
		t.Errorf("online again: %q, %v", data, rerr)
	}
}

// A pool of hugepages has at once what the kernel finds of what is asked for, and what it cannot free yet is more than
// that. Only what is beyond the steps is somebody else's.
func TestPool(t *testing.T) {
	const pool = "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages"
	for _, c := range []struct {
		about          string
		recorded       journal.Step
		now, surplus   string
		to, then, left string
	}{
		{"a change that found some of its pages goes back", journal.Step{Before: "0", After: "60", Replaced: "10"}, "50", "0", "10", "10", "0"},
		{"so does a first one", journal.Step{Before: "3", After: "60"}, "50", "0", "", "", "3"},
		{"killed on its way back", journal.Step{Before: "0", After: "10", Replaced: "60"}, "35", "0", "10", "35", "0"},
		{"killed before any", journal.Step{Before: "0", After: "10", Replaced: "60"}, "60", "0", "10", "10", "0"},
		{"somebody added 20", journal.Step{Before: "5", After: "10"}, "30", "0", "10", "30", "25"},
		{"somebody added 20 besides", journal.Step{Before: "5", After: "10", Replaced: "25"}, "45", "0", "", "", "25"},
		{"40 are freed later", journal.Step{Before: "5", After: "10"}, "50", "40", "10", "50", "5"},
		{"somebody took some", journal.Step{Before: "5", After: "10"}, "4", "0", "", "", "4"},
	} {
		t.Run(c.about, func(t *testing.T) {
			root := t.TempDir()
			file := filepath.Join(root, pool)
			err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(c.now), 0o600),
				os.WriteFile(filepath.Join(filepath.Dir(file), "surplus_hugepages"), []byte(c.surplus), 0o600))
			if err != nil {
				t.Fatal(err)
			}
			j, err := journal.Open(filepath.Join(t.TempDir(), "run"), "test", Ops(root, pool))
			if err != nil {
				t.Fatal(err)
			}
			has := func(want string) {
				t.Helper()
				if data, rerr := os.ReadFile(file); rerr != nil || strings.TrimSpace(string(data)) != want {
					t.Errorf("%s, want %s, %v", data, want, rerr)
				}
			}
			c.recorded.Kind, c.recorded.Target = KindFile, pool
			if err = j.Adopt(c.recorded); err != nil {
				t.Fatal(err)
			}
			if want := (journal.Step{Kind: KindFile, Target: pool, After: c.to}); c.to != "" {
				inForce, _, ferr := j.InForce(t.Context(), want)
				_, err = j.Apply(t.Context(), []journal.Step{want})
				killed := c.recorded.After == c.to && c.recorded.Replaced != "" // only who goes on knows of that
				if has(c.then); !killed && inForce != (c.then == c.now) || errors.Join(ferr, err) != nil {
					t.Errorf("in force: %v, %v, %v", inForce, ferr, err)
				}
			}
			left, err := j.UndoWhere(t.Context(), func(journal.Step) bool { return true })
			if has(c.left); err != nil || len(left) > 0 != (c.now == "4") || j.Close() != nil {
				t.Error(left, err)
			}
		})
	}
}

// When a partition goes, interrupts whose threads no longer follow them are set again, and no others.
func TestInterruptThreads(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	const partition = "/sys/fs/cgroup/web/cpuset.cpus.partition"
	write(partition, "member\n")
	for pid, of := range map[int]struct{ comm, irq, allowed, fires string }{
		51: {"irq/25-aerdrv", "25", "0-3", "3"}, 52: {"irq/25-pciehp", "25", "0-3", "3"},
		53: {"irq/9-acpi", "9", "1", "1"}, 54: {"irq/26-gone", "26", "0-3", ""},
	} {
		dir := fmt.Sprintf("/proc/%d/", pid)
		write(dir+"stat", fmt.Sprintf("%d (%s) S 2 0 0 0 -1 %d 0%s\n", pid, of.comm, 0x200000, strings.Repeat(" 0", 43)))
		write(dir+"status", "Cpus_allowed_list:\t"+of.allowed+"\n")
		write("/proc/irq/"+of.irq+"/effective_affinity_list", of.fires+"\n")
		write("/proc/irq/"+of.irq+"/smp_affinity_list", "0-3") // the line feed shows who has written it
	}
	j, err := journal.Open(filepath.Join(t.TempDir(), "run"), "test", Ops(root))
	if err != nil {
		t.Fatal(err)
	}
	set := func(want string) {
		t.Helper()
		found := ""
		for _, irq := range []string{"9", "25", "26"} {
			if data, rerr := os.ReadFile(filepath.Join(root, "proc/irq", irq, "smp_affinity_list")); rerr != nil || strings.HasSuffix(string(data), "\n") {
				found += irq
			}
		}
		if found != want {
			t.Errorf("interrupts %q were set, expected %q", found, want)
		}
	}
	if _, err = j.Apply(t.Context(), []journal.Step{{Kind: KindFile, Target: partition, After: "root"}}); err != nil {
		t.Fatal(err)
	}
	set("")
	if err = errors.Join(j.Undo(t.Context()), j.Close()); err != nil {
		t.Error(err)
	}
	set("25")
}
