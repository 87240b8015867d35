package rules

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"isolane.dev/isolane/audit"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/settings"
)

const (
	cpufreqGuide = "Documentation/admin-guide/pm/cpufreq.rst"
	cpuidleGuide = "Documentation/admin-guide/pm/cpuidle.rst"
)

// budgetMicroseconds is the exit latency that a lane is assumed to tolerate.
const budgetMicroseconds = 10

// idleRules check how long a lane CPU takes to wake up.
func idleRules() []rule {
	return []rule{{
		id: "c-states", title: "lane CPUs may sleep deeply",
		classes: severities(audit.Info, audit.Warn, audit.None),
		impact: "the state's exit latency at each wake-up, 30 to 200 µs for C6, and cold caches; none for " +
			"threads that poll",
		fix:    "echo 10 > /sys/devices/system/cpu/cpuN/power/pm_qos_resume_latency_us for each lane CPU",
		boot:   "intel_idle.max_cstate=1, or processor.max_cstate=1 with acpi_idle; for all CPUs",
		source: cpuidleGuide, check: deepStates,
	}, {
		id: "max-cstate", title: "a limit on C-states is for a driver that is not in use",
		classes: severities(audit.Info, audit.Warn, audit.None),
		impact:  "the limit does nothing: 30 to 200 µs at a wake-up",
		boot:    "name the driver in use; intel_idle.max_cstate=0 selects acpi_idle and does not stop idle states",
		source:  "Documentation/admin-guide/pm/intel_idle.rst", check: uselessLimit,
	}, {
		id: "idle-poll", title: "idle=poll keeps all CPUs spinning",
		classes: severities(audit.Info, audit.Info, audit.Warn),
		impact: "no turbo and more heat; a sibling that spins takes part of the lane's core; wake-ups save 1 to " +
			"200 µs",
		fix:    "pm_qos_resume_latency_us of the lane's CPUs does the same for these alone",
		boot:   "leave it out, unless every wake-up counts, SMT is off and the cooling allows it",
		source: noHZ + ", idle=poll", check: idlePoll,
	}}
}

// frequencyRules check what changes the speed of a lane CPU.
func frequencyRules() []rule {
	return []rule{{
		id: "governor", title: "the frequency of lane CPUs follows their load",
		impact: "some ms at a lower frequency after each pause: up to three times the latency",
		fix:    "echo performance > /sys/devices/system/cpu/cpufreq/policyN/scaling_governor",
		boot:   "cpufreq.default_governor=performance", source: cpufreqGuide, check: governor,
	}, {
		id: "frequency-range", title: "the frequency of lane CPUs may change",
		classes: severities(audit.Info, audit.Info, audit.None),
		impact:  "results differ with temperature and neighbours; a change stops the core for some µs",
		fix:     "the same value in scaling_min_freq and scaling_max_freq, below the turbo range",
		source:  cpufreqGuide, check: frequencyRange,
	}, {
		id: "epp", title: "the hardware prefers saving energy on lane CPUs",
		impact: "the frequency rises late: up to three times the latency after a pause",
		fix:    "echo performance > /sys/devices/system/cpu/cpufreq/policyN/energy_performance_preference",
		source: "Documentation/admin-guide/pm/intel_pstate.rst, energy_performance_preference",
		check:  energyPreference,
	}, {
		id: "pstate-disable", title: "intel_pstate=disable on a CPU that sets its own frequency",
		classes: severities(audit.Warn, audit.Warn, audit.Warn),
		impact:  "acpi-cpufreq or nothing sets the frequency without HWP: turbo and per-core limits may be lost",
		boot: "leave it active with governor performance, or passive; right only where userspace must set " +
			"P-states through acpi-cpufreq",
		source: "Documentation/admin-guide/pm/intel_pstate.rst", check: pstateDisabled,
	}, {
		id: "turbo", title: "turbo is on", classes: severities(audit.Info, audit.Info, audit.None),
		impact: "the lane's clock depends on how many neighbours are busy: 10 to 40 percent",
		fix:    "echo 1 > /sys/devices/system/cpu/intel_pstate/no_turbo (elsewhere echo 0 > …/cpufreq/boost)",
		source: cpufreqGuide + ", boost", check: turbo,
	}, {
		id: "uncore", title: "the frequency of the uncore may change",
		classes: severities(audit.Info, audit.Info, audit.None),
		impact:  "L3 and memory are slower while the machine is quiet: 10 to 60 ns an access",
		fix:     "the same value in min_freq_khz and max_freq_khz below intel_uncore_frequency",
		source:  "Documentation/admin-guide/pm/intel_uncore_frequency_scaling.rst", check: uncore,
	}}
}

// clockRules check the clock, and what firmware does.
func clockRules() []rule {
	return []rule{{
		id: "clocksource", title: "reading the time is slow",
		classes: severities(audit.Fault, audit.Fault, audit.Warn),
		impact:  "1 µs and more for each clock_gettime, from a device that all CPUs share; the tick cannot stop",
		fix:     "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource, if it is available",
		boot:    "find out why the kernel left the TSC: dmesg | grep -i tsc", source: isolationGuide,
		check: slowClock,
	}, {
		id: "tsc", title: "tsc=reliable on a CPU that does not report a reliable TSC",
		classes: severities(audit.Warn, audit.Warn, audit.Warn),
		impact:  "if it drifts, the time is wrong and nothing reports it: the watchdog is off",
		boot:    "leave it out, or tsc=nowatchdog; right only with the CPU's flags constant_tsc and nonstop_tsc",
		source:  parameters + ", tsc=", check: tscReliable,
	}, {
		id: "mce-poll", title: "corrected memory errors are polled for on lane CPUs",
		classes: severities(audit.Info, audit.Info, audit.None),
		impact:  "a timer of some µs every five minutes, and firmware's interrupt where errors are logged",
		fix:     "echo 1 > /sys/devices/system/machinecheck/machinecheckN/ignore_ce for its CPUs; never mce=off",
		source:  "Documentation/arch/x86/x86_64/machinecheck.rst", check: machineCheckPoll,
	}, {
		id: "smi", title: "firmware interrupts the CPU", classes: severities(audit.Warn, audit.Fault, audit.Info),
		impact: "a system management interrupt stops all CPUs for 10 µs to milliseconds, and no tracer sees it",
		fix:    "measure with rtla hwnoise or turbostat's column SMI; switch it off in the firmware's settings",
		source: "Documentation/trace/hwlat_detector.rst", check: systemManagement,
	}}
}

// deepStates finds the enabled idle states whose exit latency is above the limit of PM QoS, or above the
// budget if that limit is "0", which allows all states. The limit "n/a" allows none.
func deepStates(s *subject) []hit {
	if idle, _ := s.Kernel.Parameters().Get("idle"); s.Kernel.IdleDriver == "none" || idle == "poll" {
		return nil // no CPU goes to sleep
	}
	type state struct {
		name    string
		latency int64 // microseconds to leave the state
	}
	deep := map[state]cpuset.Set{}
	for _, p := range s.Matching("/sys/devices/system/cpu/cpu*/cpuidle/state*/latency") {
		id := settings.CPUOf(p, "cpu")
		latency, ok := s.Number(p)
		limit, bound := s.Files[fmt.Sprintf("/sys/devices/system/cpu/cpu%d/power/pm_qos_resume_latency_us", id)]
		allowed, err := strconv.ParseInt(limit, 10, 64)
		held := bound && (limit == "n/a" || err == nil && allowed > 0 && latency > allowed)
		held = held || s.Files[path.Dir(p)+"/disable"] == "1"
		if ok && s.lane.Contains(id) && latency > budgetMicroseconds && !held {
			k := state{s.Files[path.Dir(p)+"/name"], latency}
			deep[k] = deep[k].Union(cpuset.Of(id))
		}
	}
	var h hit
	for _, k := range slices.SortedFunc(maps.Keys(deep), func(a, b state) int {
		return cmp.Or(cmp.Compare(a.latency, b.latency), strings.Compare(a.name, b.name))
	}) {
		h.add(deep[k], "%s takes %d µs to leave: CPUs %s", k.name, k.latency, deep[k])
		h.inForce = fmt.Sprintf("%s, %d µs to leave, may be entered; a device held open on /dev/cpu_dma_latency "+
			"would not show here", k.name, k.latency)
	}
	return h.shown()
}

func uselessLimit(s *subject) []hit {
	limits := map[string]string{"intel_idle": "intel_idle.max_cstate", "acpi_idle": "processor.max_cstate"}
	driver := s.Kernel.IdleDriver
	if driver == "" || s.Kernel.Cmdline == "" {
		return s.noHit(false, "/sys/devices/system/cpu/cpuidle/current_driver")
	}
	if _, ok := s.Kernel.Parameters().Get(limits[driver]); ok || driver == "none" {
		return nil
	}
	var hits []hit
	for _, limit := range slices.Sorted(maps.Values(limits)) {
		if requested := s.requested(limit); requested != "" {
			hits = append(hits, hit{requested: requested, inForce: "cpuidle/current_driver is " + driver})
		}
	}
	return hits
}

func idlePoll(s *subject) []hit {
	hits := asked("no CPU enters an idle state", "idle=poll")(s)
	for i := range hits {
		hits[i].cpus = s.Online()
	}
	return hits
}

// policies returns one hit with the cpufreq policies of lane CPUs about which wrong says something. It groups
// the CPUs by what wrong says.
func (s *subject) policies(wrong func(dir string) string) []hit {
	files := s.Optional("/sys/devices/system/cpu/cpufreq/policy*/affected_cpus")
	if len(files) == 0 && !isTrue(s.Kernel.Hypervisor) { // guests have none
		s.Lacks("/sys/devices/system/cpu/cpufreq/policy*")
	}
	found := map[string]cpuset.Set{}
	for _, p := range files {
		cpus, err := cpuset.Parse(strings.ReplaceAll(s.Files[p], " ", ","))
		on, text := cpus.Intersection(s.lane), wrong(path.Dir(p))
		if err == nil && !on.IsEmpty() && text != "" {
			found[text] = found[text].Union(on)
		}
	}
	var h hit
	for _, text := range slices.Sorted(maps.Keys(found)) {
		h.add(found[text], "%s: CPUs %s", text, found[text])
	}
	h.inForce = strings.Join(h.evidence, "; ")
	return h.shown()
}

// lacksFrequency records that nothing is known about how frequencies are set. Guests set none.
func (s *subject) lacksFrequency() {
	if !isTrue(s.Kernel.Hypervisor) {
		s.lacksAll("/sys/devices/system/cpu/cpufreq/")
	}
}

// governor: with a driver that leaves the choice to the hardware, powersave is not the usual governor of that
// name, and the energy preference decides. intel_cpufreq has both that preference and the usual governor
// (Documentation/admin-guide/pm/intel_pstate.rst, amd-pstate.rst). With userspace the load does not decide.
func governor(s *subject) []hit {
	return s.policies(func(dir string) string {
		g, driver := s.Files[dir+"/scaling_governor"], s.Files[dir+"/scaling_driver"]
		active := driver == "intel_pstate" || driver == "amd-pstate-epp" || driver == "amd_pstate_epp"
		if g == "" || g == "performance" || g == "userspace" || g == "powersave" && active || s.isFixed(dir) {
			return ""
		}
		return "governor " + g
	})
}

// isFixed reports whether a policy allows only one frequency.
func (s *subject) isFixed(dir string) bool {
	lo, hi := s.Files[dir+"/scaling_min_freq"], s.Files[dir+"/scaling_max_freq"]
	return lo == hi && lo != ""
}

func frequencyRange(s *subject) []hit {
	return s.policies(func(dir string) string {
		lo, hi := s.Files[dir+"/scaling_min_freq"], s.Files[dir+"/scaling_max_freq"]
		if lo == hi {
			return ""
		}
		return fmt.Sprintf("%s to %s kHz", lo, hi)
	})
}

func energyPreference(s *subject) []hit {
	return s.policies(func(dir string) string {
		p := s.Files[dir+"/energy_performance_preference"]
		if p == "" || p == "performance" || p == "0" || s.isFixed(dir) {
			return ""
		}
		return "preference " + p
	})
}

func pstateDisabled(s *subject) []hit {
	return s.contradicted("intel_pstate", "disable", "the CPU has the flag hwp", func() bool {
		return slices.Contains(s.Kernel.Flags, "hwp")
	})
}

// contradicted hits if a boot parameter has this value and the flags of the CPU contradict it.
func (s *subject) contradicted(parameter, bad, inForce string, wrong func() bool) []hit {
	switch given, _ := s.Kernel.Parameters().Get(parameter); {
	case given != bad:
		return s.noCmdline()
	case s.Kernel.Flags == nil:
		return s.noHit(false, "flags line in /proc/cpuinfo")
	case !wrong():
		return nil
	}
	return []hit{{requested: parameter + "=" + bad, inForce: inForce}}
}

func turbo(s *subject) []hit {
	s.lacksFrequency()
	for _, on := range []string{"intel_pstate/no_turbo is 0", "cpufreq/boost is 1"} {
		file, value, _ := strings.Cut("/sys/devices/system/cpu/"+on, " is ")
		if s.Files[file] == value {
			return []hit{{cpus: s.lane, inForce: file + " is " + value}}
		}
	}
	return nil
}

func uncore(s *subject) []hit {
	s.lacksFrequency()
	var h hit
	for _, p := range s.Optional("/sys/devices/system/cpu/intel_uncore_frequency/*/min_freq_khz") {
		if most := s.Files[path.Dir(p)+"/max_freq_khz"]; s.Files[p] != most {
			h.add(cpuset.Set{}, "%s: %s to %s kHz", path.Dir(p), s.Files[p], most)
			h.inForce = h.evidence[0]
		}
	}
	return h.shown()
}

func slowClock(s *subject) []hit {
	switch s.Kernel.Clocksource {
	case "":
		s.Lacks("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	case "hpet", "acpi_pm", "jiffies", "refined-jiffies", "xen", "pit":
		return []hit{{inForce: "clocksource " + s.Kernel.Clocksource}}
	}
	return nil
}

func tscReliable(s *subject) []hit {
	return s.contradicted("tsc", "reliable", "the CPU's flags lack constant_tsc or nonstop_tsc", func() bool {
		return !slices.Contains(s.Kernel.Flags, "constant_tsc") || !slices.Contains(s.Kernel.Flags, "nonstop_tsc")
	})
}

func machineCheckPoll(s *subject) []hit {
	if slices.Contains(s.Kernel.Flags, "mce") {
		s.lacksAll("/sys/devices/system/machinecheck/")
	}
	var on []int
	for _, p := range s.Optional("/sys/devices/system/machinecheck/machinecheck*/ignore_ce") {
		id := settings.CPUOf(p, "machinecheck")
		if s.lane.Contains(id) && s.Files[p] == "0" && s.Files[path.Dir(p)+"/check_interval"] != "0" {
			on = append(on, id)
		}
	}
	return onCPUs(cpuset.Of(on...), "", "machinecheck*/ignore_ce is 0 of CPUs %s", cpuset.Of(on...))
}

// systemManagement: MSR 0x34 counts these interrupts, and no file of the kernel has it.
func systemManagement(s *subject) []hit {
	return s.noHit(false, "file with MSR 0x34 (turbostat and rtla hwnoise read it)")
}
