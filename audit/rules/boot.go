package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"isolane.dev/isolane/audit"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/quantity"
)

const (
	parameters = "Documentation/admin-guide/kernel-parameters.txt"
	perCPU     = "Documentation/admin-guide/kernel-per-CPU-kthreads.rst"
	noHZ       = "Documentation/timers/no_hz.rst"
)

// bootRules compare the kernel command line with what the kernel made of it.
func bootRules() []rule {
	return []rule{{
		id: "isolcpus-list", title: "isolcpus= is not what it seems",
		classes: severities(audit.Fault, audit.Fault, audit.Fault),
		impact:  "the kernel skips what it does not understand; only a boot message says so",
		boot:    "isolcpus=domain,managed_irq,{lane}", source: parameters + ", isolcpus=", check: isolcpusList,
	}, {
		id: "isolcpus-in-force", title: "isolcpus= was requested and is not in force",
		classes: severities(audit.Fault, audit.Fault, audit.Fault),
		impact:  "these CPUs are balanced like all others",
		boot:    "look for the kernel's message: dmesg | grep -i -e housekeeping -e isolcpus",
		source:  parameters + ", isolcpus=", check: isolcpusInForce,
	}, {
		id: "isolcpus-managed", title: "isolcpus= leaves managed interrupts on its CPUs",
		impact: "queues of NVMe and other multi-queue devices interrupt there: some µs each",
		boot:   "isolcpus=domain,managed_irq,{lane}", source: parameters + ", isolcpus= managed_irq",
		check: isolcpusManaged,
	}, {
		id: "nohz-boot-cpu", title: "nohz_full= names the boot CPU, which keeps its tick",
		impact: "the kernel drops it from nohz_full, with a boot message: 100 to 1,000 ticks a second go on",
		boot:   "leave CPU 0 out of nohz_full= and rcu_nocbs=, and of the lanes", source: noHZ, check: nohzBootCPU,
	}, {
		id: "nohz-full", title: "the tick does not stop on lane CPUs",
		classes: severities(audit.Warn, audit.Info, audit.Info),
		impact:  "1 to 10 µs, 100 to 1,000 times a second",
		boot:    "nohz_full={lane}, of a kernel with CONFIG_NO_HZ_FULL", source: noHZ, check: nohzFull,
	}, {
		id: "nohz-housekeeping", title: "CPUs without a lane are tickless",
		classes:    severities(audit.Info, audit.Info, audit.Info),
		needsLanes: true,
		impact:     "slower system calls and interrupts there, and timekeeping has fewer CPUs to fall back on",
		boot:       "nohz_full={lane}", source: noHZ, check: nohzHousekeeping,
	}, {
		id: "rcu-nocbs", title: "RCU callbacks run on lane CPUs",
		impact: "softirq work of 10 µs to milliseconds after others free memory",
		boot:   "rcu_nocbs={lane} (nohz_full= implies it)", source: perCPU, check: rcuCallbacks,
	}, {
		id: "systemd-affinity", title: "daemons may start on lane CPUs", needsLanes: true,
		impact: "what starts later runs on the lane until it is moved; a daemon-reload moves it back",
		fix:    "CPUAffinity={housekeeping} in /etc/systemd/system.conf, then systemctl daemon-reexec",
		boot:   "systemd.cpu_affinity={housekeeping}", source: "systemd-system.conf(5), CPUAffinity=",
		check: systemdAffinity,
	}}
}

// parameterRules are about parameters that change more than their name says.
func parameterRules() []rule {
	return []rule{{
		id: "skew-tick", title: "the ticks of all CPUs come at the same moment",
		classes: severities(audit.None, audit.Info, audit.None),
		impact:  "ticking CPUs contend for the same locks: some µs more jitter on large machines",
		boot:    "skew_tick=1 (costs some power; of no use on CPUs without a tick)",
		source:  parameters + ", skew_tick=", check: skewTick,
	}, {
		id: "repeated", title: "parameters are given more than once on the command line",
		classes: severities(audit.Info, audit.Info, audit.Info),
		impact:  "the last value counts, of isolcpus= and nohz_full= the first: a change of the other does nothing",
		boot:    "keep one; find who adds the other: the boot loader's defaults, tuned, a machine configuration",
		source:  parameters, check: repeated,
	}, {
		id: "mce-off", title: "mce=off hides hardware faults",
		classes: severities(audit.Fault, audit.Fault, audit.Fault),
		impact:  "memory and cache errors go unseen and corrupt data; the gain is a poll every five minutes",
		fix:     "without mce=off, 1 in /sys/devices/system/machinecheck/machinecheck0/ignore_ce stops that poll",
		boot:    "mce=ignore_ce instead; mce=off is wrong on every machine that holds data",
		source:  "Documentation/arch/x86/x86_64/boot-options.rst, mce=",
		check:   asked("machine checks are not handled", "mce=off", "nomce"),
	}, {
		id: "audit-parameter", title: "auditing is switched off",
		classes: severities(audit.Info, audit.Info, audit.Info),
		impact:  "no security log; it saves some overhead of system calls, which a polling thread does not make",
		boot:    "audit=0 only where nobody reads the log and lane threads make many system calls",
		source:  parameters + ", audit=",
		check:   asked("the kernel writes no audit records", "audit=0", "audit=off"),
	}, {
		id: "mitigations", title: "mitigations of hardware vulnerabilities are not the default",
		classes: severities(audit.Info, audit.Info, audit.Info),
		impact:  "the time of system calls and interrupts changes: results before and after do not compare",
		boot:    "report it with every result, and use the same in both runs of a comparison",
		source:  "Documentation/admin-guide/hw-vuln/", check: mitigations,
	}}
}

func isolcpusList(s *subject) []hit {
	isolcpus, ok := s.Kernel.Parameters().Isolcpus()
	if !ok {
		return s.noCmdline()
	}
	h := hit{requested: s.requested("isolcpus")}
	cpus, err := isolcpus.CPUs(s.Possible())
	skipped := strings.Join(isolcpus.Skipped, ", ")
	switch missing := cpus.Difference(s.Possible()); {
	case err != nil && skipped != "":
		h.inForce = fmt.Sprintf("nothing is isolated: the kernel takes %s for an unknown flag, and %v",
			skipped, err)
	case err != nil:
		h.inForce = fmt.Sprintf("nothing is isolated: %v", err)
	case skipped != "":
		h.classes, h.cpus = new(severities(audit.Warn, audit.Warn, audit.Info)), cpus
		h.inForce = fmt.Sprintf("the kernel skips %s and takes %s", skipped, strings.Join(isolcpus.Flags, ", "))
	case !missing.IsEmpty():
		h.classes = new(severities(audit.Info, audit.Info, audit.Info))
		h.inForce = fmt.Sprintf("there are no CPUs %s", missing)
	default:
		return nil
	}
	return []hit{h}
}

func isolcpusInForce(s *subject) []hit {
	isolcpus, ok := s.Kernel.Parameters().Isolcpus()
	cpus, err := isolcpus.CPUs(s.Possible())
	if !ok || err != nil || !isolcpus.Has("domain") {
		return s.noCmdline()
	}
	if s.Kernel.Isolated == nil {
		return s.noHit(false, "/sys/devices/system/cpu/isolated")
	}
	lost := cpus.Intersection(s.Possible()).Difference(*s.Kernel.Isolated)
	return onCPUs(lost, s.requested("isolcpus"), "/sys/devices/system/cpu/isolated is %s",
		orNone(*s.Kernel.Isolated, "empty"))
}

func isolcpusManaged(s *subject) []hit {
	isolcpus, ok := s.Kernel.Parameters().Isolcpus()
	cpus, err := isolcpus.CPUs(s.Possible())
	if !ok || err != nil || isolcpus.Has("managed_irq") || !s.knowsManaged() {
		return s.noCmdline()
	}
	return []hit{{cpus: cpus, requested: s.requested("isolcpus"),
		inForce: "flags in force: " + strings.Join(isolcpus.Flags, ", ")}}
}

// knowsManaged reports whether the kernel knows the flag managed_irq, or may know it.
func (s *subject) knowsManaged() bool {
	return slices.Contains(s.Kernel.IsolcpusFlags(), "managed_irq")
}

// nohzInForce describes what the kernel has of nohz_full. It returns none if the kernel has no such file.
func (s *subject) nohzInForce(none string) string {
	if s.Kernel.NohzFull == nil {
		return none
	}
	return fmt.Sprintf("/sys/devices/system/cpu/nohz_full is %s", orNone(*s.Kernel.NohzFull, "empty"))
}

func nohzBootCPU(s *subject) []hit {
	cpus, ok := s.requestedCPUs("nohz_full")
	if !ok {
		return s.noCmdline()
	}
	ticking := cpuset.Of(s.bootCPU()).Difference(orEmpty(s.Kernel.NohzFull)) // some architectures allow it
	return onCPUs(ticking.Intersection(cpus), s.requested("nohz_full"), "%s",
		s.nohzInForce("the file that says it is missing"))
}

// nohzFull relies on the fact that the file exists only in kernels with CONFIG_NO_HZ_FULL. If it is missing
// beside its neighbours, no CPU is tickless.
func nohzFull(s *subject) []hit {
	if s.Kernel.NohzFull == nil && !s.Kernel.KeepsTick() {
		return s.noHit(false, "/sys/devices/system/cpu/nohz_full")
	}
	ticking := s.lane.Difference(orEmpty(s.Kernel.NohzFull))
	hits := onCPUs(ticking, s.requested("nohz_full"), "%s",
		s.nohzInForce("no CPU is tickless: the kernel has no CONFIG_NO_HZ_FULL"))
	cpus, _ := s.requestedCPUs("nohz_full")
	if cpus.Difference(cpuset.Of(s.bootCPU())).Intersects(ticking) {
		hits[0].classes = new(severities(audit.Fault, audit.Warn, audit.Info)) // requested and not in force
	}
	return hits
}

func nohzHousekeeping(s *subject) []hit {
	if s.Kernel.NohzFull == nil && !s.Kernel.KeepsTick() {
		return s.noHit(false, "/sys/devices/system/cpu/nohz_full")
	}
	tickless := orEmpty(s.Kernel.NohzFull).Difference(s.lane).Intersection(s.Online())
	return onCPUs(tickless, s.requested("nohz_full"), "CPUs %s are tickless and in no lane", tickless)
}

func rcuCallbacks(s *subject) []hit {
	if s.Kernel.RCUNoCBs == nil {
		return s.noHit(false, "/proc/cmdline with a valid rcu_nocbs=")
	}
	return onCPUs(s.lane.Difference(*s.Kernel.RCUNoCBs), s.requested("rcu_nocbs"),
		"callbacks are offloaded from %s", orNone(*s.Kernel.RCUNoCBs, "no CPU"))
}

func systemdAffinity(s *subject) []hit {
	requested := s.requested("systemd.cpu_affinity")
	for _, t := range s.Tasks {
		if on := t.Allowed.Intersection(s.lane); t.ID == 1 && !on.IsEmpty() {
			return onCPUs(on, requested, "/proc/1/status: process 1 (%s) may run on CPUs %s", t.Name, t.Allowed)
		}
	}
	if s.Tasks != nil {
		return nil
	}
	if cpus, ok := s.requestedCPUs("systemd.cpu_affinity"); ok && cpus.Intersects(s.lane) {
		return onCPUs(cpus.Intersection(s.lane), requested, "not known: /proc/1/status is missing")
	}
	return s.noHit(false, "/proc/1/status")
}

func skewTick(s *subject) []hit {
	skew, _ := s.Kernel.Parameters().Get("skew_tick")
	if s.Kernel.Cmdline == "" || skew == "1" || s.lane.IsSubsetOf(orEmpty(s.Kernel.NohzFull)) {
		return s.noCmdline()
	}
	return onCPUs(s.lane, s.requested("skew_tick"), "skew_tick=1 is not on the command line")
}

// independent lists parameters that may be given several times, because each value counts.
const independent = `acpi acpi_osi amd_iommu blacklist console crashkernel debug earlycon earlyprintk efi
	hugepages hugepagesz ifname initcall_blacklist initrd intel_iommu iommu ip kgdboc libata.force mce memmap
	modprobe.blacklist module_blacklist nameserver netconsole netdev numa pci pcie_ports trace_event tsc
	usbcore.quirks vfio_pci.ids video`

// repeated skips parameters that take several values. Different values are worse than the same one twice.
func repeated(s *subject) []hit {
	several := strings.Fields(independent)
	var h hit
	for _, p := range s.Kernel.Parameters().Repeated() {
		word := strings.Join(p.Values, "") == "" // quiet, rw: repeating it changes nothing
		if word || slices.Contains(several, p.Name) || strings.HasPrefix(p.Name, "rd.") ||
			strings.HasPrefix(p.Name, "systemd.") {
			continue
		}
		h.add(cpuset.Set{}, "%s=%s", p.Name, strings.Join(p.Values, " "+p.Name+"="))
		if len(slices.Compact(slices.Clone(p.Values))) > 1 {
			h.classes = new(severities(audit.Warn, audit.Warn, audit.Warn))
		}
	}
	switch count := quantity.Count(len(h.evidence), "parameter"); {
	case len(h.evidence) == 0:
		return s.noCmdline()
	case h.classes != nil:
		h.inForce = count + ", with values that differ"
	default:
		h.inForce = count + ", each with the same value"
	}
	return []hit{h}
}

// asked checks that the command line has one of these parameters. inForce says what is in force without it.
func asked(inForce string, parameters ...string) func(*subject) []hit {
	return func(s *subject) []hit {
		for _, parameter := range parameters {
			name, want, _ := strings.Cut(parameter, "=")
			given, ok := s.Kernel.Parameters().Get(name)
			if slices.Contains(strings.Fields(independent), name) && s.Kernel.Parameters().Has(name, want) {
				given = want
			}
			if ok && (want == "" || given == want) {
				return []hit{{requested: parameter, inForce: inForce}}
			}
		}
		return s.noCmdline()
	}
}

func mitigations(s *subject) []hit {
	var requested []string
	for _, name := range strings.Fields(`mitigations nopti pti nospectre_v1 nospectre_v2 spectre_v2 retbleed
		spec_store_bypass_disable l1tf mds tsx_async_abort mmio_stale_data gather_data_sampling kpti ssbd srbds
		spectre_v2_user spectre_bhi nospec_store_bypass_disable spec_rstack_overflow reg_file_data_sampling
		indirect_target_selection tsa vmscape`) {
		if _, ok := s.Kernel.Parameters().Get(name); ok {
			requested = append(requested, strings.TrimSuffix(s.requested(name), "="))
		}
	}
	if len(requested) == 0 {
		return s.noCmdline()
	}
	h := hit{requested: strings.Join(requested, " "),
		inForce: "/sys/devices/system/cpu/vulnerabilities is missing"}
	for _, name := range slices.Sorted(maps.Keys(s.Kernel.Mitigations)) {
		h.add(cpuset.Set{}, "%s: %s", name, s.Kernel.Mitigations[name])
	}
	if len(h.evidence) > 0 {
		h.inForce = fmt.Sprintf("%d entries in /sys/devices/system/cpu/vulnerabilities", len(h.evidence))
	}
	return []hit{h}
}
