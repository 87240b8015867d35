package enforce

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/plan"
)

// idleStates keeps the lanes' CPUs, also those kept idle, in the shallowest idle state.
func idleStates(v View, p plan.Placement) ([]journal.Step, error) { return Awake(v, p.CPUs()) }

// Awake returns the steps that keep CPUs from idling deeply: "n/a" in pm_qos_resume_latency_us means
// that no resume latency at all is acceptable, so the CPU polls
// (Documentation/ABI/testing/sysfs-devices-power). Where the kernel lacks that, each state but the first is
// disabled (Documentation/admin-guide/pm/cpuidle.rst).
func Awake(v View, cpus cpuset.Set) ([]journal.Step, error) {
	var steps []journal.Step
	for c := range cpus.All() {
		dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d", c)
		latency := dir + "/power/pm_qos_resume_latency_us"
		if _, err := fs.Stat(v.Root, latency); err == nil {
			steps = append(steps, file("/"+latency, "n/a"))
			continue
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		states, err := fs.Glob(v.Root, dir+"/cpuidle/state[1-9]*/disable")
		if err != nil {
			return nil, err
		}
		for _, s := range states {
			steps = append(steps, file("/"+s, "1"))
		}
	}
	return steps, nil
}

func idleStateFiles() []string {
	const cpu = "/sys/devices/system/cpu/cpu[0-9]*/"
	return []string{cpu + "power/pm_qos_resume_latency_us", cpu + "cpuidle/state[0-9]*/disable"}
}

// governors keeps the lanes' CPUs at their highest frequency (Documentation/admin-guide/pm/cpufreq.rst). A
// policy that also has CPUs of others is theirs too: there is one frequency for all.
func governors(v View, p plan.Placement) ([]journal.Step, error) {
	var steps []journal.Step
	policies, err := fs.Glob(v.Root, "sys/devices/system/cpu/cpufreq/policy*/scaling_governor")
	for _, name := range policies {
		affected := path.Join(path.Dir(name), "affected_cpus")
		list, rerr := fs.ReadFile(v.Root, affected)
		if rerr != nil {
			return nil, rerr
		}
		cpus, rerr := parseSpaced(trim(list))
		if rerr != nil {
			return nil, fmt.Errorf("/%s: %w", affected, rerr)
		}
		if cpus.Intersects(p.CPUs()) {
			steps = append(steps, optional(file("/"+name, "performance")))
		}
	}
	return steps, err
}

func governorFiles() []string {
	return []string{"/sys/devices/system/cpu/cpufreq/policy[0-9]*/scaling_governor"}
}

// parseSpaced reads CPUs as cpufreq prints them: "0 1 2".
func parseSpaced(text string) (cpuset.Set, error) {
	return cpuset.Parse(strings.Join(strings.Fields(text), ","))
}
