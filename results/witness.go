package results

import "isolane.dev/isolane/cpuset"

// Witness is the evidence of what really happened during the measured part of a run.
type Witness struct {
	Window  Nanoseconds `json:"windowNanoseconds"`
	Source  string      `json:"source"` // bpf (sched_switch) or procfs (sampled)
	Threads []Thread    `json:"threads"`
	Cpusets []Cpuset    `json:"cpusets"`
	CPUs    []CPU       `json:"cpus"`
	// Sources are what took time from the CPUs of the application and of the client, the costliest first. Those
	// beyond a bound are added up by kind, under the name others. Tasks on a lane's CPU are among them.
	Sources    []Source   `json:"sources"`
	Neighbours Neighbours `json:"neighbours"`
	Warnings   []string   `json:"warnings,omitempty"`
}

// Thread is one thread of a measured process.
type Thread struct {
	Role        string      `json:"role"` // application, client or outside
	PID         int         `json:"pid"`
	TID         int         `json:"tid"`
	Comm        string      `json:"comm"`
	Planned     cpuset.Set  `json:"plannedCPUs"`
	Seen        cpuset.Set  `json:"seenCPUs"` // where it ran
	Voluntary   uint64      `json:"voluntarySwitches"`
	Involuntary uint64      `json:"involuntarySwitches"`
	Ran         Nanoseconds `json:"ranNanoseconds"` // 0 if only procfs was available
}

// Cpuset is a cpuset on which the plan relies.
type Cpuset struct {
	Path    string     `json:"path"`
	Planned cpuset.Set `json:"plannedCPUs"`
	InForce cpuset.Set `json:"inForceCPUs"`
}

// CPU counts what the kernel did on one CPU during the window.
type CPU struct {
	ID              int               `json:"id"`
	Interrupts      uint64            `json:"interrupts"`
	InterruptSource map[string]uint64 `json:"interruptSources,omitempty"` // by name, only those that fired
	Softirqs        map[string]uint64 `json:"softirqs,omitempty"`
	ContextSwitches uint64            `json:"contextSwitches,omitempty"` // counted by bpf only
	Steal           Nanoseconds       `json:"stealNanoseconds"`
	Idle            Nanoseconds       `json:"idleNanoseconds"`
	// at the end of the window, by cpufreq; 0: unknown
	Frequency uint64 `json:"frequencyKilohertz,omitempty"`
	// How often the CPU left an idle state, and the sum of the exit latencies, as the driver gives them. Both
	// are 0 if the kernel does not tell, or if the CPU never slept.
	IdleExits uint64      `json:"idleExits,omitempty"`
	IdleExit  Nanoseconds `json:"idleExitNanoseconds,omitempty"`
	Throttled uint64      `json:"throttled,omitempty"` // how often heat slowed it or its package down
}

// Source is what takes time from one CPU, added up since the trace began. Its time excludes what interrupted
// it, which has a row of its own, so the times on a CPU do not overlap. It counts whatever else the CPU did,
// even if it was idle. Nil is unknown.
type Source struct {
	CPU    int    `json:"cpu"`
	Kind   string `json:"kind"` // task, kernel thread, interrupt, softirq, ipi, tick or steal
	Name   string `json:"name"`
	Work   string `json:"work,omitempty"`   // the kernel function that a kworker ran
	Cgroup string `json:"cgroup,omitempty"` // of a task, in the hierarchy with the cpuset controller
	PID    int    `json:"pid,omitempty"`    // of a task
	TID    int    `json:"tid,omitempty"`    // of a task or kernel thread; 0: those beyond the bound, together
	IRQ    *int   `json:"irq,omitempty"`    // of an interrupt
	Own    bool   `json:"own,omitempty"`    // it serves one of the lane's own devices

	Count *uint64      `json:"count"`
	Total *Nanoseconds `json:"totalNanoseconds"`
	// AtMost is what a task ran on all CPUs, if its time on this CPU is unknown.
	AtMost *Nanoseconds `json:"atMostNanoseconds,omitempty"`
	// the upper bound of its bucket, which is at most an eighth wide; nil below 100 occurrences
	P99     *Nanoseconds `json:"p99Nanoseconds"`
	Longest *Nanoseconds `json:"longestNanoseconds"`
	Remedy  string       `json:"remedy"`
}

// CacheLine is how long a cache line took between a CPU of the client and one of the application, in steps of
// 16 ns. It tells how far these CPUs are from each other meanwhile, whatever a hypervisor says of them: some
// tens of nanoseconds below one L3, a hundred or more below two.
type CacheLine struct {
	Looks  uint64      `json:"looks"` // at most a thousand a second and CPU
	P10    Nanoseconds `json:"p10Nanoseconds"`
	Median Nanoseconds `json:"medianNanoseconds"`
	P90    Nanoseconds `json:"p90Nanoseconds"`
}

// Neighbours is what the noise achieved. In quiet cells Alive is false and the rest is empty.
type Neighbours struct {
	Alive   bool        `json:"alive"` // at the end of the last probe
	CPUTime Nanoseconds `json:"cpuTimeNanoseconds"`
	Seen    cpuset.Set  `json:"seenCPUs"`
	// BogoPerSec is what stress-ng counted, by stressor, and the runs of hackbench.
	BogoPerSec map[string]float64 `json:"bogoOpsPerSecond,omitempty"`
}
