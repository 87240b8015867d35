package host

import (
	"slices"
	"strings"
)

func (r *reader) kernel() Kernel {
	k := Kernel{
		Release:      r.text("proc/sys/kernel/osrelease"),
		Version:      r.text("proc/sys/kernel/version"),
		Cmdline:      r.text("proc/cmdline"),
		BootID:       r.text("proc/sys/kernel/random/boot_id"),
		Realtime:     r.text("sys/kernel/realtime") == "1",
		Cgroup:       r.cgroup(),
		Clocksource:  r.text("sys/devices/system/clocksource/clocksource0/current_clocksource"),
		IdleDriver:   r.text(cpuDir + "/cpuidle/current_driver"),
		IdleGovernor: r.text(cpuDir + "/cpuidle/current_governor_ro"),
	}
	if set := r.list(cpuDir + "/isolated"); set != nil {
		k.Isolated = *set
	}
	if set := r.list(cpuDir + "/nohz_full"); set != nil {
		k.NohzFull = *set
	}
	info, _ := r.read("proc/cpuinfo")
	for line := range strings.Lines(info) {
		key, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(key) {
		case "model name":
			k.CPUModel = strings.TrimSpace(value)
		case "flags":
			k.Hypervisor = slices.Contains(strings.Fields(value), "hypervisor")
		case "":
			return k // the other CPUs say the same
		}
	}
	return k
}

// cgroup finds the hierarchies in /proc/mounts (cgroups(7)).
func (r *reader) cgroup() Cgroup {
	var c Cgroup
	v1 := false
	mounts, _ := r.read("proc/mounts")
	for line := range strings.Lines(mounts) {
		f := strings.Fields(line)
		if len(f) < 4 {
			continue
		}
		switch {
		case f[2] == "cgroup2" && c.Unified == nil:
			c.Unified = &f[1]
			c.UnifiedControllers = strings.Fields(r.text(strings.TrimPrefix(f[1], "/") + "/cgroup.controllers"))
		case f[2] == "cgroup":
			v1 = true
			if c.CpusetV1 == nil && slices.Contains(strings.Split(f[3], ","), "cpuset") {
				c.CpusetV1 = &f[1]
			}
		}
	}
	switch {
	case v1 && c.Unified != nil:
		c.Version = "hybrid"
	case v1:
		c.Version = "v1"
	case c.Unified != nil:
		c.Version = "v2"
	default:
		c.Version = "none"
	}
	return c
}
