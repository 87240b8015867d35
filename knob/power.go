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

// idleStates keeps the lanes' CPUs in the shallowest idle state. It leaves out siblings that are kept idle: a
// core idles no deeper than its other thread allows (Documentation/admin-guide/pm/cpuidle.rst), and a polling
// sibling would use part of the core.
func idleStates(v View, p plan.Placement) ([]journal.Step, error) {
	var cpus cpuset.Set
	for _, l := range p.Lanes {
		cpus = cpus.Union(l.CPUs)
	}
	return Awake(v, cpus)
}

// Awake returns the steps that keep CPUs from idling deeply. The value "n/a" of pm_qos_resume_latency_us
// allows no resume latency at all, so the CPU polls (Documentation/ABI/testing/sysfs-devices-power). If the
// kernel lacks that file, all idle states but the first are disabled
// (Documentation/admin-guide/pm/cpuidle.rst).
func Awake(v View, cpus cpuset.Set) ([]journal.Step, error) {
	var steps []journal.Step
	for c := range cpus.All() {
		dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d", c)
		latency := dir + "/power/pm_qos_resume_latency_us"
		if _, err := fs.Stat(v.Root, latency); err == nil {
			steps = append(steps, fileStep("/"+latency, "n/a"))
			continue
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		states, err := fs.Glob(v.Root, dir+"/cpuidle/state[1-9]*/disable")
		if err != nil {
			return nil, err
		}
		for _, s := range states {
			steps = append(steps, fileStep("/"+s, "1"))
		}
	}
	return steps, nil
}

func idleStateFiles() []string {
	const cpu = "/sys/devices/system/cpu/cpu[0-9]*/"
	return []string{cpu + "power/pm_qos_resume_latency_us", cpu + "cpuidle/state[0-9]*/disable"}
}

// governors keeps the lanes' CPUs at their highest frequency (Documentation/admin-guide/pm/cpufreq.rst). A
// frequency policy with a CPU of a lane is set as a whole: all its CPUs have one frequency.
func governors(v View, p plan.Placement) ([]journal.Step, error) {
	policies, err := policies(v.Root)
	var steps []journal.Step
	for _, name := range slices.Sorted(maps.Keys(policies)) {
		if policies[name].Intersects(p.CPUs()) {
			steps = append(steps, optional(fileStep("/"+name, "performance")))
		}
	}
	return steps, err
}

// policies returns the governor files of all frequency policies, with the CPUs of each. It leaves out
// policies whose CPUs are all offline: the kernel keeps those, but does not let them be read
// (drivers/cpufreq/cpufreq.c, show).
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
		cpus, rerr := cpuset.Parse(strings.Join(strings.Fields(string(list)), ",")) // the list is like "0 1 2"
		if rerr != nil {
			return nil, fmt.Errorf("/%s: %w", affected, rerr)
		}
		if !cpus.IsEmpty() { // before Linux 5.19 it is empty if all are offline
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
			continue // not as lanes set it
		}
		// Idle states have this file since Linux 5.6.
		usual, _ := fs.ReadFile(u.Root, path.Join(path.Dir(s.Target), "default_status")[1:])
		if trim(usual) != "disabled" {
			s.After = "0"
			u.addStep(s)
		}
	}
	return err
}

// governorDefaults gives lanes the governor of the CPUs that no lane had, if these agree.
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
			u.addUnknown("/"+name, "performance, and what it was before is not known")
			continue
		}
		u.addStep(fileStep("/"+name, others[0]))
	}
	return nil
}
