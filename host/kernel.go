package host

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/host/cmdline"
)

func (r *reader) kernel(devices []PCIDevice) Kernel {
	k := Kernel{
		Release:      r.text("proc/sys/kernel/osrelease"),
		Version:      r.text("proc/sys/kernel/version"),
		Cmdline:      r.text("proc/cmdline"),
		BootID:       r.text("proc/sys/kernel/random/boot_id"),
		MachineID:    machineID(r.text(MachineIDFile)),
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
	is := r.text("sys/kernel/realtime") == "1" || strings.Contains(k.Version, " PREEMPT_RT") ||
		strings.Contains(k.Version, " PREEMPT RT") // before Linux 5.3, and 4.18 of Red Hat
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

// MachineIDFile has 32 hexadecimal digits that stay the same over reboots (machine-id(5)). They are to be
// kept confidential: Kernel has others in their place, and recordings do not have the file.
const MachineIDFile = "etc/machine-id"

// application is the ID of Isolane among the programs that derive an ID of their own from a machine's.
const application = "2c12768a62e44abdbb53cca0d9cb862f"

// machineID returns what systemd-id128(1) prints for application, from the content of MachineIDFile. "": that
// is no ID.
func machineID(text string) string {
	id, err := hex.DecodeString(text)
	of, _ := hex.DecodeString(application)
	if err != nil || len(id) != len(of) {
		return ""
	}
	mac := hmac.New(sha256.New, id)
	_, _ = mac.Write(of) // never fails
	own := mac.Sum(nil)[:len(of)]
	own[6], own[8] = own[6]&0x0f|0x40, own[8]&0x3f|0x80 // a UUID of version 4 (RFC 9562)
	return hex.EncodeToString(own)
}

// steal returns the stolen time of all CPUs, from the first line of /proc/stat.
func (r *reader) steal() *uint64 {
	var steal *uint64
	r.lines("proc/stat", func(line string) bool {
		times, ok := strings.CutPrefix(line, "cpu ")
		if t, err := parseCPUTime(times); ok && err == nil && t.Steal < 1<<39 { // 174 years, so that it fits
			steal = new(t.Steal * 1e7)
		}
		return false
	})
	return steal
}

// splitVersion splits "Linux version 6.1.0 (builder) #1 SMP" (proc_version(5)).
func splitVersion(banner string) (release, version string) {
	if rest, ok := strings.CutPrefix(banner, "Linux version "); ok {
		release, rest, _ = strings.Cut(rest, " ")
		if _, after, found := strings.Cut(rest, " #"); found {
			version = "#" + after
		}
	}
	return release, version
}

// preempt returns the preemption model in force. /sys/kernel/debug/sched/preempt, which only root may read,
// marks it with parentheses: "none voluntary (full)". A kernel without PREEMPT in its version has none or
// voluntary, and does not say which; then the result is "".
func preempt(k Kernel, debug string) string {
	if _, rest, ok := strings.Cut(debug, "("); ok {
		if model, _, closed := strings.Cut(rest, ")"); closed {
			return model
		}
	}
	requested, _ := k.Parameters().Get("preempt")
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

// noCallbacks returns the CPUs of rcu_nocbs= and NohzFull, or nil if the command line is not known or wrong.
func (r *reader) noCallbacks(k Kernel) *cpuset.Set {
	if k.Cmdline == "" {
		return nil
	}
	requested, _ := k.Parameters().Get("rcu_nocbs")
	set, err := cpuset.ParseWithin(requested, orZero(r.list(cpuDir+"/possible")))
	if err != nil {
		r.warn("/proc/cmdline: rcu_nocbs: %v", err)
		return nil
	}
	set = set.Union(orZero(k.NohzFull))
	return &set
}

func (r *reader) cgroup() cgroup.Mounts {
	m, err := cgroup.Mounted(r.root)
	if err != nil {
		r.warn("%v", err)
	}
	return m
}

// Parameters parses the command line in force.
func (k Kernel) Parameters() cmdline.Line { return cmdline.Parse(k.Cmdline) }

// AtLeast reports whether the kernel has this release or a newer one; false if its release is not known.
func (k Kernel) AtLeast(major, minor int) bool {
	var a, b int
	if _, err := fmt.Sscanf(k.Release, "%d.%d", &a, &b); err != nil {
		return false
	}
	return a > major || a == major && b >= minor
}

// Before reports whether the kernel has an older release; false if its release is not known.
func (k Kernel) Before(major, minor int) bool { return k.Release != "" && !k.AtLeast(major, minor) }

// IsolcpusFlags returns the flags that isolcpus= needs to keep others off its CPUs, as far as this kernel
// knows them: domain came with Linux 4.15, managed_irq with 5.6 and with Red Hat's 4.18. A kernel that does
// not know a flag ignores the whole parameter.
func (k Kernel) IsolcpusFlags() []string {
	switch {
	case k.Before(4, 15):
		return nil
	case k.Before(5, 6) && !strings.Contains(k.Release, ".el8"):
		return []string{"domain"}
	}
	return []string{"managed_irq", "domain"}
}
