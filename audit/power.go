package audit

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"isolane.dev/isolane/cpuset"
)

const (
	cpufreqGuide = "Documentation/admin-guide/pm/cpufreq.rst"
	cpuidleGuide = "Documentation/admin-guide/pm/cpuidle.rst"
)

// budget is the exit latency that a lane is taken to bear.
const budgetMicroseconds = 10

// powerRules ask what changes the speed of a lane CPU, and how long it takes to wake up.
func powerRules() []rule {
	return []rule{
		{
			id: "c-states", title: "lane CPUs may sleep deeply",
			classes: Severities{Info, Warn, None},
			cost:    "the exit latency of the state at each wake-up, 30 to 200 µs for C6, and cold caches; a thread that polls never gets there",
			runTime: "echo 10 > /sys/devices/system/cpu/cpuN/power/pm_qos_resume_latency_us for each lane CPU, or disable the states",
			boot:    "intel_idle.max_cstate=1 (Intel) or processor.max_cstate=1 (where acpi_idle drives): for all CPUs, so better at run time",
			source:  cpuidleGuide, check: deepStates,
		},
		{
			id: "max-cstate", title: "a limit on C-states is given to a driver that is not in use",
			classes: Severities{Info, Warn, None},
			cost:    "the limit does nothing: 30 to 200 µs at a wake-up",
			boot:    "name the driver in use; intel_idle.max_cstate=0 does not stop sleeping, it hands over to acpi_idle",
			source:  "Documentation/admin-guide/pm/intel_idle.rst", check: uselessLimit,
		},
		{
			id: "idle-poll", title: "idle=poll keeps all CPUs spinning",
			classes: Severities{Info, Info, Warn},
			cost:    "no turbo and more heat for the lane; an idle sibling that spins takes part of its core; wake-ups save 1 to 200 µs",
			runTime: "pm_qos_resume_latency_us of the lane's CPUs reaches the same for these alone",
			boot:    "right only where every wake-up counts, SMT is off and the cooling is made for it; else leave it out",
			source:  noHZ + ", idle=poll", check: idlePoll,
		},
		{
			id: "governor", title: "the frequency of lane CPUs follows their load",
			classes: Severities{Warn, Warn, Info},
			cost:    "some ms at a lower frequency after each pause: up to three times the latency",
			runTime: "echo performance > /sys/devices/system/cpu/cpufreq/policyN/scaling_governor",
			boot:    "cpufreq.default_governor=performance",
			source:  cpufreqGuide, check: governor,
		},
		{
			id: "frequency-range", title: "the frequency of lane CPUs may change",
			classes: Severities{Info, Info, None},
			cost:    "results differ with temperature and with what neighbours do; a change stops the core for some µs",
			runTime: "the same value in scaling_min_freq and scaling_max_freq, below the turbo range",
			source:  cpufreqGuide, check: frequencyRange,
		},
		{
			id: "epp", title: "the hardware prefers saving energy on lane CPUs",
			classes: Severities{Warn, Warn, Info},
			cost:    "the frequency rises late: up to three times the latency after a pause",
			runTime: "echo performance > /sys/devices/system/cpu/cpufreq/policyN/energy_performance_preference, the same for all lane CPUs",
			source:  "Documentation/admin-guide/pm/intel_pstate.rst, energy_performance_preference", check: energyPreference,
		},
		{
			id: "pstate-disable", title: "intel_pstate=disable on a CPU that sets its own frequency",
			classes: Severities{Warn, Warn, Warn},
			cost:    "without HWP, acpi-cpufreq or nothing at all sets the frequency: turbo and the per-core limits may be lost",
			boot:    "right on CPUs before HWP, or where userspace must set P-states through acpi-cpufreq; else leave it active with governor performance, or passive",
			source:  "Documentation/admin-guide/pm/intel_pstate.rst", check: pstateDisabled,
		},
		{
			id: "turbo", title: "turbo is on",
			classes: Severities{Info, Info, None},
			cost:    "the lane's clock depends on how many neighbours are busy: 10 to 40 percent",
			runTime: "echo 1 > /sys/devices/system/cpu/intel_pstate/no_turbo (echo 0 > …/cpufreq/boost elsewhere), or state it with each result",
			source:  cpufreqGuide + ", boost", check: turbo,
		},
		{
			id: "uncore", title: "the frequency of the uncore may change",
			classes: Severities{Info, Info, None},
			cost:    "L3 and memory are slower while the machine is quiet: 10 to 60 ns an access",
			runTime: "the same value in min_freq_khz and max_freq_khz below intel_uncore_frequency",
			source:  "Documentation/admin-guide/pm/intel_uncore_frequency_scaling.rst", check: uncore,
		},
		{
			id: "clocksource", title: "reading the time is slow",
			classes: Severities{Fault, Fault, Warn},
			cost:    "1 µs and more for each clock_gettime, through a device that all CPUs share; the tick cannot stop",
			runTime: "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource, if it is available",
			boot:    "find out why the kernel left the TSC: dmesg | grep -i tsc",
			source:  isolationGuide, check: slowClock,
		},
		{
			id: "tsc", title: "the TSC is called reliable, and the CPU does not say so",
			classes: Severities{Warn, Warn, Warn},
			cost:    "if it drifts, time is wrong without a word: the watchdog that would have seen it is off",
			boot:    "tsc=reliable is right with constant_tsc and nonstop_tsc among the CPU's flags; else leave it out, or tsc=nowatchdog",
			source:  parameters + ", tsc=", check: tscReliable,
		},
		{
			id: "mce-poll", title: "corrected memory errors are polled for on lane CPUs",
			classes: Severities{Info, Info, None},
			cost:    "a timer of some µs every five minutes, and firmware's interrupt where errors are logged",
			runTime: "echo 1 > /sys/devices/system/machinecheck/machinecheckN/ignore_ce of the lane's CPUs; mce=off is no mend, it hides faults",
			source:  "Documentation/arch/x86/x86_64/machinecheck.rst", check: machineCheckPoll,
		},
		{
			id: "smi", title: "firmware takes the CPU",
			classes: Severities{Warn, Fault, Info},
			cost:    "a system management interrupt stops all CPUs for 10 µs to milliseconds, and no tracer sees it",
			runTime: "measure: rtla hwnoise, or turbostat's column SMI before and after; switch it off in the firmware's set-up",
			source:  "Documentation/trace/hwlat_detector.rst", check: func(s *subject) []hit {
				s.lacks("file with MSR 0x34 (turbostat and rtla hwnoise read it)")
				return nil
			},
		},
	}
}

// idleState is a state of cpuidle that a CPU may enter.
type idleState struct {
	name    string
	latency int64 // microseconds to leave it
}

// deepStates finds the enabled states whose exit latency is above what PM QoS allows, or above the
// budget where that allows all ("0"); "n/a" there allows none.
func deepStates(s *subject) []hit {
	if value, _ := s.boot.Get("idle"); s.Kernel.IdleDriver == "none" || value == "poll" {
		return nil // nobody puts a CPU to sleep
	}
	deep := map[idleState]cpuset.Set{}
	for _, p := range s.matching("/sys/devices/system/cpu/cpu*/cpuidle/state*/latency") {
		id := cpuOf(p, "cpu")
		latency, ok := s.number(p)
		limit, bound := s.files[fmt.Sprintf("/sys/devices/system/cpu/cpu%d/power/pm_qos_resume_latency_us", id)]
		allowed, err := strconv.ParseInt(limit, 10, 64)
		held := bound && (limit == "n/a" || err == nil && allowed > 0 && latency > allowed)
		if ok && s.lane.Contains(id) && latency > budgetMicroseconds && !held && s.files[path.Dir(p)+"/disable"] != "1" {
			state := idleState{s.files[path.Dir(p)+"/name"], latency}
			deep[state] = deep[state].Union(cpuset.Of(id))
		}
	}
	if len(deep) == 0 {
		return nil
	}
	var h hit
	for _, state := range slices.SortedFunc(maps.Keys(deep), func(a, b idleState) int {
		return strings.Compare(fmt.Sprintf("%09d %s", a.latency, a.name), fmt.Sprintf("%09d %s", b.latency, b.name))
	}) {
		h.cpus = h.cpus.Union(deep[state])
		h.evidence = append(h.evidence, fmt.Sprintf("%s takes %d µs to leave: CPUs %s", state.name, state.latency, deep[state]))
		h.inForce = fmt.Sprintf("%s, %d µs to leave, may be entered; a device held open on /dev/cpu_dma_latency would not show here",
			state.name, state.latency)
	}
	return []hit{h}
}

func uselessLimit(s *subject) []hit {
	limits := map[string]string{"intel_idle": "intel_idle.max_cstate", "acpi_idle": "processor.max_cstate"}
	driver := s.Kernel.IdleDriver
	if driver == "" || s.Kernel.Cmdline == "" {
		s.lacks("/sys/devices/system/cpu/cpuidle/current_driver")
		return nil
	}
	if _, ok := s.boot.Get(limits[driver]); ok || driver == "none" {
		return nil
	}
	var hits []hit
	for _, param := range slices.Sorted(maps.Values(limits)) {
		if _, ok := s.boot.Get(param); ok {
			hits = append(hits, hit{asked: s.boot.asked(param), inForce: "cpuidle/current_driver is " + driver})
		}
	}
	return hits
}

func idlePoll(s *subject) []hit {
	if value, _ := s.boot.Get("idle"); value == "poll" {
		return []hit{{asked: "idle=poll", inForce: "no CPU enters an idle state", cpus: s.Online()}}
	}
	return s.noCmdline()
}

// policies calls use with each cpufreq policy that has lane CPUs, by its directory.
func (s *subject) policies(use func(dir string, cpus cpuset.Set)) {
	files := s.optional("/sys/devices/system/cpu/cpufreq/policy*/affected_cpus")
	if len(files) == 0 && (s.Kernel.Hypervisor == nil || !*s.Kernel.Hypervisor) { // guests have none
		s.lacks("/sys/devices/system/cpu/cpufreq/policy*")
	}
	for _, p := range files {
		cpus, err := cpuset.Parse(strings.ReplaceAll(s.files[p], " ", ","))
		if on := cpus.Intersection(s.lane); err == nil && !on.IsEmpty() {
			use(path.Dir(p), on)
		}
	}
}

// byPolicy is one hit with the policies of which wrong says something, the CPUs gathered by what it
// says.
func (s *subject) byPolicy(wrong func(dir string) string) []hit {
	found := map[string]cpuset.Set{}
	s.policies(func(dir string, cpus cpuset.Set) {
		if text := wrong(dir); text != "" {
			found[text] = found[text].Union(cpus)
		}
	})
	if len(found) == 0 {
		return nil
	}
	var h hit
	for _, text := range slices.Sorted(maps.Keys(found)) {
		h.cpus = h.cpus.Union(found[text])
		h.evidence = append(h.evidence, fmt.Sprintf("%s: CPUs %s", text, found[text]))
	}
	h.inForce = strings.Join(h.evidence, "; ")
	return []hit{h}
}

// governor: with HWP, powersave lets the hardware choose, and the energy preference decides.
func governor(s *subject) []hit {
	return s.byPolicy(func(dir string) string {
		g, active := s.files[dir+"/scaling_governor"], s.files[dir+"/energy_performance_preference"] != ""
		if g == "" || g == "performance" || g == "powersave" && active {
			return ""
		}
		return "governor " + g
	})
}

func frequencyRange(s *subject) []hit {
	return s.byPolicy(func(dir string) string {
		lo, hi := s.files[dir+"/scaling_min_freq"], s.files[dir+"/scaling_max_freq"]
		if lo == hi {
			return ""
		}
		return fmt.Sprintf("%s to %s kHz", lo, hi)
	})
}

func energyPreference(s *subject) []hit {
	return s.byPolicy(func(dir string) string {
		switch p := s.files[dir+"/energy_performance_preference"]; p {
		case "", "performance", "0":
			return ""
		default:
			return "preference " + p
		}
	})
}

func pstateDisabled(s *subject) []hit {
	value, _ := s.boot.Get("intel_pstate")
	if value != "disable" {
		return s.noCmdline()
	}
	if s.Kernel.Flags == nil {
		s.lacks("flags line in /proc/cpuinfo")
		return nil
	}
	if !slices.Contains(s.Kernel.Flags, "hwp") {
		return nil
	}
	return []hit{{asked: "intel_pstate=disable", inForce: "the CPU has the flag hwp"}}
}

func turbo(s *subject) []hit {
	if off, ok := s.files["/sys/devices/system/cpu/intel_pstate/no_turbo"]; ok && off == "0" {
		return []hit{{cpus: s.lane, inForce: "/sys/devices/system/cpu/intel_pstate/no_turbo is 0"}}
	}
	if boost, ok := s.files["/sys/devices/system/cpu/cpufreq/boost"]; ok && boost == "1" {
		return []hit{{cpus: s.lane, inForce: "/sys/devices/system/cpu/cpufreq/boost is 1"}}
	}
	return nil
}

func uncore(s *subject) []hit {
	var h hit
	for _, p := range s.optional("/sys/devices/system/cpu/intel_uncore_frequency/*/min_freq_khz") {
		if most := s.files[path.Dir(p)+"/max_freq_khz"]; s.files[p] != most {
			h.evidence = append(h.evidence, fmt.Sprintf("%s: %s to %s kHz", path.Dir(p), s.files[p], most))
		}
	}
	if len(h.evidence) == 0 {
		return nil
	}
	h.inForce = h.evidence[0]
	return []hit{h}
}

func slowClock(s *subject) []hit {
	switch s.Kernel.Clocksource {
	case "":
		s.lacks("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	case "hpet", "acpi_pm", "jiffies", "refined-jiffies", "xen", "pit":
		return []hit{{inForce: "clocksource " + s.Kernel.Clocksource}}
	}
	return nil
}

func tscReliable(s *subject) []hit {
	if value, _ := s.boot.Get("tsc"); value != "reliable" {
		return s.noCmdline()
	}
	if s.Kernel.Flags == nil {
		s.lacks("flags line in /proc/cpuinfo")
		return nil
	}
	if slices.Contains(s.Kernel.Flags, "constant_tsc") && slices.Contains(s.Kernel.Flags, "nonstop_tsc") {
		return nil
	}
	return []hit{{asked: "tsc=reliable", inForce: "the CPU's flags lack constant_tsc or nonstop_tsc"}}
}

func machineCheckPoll(s *subject) []hit {
	var on []int
	for _, p := range s.optional("/sys/devices/system/machinecheck/machinecheck*/ignore_ce") {
		id := cpuOf(p, "machinecheck")
		if s.lane.Contains(id) && s.files[p] == "0" && s.files[path.Dir(p)+"/check_interval"] != "0" {
			on = append(on, id)
		}
	}
	if len(on) == 0 {
		return nil
	}
	return []hit{{cpus: cpuset.Of(on...), inForce: fmt.Sprintf("machinecheck*/ignore_ce is 0 of CPUs %s", cpuset.Of(on...))}}
}
