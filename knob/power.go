package knob

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/plan"
)

// idleStates keeps the lanes' CPUs in the shallowest idle state. Those kept idle may sleep deeply: the core
// goes no deeper than its other thread asks for (Documentation/admin-guide/pm/cpuidle.rst), and a thread that
// polls takes part of the core.
func idleStates(v View, p plan.Placement) ([]journal.Step, error) {
	var cpus cpuset.Set
	for _, l := range p.Lanes {
		cpus = cpus.Union(l.CPUs)
	}
	return Awake(v, cpus)
}

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
	policies, err := policies(v.Root)
	var steps []journal.Step
	for _, name := range slices.Sorted(maps.Keys(policies)) {
		if policies[name].Intersects(p.CPUs()) {
			steps = append(steps, optional(file("/"+name, "performance")))
		}
	}
	return steps, err
}

// policies are the files of all frequency policies with their governor, and the CPUs of each; not those of
// which all CPUs are offline, which the kernel keeps and does not read (drivers/cpufreq/cpufreq.c, show).
func policies(root fs.FS) (map[string]cpuset.Set, error) {
	found := map[string]cpuset.Set{}
	files, err := fs.Glob(root, "sys/devices/system/cpu/cpufreq/policy*/scaling_governor")
	for _, name := range files {
		affected := path.Join(path.Dir(name), "affected_cpus")
		list, rerr := fs.ReadFile(root, affected)
		if errors.Is(rerr, unix.EBUSY) {
			continue
		}
		if rerr != nil {
			return nil, rerr
		}
		cpus, rerr := cpuset.Parse(strings.Join(strings.Fields(string(list)), ",")) // as in "0 1 2"
		if rerr != nil {
			return nil, fmt.Errorf("/%s: %w", affected, rerr)
		}
		if !cpus.IsEmpty() { // as offline ones are before Linux 5.19
			found[name] = cpus
		}
	}
	return found, err
}

func governorFiles() []string {
	return []string{"/sys/devices/system/cpu/cpufreq/policy[0-9]*/scaling_governor"}
}

func idleStateDefaults(u *Unrecorded) error {
	awake, err := Awake(View{Root: u.Root, Host: u.Host}, u.Lanes)
	for _, s := range awake {
		text, rerr := fs.ReadFile(u.Root, s.Target[1:])
		if rerr != nil || trim(text) != s.After {
			continue // not as lanes want it
		}
		// Idle states have it since Linux 5.6.
		usual, _ := fs.ReadFile(u.Root, path.Join(path.Dir(s.Target), "default_status")[1:])
		if trim(usual) != "disabled" {
			s.After = "0"
			u.set(s)
		}
	}
	return err
}

// governorDefaults are those of the CPUs that no lane had, where these agree.
func governorDefaults(u *Unrecorded) error {
	policies, err := policies(u.Root)
	if err != nil {
		return err
	}
	var ours, others []string
	for name, cpus := range policies {
		governor, _ := fs.ReadFile(u.Root, name)
		switch {
		case !cpus.Intersects(u.Lanes):
			others = append(others, trim(governor))
		case trim(governor) == "performance":
			ours = append(ours, name)
		}
	}
	slices.Sort(ours)
	slices.Sort(others)
	for _, name := range ours {
		if len(others) == 0 || others[0] != others[len(others)-1] {
			u.unknown("/"+name, "performance, and what it was before is not known")
			continue
		}
		u.set(file("/"+name, others[0]))
	}
	return nil
}
