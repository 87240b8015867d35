package knob

import (
	"fmt"
	"io/fs"
	"path"
	"strings"

	"isolane.dev/isolane/change/systemd"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/plan"
)

// units limits what systemd starts to the housekeeping CPUs, with cgroup v2 if systemd is process 1. This
// also makes systemd need the cpuset controller at the root: if no unit needs it, systemd disables it there,
// and all lanes with it, when it starts a unit that needs another controller (systemd#38547, "not a bug").
//
// Lanes are at the root, not in a unit with Delegate=. Such a unit needs a process that lives as long as the
// lanes, with a CPU or cpuset.cpus.exclusive (Linux 6.7), and systemctl stop would end all workloads.
func units(v View, p plan.Placement) ([]journal.Step, error) {
	root, v2, err := cpusetRoot(v.Host)
	if err != nil || !v2 {
		return nil, err
	}
	if _, err = fs.Stat(v.Root, "run/systemd/system"); err != nil { // sd_booted(3)
		return nil, nil // no systemd
	}
	var steps []journal.Step
	others := v.otherCPUs(p)
	// This includes units that do not exist yet: a slice that is started with a lane's CPUs would make the
	// lane's partition invalid. And a slice that was set before it starts shows no drift when it does.
	for _, name := range ManagedUnits() {
		target := systemd.UnitTarget(name, "AllowedCPUs")
		file := strings.TrimPrefix(path.Join(root, name, "cpuset.cpus"), "/")
		text, _ := fs.ReadFile(v.Root, file) // empty: not set
		now, err := cpuset.Parse(trim(text))
		if err != nil {
			return nil, err
		}
		before := v.cpusBefore(systemd.KindUnit, target, now)
		// This file takes precedence over what is set until the next boot.
		last := path.Join("etc/systemd/system.control", name+".d", "50-AllowedCPUs.conf")
		if _, err = fs.Stat(v.Root, last); err == nil && !before.IsSubsetOf(others) {
			return nil, fmt.Errorf("/%s: the CPUs %s would come back with a daemon-reload, and end the lanes: "+
				"systemctl set-property %s AllowedCPUs=%s", last, before, name, others)
		}
		to := before.Intersection(others)
		if to.IsEmpty() {
			to = others
		}
		for _, l := range p.Lanes { // a plain cpuset can only have CPUs of those above it
			if l.Spec.Cgroup.Partition == Member && strings.HasPrefix(v.Own[l.Name], path.Join(root, name)+"/") {
				to = to.Union(l.CPUs)
			}
		}
		steps = append(steps, journal.Step{Kind: systemd.KindUnit, Target: target, After: to.String()})
	}
	return steps, nil
}

// ManagedUnits returns the units that hold all that systemd starts.
func ManagedUnits() []string {
	return []string{"init.scope", "system.slice", "user.slice", "machine.slice"}
}

// unitDefaults gives units back the CPUs that were taken until the next boot.
func unitDefaults(u *Unrecorded) error {
	for _, name := range ManagedUnits() {
		if exists(u.Root, path.Join("run/systemd/system.control", name+".d", "50-AllowedCPUs.conf")) {
			u.addStep(journal.Step{Kind: systemd.KindUnit, Target: systemd.UnitTarget(name, "AllowedCPUs")})
		}
	}
	return nil
}
