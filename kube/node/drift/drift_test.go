package drift

import (
	"slices"
	"testing"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/plan"
)

// A drift concerns the lane whose cgroup or CPU it is, or whose CPUs somebody else has by it.
func TestLanesOf(t *testing.T) {
	lane := func(name, cpus, idle string) enforce.LaneGroup {
		return enforce.LaneGroup{Lane: plan.Lane{Name: name, CPUs: cpuset.MustParse(cpus), Idle: cpuset.MustParse(idle)}}
	}
	all := []enforce.LaneGroup{lane("a", "2", "6"), lane("b", "3", "7")}
	places := map[string][]string{"a": {"/sys/fs/cgroup/cpuset/kubepods/pod1/c1", ""}, "b": {"/sys/fs/cgroup/cpuset/isolane-b"}}
	for target, c := range map[string]struct {
		expected, found string
		want            []string
	}{
		"/proc/irq/30/smp_affinity_list":                          {"0-1", "0-2", []string{"a"}},
		"/proc/irq/31/smp_affinity_list":                          {"0-1", "0-7", []string{"a", "b"}},
		"/proc/irq/32/smp_affinity_list":                          {"3", "0", []string{"b"}}, // of its own card
		"/proc/irq/default_smp_affinity":                          {"33", "77", []string{"a"}},
		"/sys/devices/virtual/workqueue/cpumask":                  {"33", "3f", []string{"a", "b"}},
		"/sys/devices/virtual/workqueue/writeback/cpumask":        {"33", "13", []string{""}}, // no lane's
		"/sys/devices/system/cpu/cpu7/power/pm_qos_resume":        {"0", "n/a", []string{"b"}},
		"/sys/devices/system/cpu/cpufreq/policy2/scaling_max":     {"1", "2", []string{"a"}},
		"/sys/fs/cgroup/cpuset/kubepods/pod1/c1/cpuset.mems":      {"0", "1", []string{"a"}},
		"/sys/fs/cgroup/cpuset/isolane-b/memory.swappiness":       {"0", "60", []string{"b"}},
		"/sys/fs/cgroup/cpuset/kubepods/besteffort/x/cpuset.cpus": {"0-1", "0-2", []string{"a"}},
		"117:2233":                             {"0-1", "0-1,7", []string{"b"}}, // a kernel thread
		"/proc/sys/kernel/sched_rt_runtime_us": {"-1", "950000", []string{""}},
		"/proc/sys/net/core/something":         {"2", "3", []string{""}},
	} {
		d := enforce.Drift{Name: target, Expected: c.expected, Found: c.found, Step: journal.Step{Target: target}}
		if got := lanesOf(d, all, places); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, expected %q", target, got, c.want)
		}
	}
}

func TestDescribe(t *testing.T) {
	d := enforce.Drift{Name: "/proc/irq/30/smp_affinity_list", Expected: "0", Found: "0-1", By: "irqbalance (process 12)"}
	for _, c := range []struct {
		repaired bool
		note     string
		want     string
	}{
		{true, "", "/proc/irq/30/smp_affinity_list: expected 0, found 0-1, set by irqbalance (process 12): put back"},
		{false, "it stays", "/proc/irq/30/smp_affinity_list: expected 0, found 0-1: it stays"},
	} {
		if d.Repaired, d.Note = c.repaired, c.note; describe(d) != c.want {
			t.Errorf("%s", describe(d))
		}
	}
}
