package host

import (
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"isolane.dev/isolane/cpuset"
)

func (r *reader) kernel(devices []PCIDevice) Kernel {
	k := Kernel{
		Release:      r.text("proc/sys/kernel/osrelease"),
		Version:      r.text("proc/sys/kernel/version"),
		Cmdline:      r.text("proc/cmdline"),
		BootID:       r.text("proc/sys/kernel/random/boot_id"),
		Isolated:     r.list(cpuDir + "/isolated"),
		NohzFull:     r.list(cpuDir + "/nohz_full"),
		Cgroup:       r.cgroup(),
		Clocksource:  r.text("sys/devices/system/clocksource/clocksource0/current_clocksource"),
		IdleDriver:   r.text(cpuDir + "/cpuidle/current_driver"),
		IdleGovernor: r.text(cpuDir + "/cpuidle/current_governor_ro"),
	}
	if k.Release == "" { // snapshots often have just /proc/version
		k.Release, k.Version = splitVersion(r.text("proc/version"))
	}
	if k.IdleGovernor == "" {
		k.IdleGovernor = r.text(cpuDir + "/cpuidle/current_governor")
	}
	k.RCUNoCBs = r.noCallbacks(k)
	is := r.text("sys/kernel/realtime") == "1" || strings.Contains(k.Version, " PREEMPT_RT")
	if is || k.Version != "" {
		k.Realtime = &is
	}
	k.Preempt = orNull(preempt(k, r.text("sys/kernel/debug/sched/preempt")))
	r.cpuinfo(&k)
	k.Hypervisor = r.guest(k.Flags, devices)
	k.Steal = r.steal()
	for _, name := range r.entries(cpuDir + "/vulnerabilities") {
		if k.Mitigations == nil {
			k.Mitigations = map[string]string{}
		}
		k.Mitigations[name] = r.text(cpuDir + "/vulnerabilities/" + name)
	}
	return k
}

// steal is the eighth column of the first line of /proc/stat, in ticks of USER_HZ, which is 100 on
// every architecture that Isolane runs on (proc_stat(5)).
func (r *reader) steal() *uint64 {
	var steal *uint64
	r.lines("proc/stat", func(line string) bool {
		if f := strings.Fields(line); len(f) > 8 && f[0] == "cpu" {
			if ticks, err := strconv.ParseUint(f[8], 10, 39); err == nil { // 174 years, so that it fits
				ticks *= 1e7
				steal = &ticks
			}
		}
		return false
	})
	return steal
}

// splitVersion takes "Linux version 6.1.0 (builder) #1 SMP" apart (proc_version(5)).
func splitVersion(banner string) (release, version string) {
	if rest, ok := strings.CutPrefix(banner, "Linux version "); ok {
		release, rest, _ = strings.Cut(rest, " ")
		if _, after, found := strings.Cut(rest, " #"); found {
			version = "#" + after
		}
	}
	return release, version
}

// preempt is the preemption model in force: /sys/kernel/debug/sched/preempt marks it as in
// "none voluntary (full)", which only root may read. A kernel without PREEMPT in its version has
// none or voluntary, and does not say which.
func preempt(k Kernel, debug string) string {
	if _, rest, ok := strings.Cut(debug, "("); ok {
		if model, _, closed := strings.Cut(rest, ")"); closed {
			return model
		}
	}
	requested, _ := ParseBootline(k.Cmdline).Get("preempt")
	switch {
	case orZero(k.Realtime):
		return "rt"
	case strings.Contains(k.Version, " PREEMPT_DYNAMIC") && requested != "":
		return requested
	case strings.Contains(k.Version, " PREEMPT_DYNAMIC"):
		return "dynamic"
	case strings.Contains(k.Version, " PREEMPT"):
		return "full"
	}
	return ""
}

// noCallbacks is nil where the command line is not known or wrong.
func (r *reader) noCallbacks(k Kernel) *cpuset.Set {
	if k.Cmdline == "" {
		return nil
	}
	requested, _ := ParseBootline(k.Cmdline).Get("rcu_nocbs")
	set, err := cpuset.ParseWithin(requested, orZero(r.list(cpuDir+"/possible")))
	if err != nil {
		r.warn("/proc/cmdline: rcu_nocbs: %v", err)
		return nil
	}
	set = set.Union(orZero(k.NohzFull))
	return &set
}

// Cgroups reads only where the cgroup hierarchies are mounted, for callers that need no more of the machine.
func Cgroups(root fs.FS) Cgroup {
	r := reader{root: root}
	return r.cgroup()
}

// cgroup finds the hierarchies in /proc/self/mounts (cgroups(7)).
func (r *reader) cgroup() Cgroup {
	var c Cgroup
	v1 := false
	note := func(line string) bool {
		f := strings.Fields(line)
		if len(f) < 4 {
			return true
		}
		at := unescape(f[1])
		switch {
		case f[2] == "cgroup2" && c.Unified == nil:
			c.Unified = &at
		case f[2] == "cgroup":
			v1 = true
			options := strings.Split(f[3], ",")
			if c.CpusetV1 == nil && slices.Contains(options, "cpuset") {
				c.CpusetV1 = &at
			}
			if c.MemoryV1 == nil && slices.Contains(options, "memory") {
				c.MemoryV1 = &at
			}
		}
		return true
	}
	known := r.lines("proc/self/mounts", note) || r.lines("proc/mounts", note)
	switch {
	case !known:
	case v1 && c.Unified != nil:
		c.Version = "hybrid"
	case v1:
		c.Version = "v1"
	case c.Unified != nil:
		c.Version = "v2"
	default:
		c.Version = "none"
	}
	if c.Unified != nil {
		if text, ok := r.read(strings.TrimPrefix(*c.Unified, "/") + "/cgroup.controllers"); ok {
			c.UnifiedControllers = strings.Fields(text)
		}
	}
	return c
}

// unescape undoes what /proc/mounts does to white space (getmntent(3)).
func unescape(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}

// AtLeast says whether the kernel is of this release or a newer one; false where its release is not known.
func (k Kernel) AtLeast(major, minor int) bool {
	var a, b int
	if _, err := fmt.Sscanf(k.Release, "%d.%d", &a, &b); err != nil {
		return false
	}
	return a > major || a == major && b >= minor
}
