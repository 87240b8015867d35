package audit

import (
	"fmt"
	"slices"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/quantity"
)

const (
	parameters = "Documentation/admin-guide/kernel-parameters.txt"
	perCPU     = "Documentation/admin-guide/kernel-per-CPU-kthreads.rst"
	noHZ       = "Documentation/timers/no_hz.rst"
)

// bootRules hold the kernel command line against what the kernel made of it.
func bootRules() []rule {
	return []rule{
		{
			id: "isolcpus-list", title: "isolcpus= is not what it seems",
			classes: Severities{Fault, Fault, Fault},
			cost:    "the kernel skips what it does not understand with no more than a boot message",
			boot:    "isolcpus=domain,managed_irq,{lane}",
			source:  parameters + ", isolcpus=", check: isolcpusList,
		},
		{
			id: "isolcpus-in-force", title: "isolcpus= was asked for and is not in force",
			classes: Severities{Fault, Fault, Fault},
			cost:    "these CPUs are balanced like all others",
			boot:    "look for the kernel's message: dmesg | grep -i -e housekeeping -e isolcpus",
			source:  parameters + ", isolcpus=", check: isolcpusInForce,
		},
		{
			id: "isolcpus-managed", title: "isolcpus= leaves managed interrupts on its CPUs",
			classes: Severities{Warn, Warn, Info},
			cost:    "queues of NVMe and other multi-queue devices interrupt there: some µs each",
			boot:    "isolcpus=domain,managed_irq,{lane}",
			source:  parameters + ", isolcpus= managed_irq", check: isolcpusManaged,
		},
		{
			id: "nohz-boot-cpu", title: "the boot CPU is asked to be tickless, and is not",
			classes: Severities{Warn, Warn, Info},
			cost:    "the kernel drops it from nohz_full with no more than a boot message: its tick goes on, 100 to 1,000 times a second",
			boot:    "leave CPU 0 out of nohz_full= and rcu_nocbs=, and of the lanes",
			source:  noHZ, check: nohzBootCPU,
		},
		{
			id: "nohz-full", title: "the tick goes on on lane CPUs",
			classes: Severities{Warn, Info, Info},
			cost:    "1 to 10 µs, 100 to 1,000 times a second",
			boot:    "nohz_full={lane}",
			source:  noHZ, check: nohzFull,
		},
		{
			id: "nohz-housekeeping", title: "CPUs without a lane are tickless",
			classes: Severities{Info, Info, Info}, needsLanes: true,
			cost:   "slower system calls and interrupts there, and timekeeping has fewer CPUs to fall back on",
			boot:   "nohz_full={lane}",
			source: noHZ, check: nohzHousekeeping,
		},
		{
			id: "rcu-nocbs", title: "RCU callbacks run on lane CPUs",
			classes: Severities{Warn, Warn, Info},
			cost:    "softirq work of 10 µs to milliseconds after others free memory",
			boot:    "rcu_nocbs={lane} (nohz_full= implies it)",
			source:  perCPU, check: rcuCallbacks,
		},
		{
			id: "systemd-affinity", title: "daemons may start on lane CPUs",
			classes: Severities{Warn, Warn, Info}, needsLanes: true,
			cost:    "whatever is started anew runs on the lane until somebody moves it; a daemon-reload moves it back",
			runTime: "CPUAffinity={housekeeping} in /etc/systemd/system.conf, then systemctl daemon-reexec",
			boot:    "systemd.cpu_affinity={housekeeping}",
			source:  "systemd-system.conf(5), CPUAffinity=", check: systemdAffinity,
		},
		{
			id: "skew-tick", title: "the ticks of all CPUs come at the same moment",
			classes: Severities{None, Info, None},
			cost:    "CPUs with a tick contend for the same locks: some µs more jitter with many CPUs",
			boot:    "skew_tick=1 (costs some power; of no use on CPUs without a tick)",
			source:  parameters + ", skew_tick=", check: skewTick,
		},
		{
			id: "repeated", title: "parameters stand more than once on the command line",
			classes: Severities{Info, Info, Info},
			cost:    "of most the last counts, of isolcpus= and nohz_full= the first list: who changes the other one changes nothing",
			boot:    "leave one; look who adds the other: the boot loader's defaults, tuned, a machine configuration",
			source:  parameters, check: repeated,
		},
		{
			id: "mce-off", title: "mce=off hides hardware faults",
			classes: Severities{Fault, Fault, Fault},
			cost:    "memory and cache errors go unseen and corrupt data; the gain is a poll every five minutes",
			runTime: "without mce=off: echo 1 > /sys/devices/system/machinecheck/machinecheck0/ignore_ce stops just that poll",
			boot:    "mce=ignore_ce in place of mce=off. mce=off is right on no machine that holds data",
			source:  "Documentation/arch/x86/x86_64/boot-options.rst, mce=", check: mceOff,
		},
		{
			id: "audit-parameter", title: "auditing is switched off",
			classes: Severities{Info, Info, Info},
			cost:    "the security log is gone; the gain is some system call overhead, which a polling thread does not have",
			boot:    "audit=0 is right where nobody reads the log and lane threads make many system calls; else leave it out",
			source:  parameters + ", audit=", check: auditOff,
		},
		{
			id: "mitigations", title: "mitigations of hardware vulnerabilities are not the default",
			classes: Severities{Info, Info, Info},
			cost:    "system calls and interrupts take other times: results before and after cannot be compared",
			boot:    "state it with every result, and keep it equal in both runs of a comparison",
			source:  "Documentation/admin-guide/hw-vuln/", check: mitigations,
		},
	}
}

func isolcpusList(s *subject) []hit {
	asked, ok := s.boot.Isolcpus()
	if !ok {
		return s.noCmdline()
	}
	h := hit{asked: s.boot.asked("isolcpus")}
	cpus, err := asked.CPUs(s.possible())
	switch gone := cpus.Difference(s.possible()); {
	case err != nil && len(asked.Skipped) > 0:
		h.inForce = fmt.Sprintf("nothing is isolated: the kernel takes %s for an unknown flag, and %v", strings.Join(asked.Skipped, ", "), err)
	case err != nil:
		h.inForce = fmt.Sprintf("nothing is isolated: %v", err)
	case len(asked.Skipped) > 0:
		h.classes, h.cpus = &Severities{Warn, Warn, Info}, cpus
		h.inForce = fmt.Sprintf("the kernel skips %s and takes %s", strings.Join(asked.Skipped, ", "), strings.Join(asked.Flags, ", "))
	case !gone.IsEmpty():
		h.classes = &Severities{Info, Info, Info}
		h.inForce = fmt.Sprintf("there are no CPUs %s", gone)
	default:
		return nil
	}
	return []hit{h}
}

// noCmdline notes that there is no command line; a missing parameter is no fault by itself.
func (s *subject) noCmdline() []hit {
	if s.Kernel.Cmdline == "" {
		s.lacks("/proc/cmdline")
	}
	return nil
}

func isolcpusInForce(s *subject) []hit {
	asked, ok := s.boot.Isolcpus()
	cpus, err := asked.CPUs(s.possible())
	if !ok || err != nil || !asked.Has("domain") {
		return s.noCmdline()
	}
	if s.Kernel.Isolated == nil {
		s.lacks("/sys/devices/system/cpu/isolated")
		return nil
	}
	lost := cpus.Intersection(s.possible()).Difference(*s.Kernel.Isolated)
	if lost.IsEmpty() {
		return nil
	}
	return []hit{{cpus: lost, asked: s.boot.asked("isolcpus"),
		inForce: fmt.Sprintf("/sys/devices/system/cpu/isolated is %s", orNone(*s.Kernel.Isolated, "empty"))}}
}

func isolcpusManaged(s *subject) []hit {
	asked, ok := s.boot.Isolcpus()
	cpus, err := asked.CPUs(s.possible())
	if !ok || err != nil || asked.Has("managed_irq") {
		return s.noCmdline()
	}
	return []hit{{cpus: cpus, asked: s.boot.asked("isolcpus"), inForce: "flags in force: " + strings.Join(asked.Flags, ", ")}}
}

func nohzBootCPU(s *subject) []hit {
	cpus, ok := s.boot.cpus("nohz_full", s.possible())
	if !ok {
		return s.noCmdline()
	}
	if !cpus.Contains(s.bootCPU()) || orEmpty(s.Kernel.NohzFull).Contains(s.bootCPU()) { // some architectures allow it
		return nil
	}
	h := hit{cpus: cpuset.Of(s.bootCPU()), asked: s.boot.asked("nohz_full"), inForce: "the file that says it is missing"}
	if s.Kernel.NohzFull != nil {
		h.inForce = fmt.Sprintf("/sys/devices/system/cpu/nohz_full is %s", orNone(*s.Kernel.NohzFull, "empty"))
	}
	return []hit{h}
}

// nohzFull: the file exists only in kernels with CONFIG_NO_HZ_FULL, so where it is missing beside
// its neighbours, nothing is tickless.
func nohzFull(s *subject) []hit {
	if s.Kernel.NohzFull == nil && s.Kernel.Isolated == nil {
		s.lacks("/sys/devices/system/cpu/nohz_full")
		return nil
	}
	ticking := s.lane.Difference(orEmpty(s.Kernel.NohzFull))
	if ticking.IsEmpty() {
		return nil
	}
	h := hit{cpus: ticking, asked: s.boot.asked("nohz_full"), inForce: "no CPU is tickless: the kernel has no CONFIG_NO_HZ_FULL"}
	if s.Kernel.NohzFull != nil {
		h.inForce = fmt.Sprintf("/sys/devices/system/cpu/nohz_full is %s", orNone(*s.Kernel.NohzFull, "empty"))
	}
	if asked, ok := s.boot.cpus("nohz_full", s.possible()); ok && asked.Difference(cpuset.Of(s.bootCPU())).Intersects(ticking) {
		h.classes = &Severities{Fault, Warn, Info} // asked and not in force
	}
	return []hit{h}
}

func nohzHousekeeping(s *subject) []hit {
	idle := orEmpty(s.Kernel.NohzFull).Difference(s.lane).Intersection(s.Online())
	if idle.IsEmpty() {
		return nil
	}
	return []hit{{cpus: idle, asked: s.boot.asked("nohz_full"), inForce: fmt.Sprintf("CPUs %s are tickless and no lane's", idle)}}
}

func rcuCallbacks(s *subject) []hit {
	if s.Kernel.RCUNoCBs == nil {
		s.lacks("/proc/cmdline with a valid rcu_nocbs=")
		return nil
	}
	left := s.lane.Difference(*s.Kernel.RCUNoCBs)
	if left.IsEmpty() {
		return nil
	}
	return []hit{{cpus: left, asked: s.boot.asked("rcu_nocbs"), inForce: fmt.Sprintf("callbacks are offloaded from %s", orNone(*s.Kernel.RCUNoCBs, "no CPU"))}}
}

func systemdAffinity(s *subject) []hit {
	asked := s.boot.asked("systemd.cpu_affinity")
	for _, t := range s.tasks {
		if on := t.Allowed.Intersection(s.lane); t.ID == 1 && !on.IsEmpty() {
			return []hit{{cpus: on, asked: asked, inForce: fmt.Sprintf("/proc/1/status: process 1 (%s) may run on CPUs %s", t.Name, t.Allowed)}}
		}
	}
	if s.tasks != nil {
		return nil
	}
	if cpus, ok := s.boot.cpus("systemd.cpu_affinity", s.possible()); ok && cpus.Intersects(s.lane) {
		return []hit{{cpus: cpus.Intersection(s.lane), asked: asked, inForce: "not known: /proc/1/status is missing"}}
	}
	s.lacks("/proc/1/status")
	return nil
}

func skewTick(s *subject) []hit {
	value, _ := s.boot.Get("skew_tick")
	if s.Kernel.Cmdline == "" || value == "1" || s.lane.IsSubsetOf(orEmpty(s.Kernel.NohzFull)) {
		return s.noCmdline()
	}
	return []hit{{cpus: s.lane, asked: s.boot.asked("skew_tick"), inForce: "skew_tick=1 is not on the command line"}}
}

// repeated leaves out what takes several values. Values that differ are worse than the same one twice.
func repeated(s *subject) []hit {
	severals := []string{"acpi", "acpi_osi", "blacklist", "console", "crashkernel", "debug", "earlycon", "earlyprintk", "efi",
		"hugepages", "hugepagesz", "ifname", "initcall_blacklist", "initrd", "intel_iommu", "iommu", "ip", "kgdboc", "libata.force",
		"memmap", "modprobe.blacklist", "module_blacklist", "nameserver", "netconsole", "netdev", "numa", "pci", "pcie_ports",
		"trace_event", "usbcore.quirks", "vfio_pci.ids", "video"}
	var h hit
	for _, p := range s.boot.Repeated() {
		word := strings.Join(p.Values, "") == "" // quiet, rw: as good as once
		if word || slices.Contains(severals, p.Name) || strings.HasPrefix(p.Name, "rd.") || strings.HasPrefix(p.Name, "systemd.") {
			continue
		}
		var given []string
		for _, value := range p.Values {
			given = append(given, p.Name+"="+value)
		}
		h.evidence = append(h.evidence, strings.Join(given, " "))
		if len(slices.Compact(slices.Clone(p.Values))) > 1 {
			h.classes = &Severities{Warn, Warn, Warn}
		}
	}
	switch {
	case len(h.evidence) == 0:
		return s.noCmdline()
	case h.classes != nil:
		h.inForce = fmt.Sprintf("%s, with values that differ", quantity.Count(len(h.evidence), "parameter"))
	default:
		h.inForce = fmt.Sprintf("%s, each with the same value", quantity.Count(len(h.evidence), "parameter"))
	}
	return []hit{h}
}

func mceOff(s *subject) []hit {
	if value, ok := s.boot.Get("mce"); ok && value == "off" {
		return []hit{{asked: "mce=off", inForce: "machine checks are not handled"}}
	}
	if _, ok := s.boot.Get("nomce"); ok {
		return []hit{{asked: "nomce", inForce: "machine checks are not handled"}}
	}
	return s.noCmdline()
}

func auditOff(s *subject) []hit {
	if value, _ := s.boot.Get("audit"); value == "0" || value == "off" {
		return []hit{{asked: s.boot.asked("audit"), inForce: "the kernel writes no audit records"}}
	}
	return s.noCmdline()
}

func mitigations(s *subject) []hit {
	var asked []string
	for _, name := range []string{"mitigations", "nopti", "pti", "nospectre_v1", "nospectre_v2", "spectre_v2",
		"spec_store_bypass_disable", "l1tf", "mds", "tsx_async_abort", "mmio_stale_data", "retbleed", "gather_data_sampling"} {
		if value, ok := s.boot.Get(name); ok {
			asked = append(asked, strings.TrimSuffix(name+"="+value, "="))
		}
	}
	if len(asked) == 0 {
		return s.noCmdline()
	}
	h := hit{asked: strings.Join(asked, " "), inForce: "/sys/devices/system/cpu/vulnerabilities is missing"}
	for name, state := range s.Kernel.Mitigations {
		h.evidence = append(h.evidence, name+": "+state)
	}
	slices.Sort(h.evidence)
	if len(h.evidence) > 0 {
		h.inForce = fmt.Sprintf("%d entries in /sys/devices/system/cpu/vulnerabilities", len(h.evidence))
	}
	return []hit{h}
}
