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

// units gives what systemd starts the housekeeping CPUs, with cgroup v2 where systemd is process 1. With
// that it needs the cpuset controller at the root itself: where no unit does, it takes the controller away
// there, and all lanes with it, when a unit starts that needs another one (systemd#38547, "not a bug").
//
// Lanes are at the root, and not in a unit with Delegate=: that needs a process that lives as long as they
// do, and a CPU for it or cpuset.cpus.exclusive (Linux 6.7); systemctl stop would end all workloads.
func units(v View, p plan.Placement) ([]journal.Step, error) {
	root, v2, err := cpusetRoot(v.Host)
	if err != nil || !v2 {
		return nil, err
	}
	if _, err = fs.Stat(v.Root, "run/systemd/system"); err != nil { // sd_booted(3)
		return nil, nil // no systemd
	}
	var steps []journal.Step
	others := v.others(p)
	// Also those that are not there yet: a slice whose CPUs are set to those of a lane makes its partition
	// invalid, and one that is set before it starts is no drift when it does.
	for _, name := range ManagedUnits() {
		target := systemd.UnitTarget(name, "AllowedCPUs")
		file := strings.TrimPrefix(path.Join(root, name, "cpuset.cpus"), "/")
		text, _ := fs.ReadFile(v.Root, file) // none: not set
		now, err := cpuset.Parse(trim(text))
		if err != nil {
			return nil, err
		}
		before := v.cpusBefore(systemd.KindUnit, target, now)
		// This file is stronger than what is set until the next boot only.
		last := path.Join("etc/systemd/system.control", name+".d", "50-AllowedCPUs.conf")
		if _, err = fs.Stat(v.Root, last); err == nil && !before.IsSubsetOf(others) {
			return nil, fmt.Errorf("/%s: the CPUs %s would come back with a daemon-reload, and end the lanes: "+
				"systemctl set-property %s AllowedCPUs=%s", last, before, name, others)
		}
		to := before.Intersection(others)
		if to.IsEmpty() {
			to = others
		}
		for _, l := range p.Lanes { // a plain cpuset can only have CPUs that those above it have
			if l.Spec.Cgroup.Partition == Member && strings.HasPrefix(v.Own[l.Name], path.Join(root, name)+"/") {
				to = to.Union(l.CPUs)
			}
		}
		steps = append(steps, journal.Step{Kind: systemd.KindUnit, Target: target, After: to.String()})
	}
	return steps, nil
}

// ManagedUnits are those that hold all that systemd starts.
func ManagedUnits() []string {
	return []string{"init.scope", "system.slice", "user.slice", "machine.slice"}
}

// unitDefaults gives units back the CPUs that were taken until the next boot.
func unitDefaults(u *Unrecorded) error {
	for _, name := range ManagedUnits() {
		if exists(u.Root, path.Join("run/systemd/system.control", name+".d", "50-AllowedCPUs.conf")) {
			u.set(journal.Step{Kind: systemd.KindUnit, Target: systemd.UnitTarget(name, "AllowedCPUs")})
		}
	}
	return nil
}
