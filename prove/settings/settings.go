// Package settings reads those settings of a host that change what runs on it. If two runs of a block find
// different ones, they are not comparable.
package settings

import (
	"fmt"
	"io/fs"
	"strings"
)

// files returns patterns of path.Match. The files are read before each run, when nothing of the run is in
// force.
func files() []string {
	const cpu = "sys/devices/system/cpu/"
	return []string{
		cpu + "online", cpu + "smt/control", cpu + "cpufreq/boost", cpu + "intel_pstate/no_turbo",
		cpu + "intel_pstate/m??_perf_pct", cpu + "cpufreq/policy*/scaling_governor",
		cpu + "cpufreq/policy*/scaling_m??_freq", cpu + "cpufreq/policy*/energy_performance_preference",
		cpu + "cpu[0-9]*/cpuidle/state*/disable", cpu + "cpu[0-9]*/power/pm_qos_resume_latency_us",
		"sys/devices/system/clocksource/clocksource0/current_clocksource", "sys/devices/virtual/workqueue/cpumask",
		"sys/kernel/mm/transparent_hugepage/enabled", "sys/kernel/mm/transparent_hugepage/defrag",
		"sys/kernel/mm/ksm/run", "sys/module/haltpoll/parameters/*", "etc/tuned/active_profile",
		"proc/irq/default_smp_affinity", "proc/sys/kernel/numa_balancing", "proc/sys/kernel/sched_rt_*_us",
		"proc/sys/kernel/timer_migration", "proc/sys/kernel/nmi_watchdog", "proc/sys/vm/swappiness",
		"proc/sys/vm/stat_interval", "proc/sys/vm/dirty_*ratio", "proc/sys/net/core/busy_*",
		"proc/sys/net/core/default_qdisc", "proc/sys/net/core/[rw]mem_*", "proc/sys/net/ipv4/tcp_[rw]mem",
		"proc/sys/net/ipv4/tcp_congestion_control",
	}
}

// Read returns the settings of a host, by pattern. For several files it lists the values with their counts,
// in their order: "2× powersave".
func Read(root fs.FS) map[string]string {
	found := map[string]string{}
	for _, pattern := range files() {
		matched, _ := fs.Glob(root, pattern) // the patterns are well formed
		var values []string
		var counts []int
		for _, f := range matched {
			text, err := fs.ReadFile(root, f)
			if err != nil {
				continue // a host without it
			}
			value := strings.Join(strings.Fields(string(text)), " ")
			if n := len(values); n > 0 && values[n-1] == value {
				counts[n-1]++
			} else {
				values, counts = append(values, value), append(counts, 1)
			}
		}
		if len(values) > 1 {
			for i := range values {
				values[i] = fmt.Sprintf("%d× %s", counts[i], values[i])
			}
		}
		if len(values) > 0 {
			found["/"+pattern] = strings.Join(values, ", ")
		}
	}
	return found
}

// Changed returns the settings that differ from before; "" means gone.
func Changed(before, now map[string]string) map[string]string {
	if before == nil {
		return nil // a session from before they were recorded
	}
	all := map[string]string{}
	for name := range before {
		if now[name] != before[name] {
			all[name] = now[name]
		}
	}
	for name, value := range now {
		if _, there := before[name]; !there {
			all[name] = value
		}
	}
	return all
}
