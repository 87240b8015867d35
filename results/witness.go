package results

import "isolane.dev/isolane/cpuset"

// Witness is the evidence of what really happened during the measured part of a run.
type Witness struct {
	Window  Nanoseconds `json:"windowNanoseconds"`
	Source  string      `json:"source"` // bpf (sched_switch) or procfs (sampled)
	Threads []Thread    `json:"threads"`
	Cpusets []Cpuset    `json:"cpusets"`
	CPUs    []CPU       `json:"cpus"`
	// Sources are what took the time of the application's CPUs and of the client's, the costliest first; those
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
	Seen        cpuset.Set  `json:"seenCPUs"` // where it really ran
	Voluntary   uint64      `json:"voluntarySwitches"`
	Involuntary uint64      `json:"involuntarySwitches"`
	Ran         Nanoseconds `json:"ranNanoseconds"` // 0 where only procfs was there
}

// Cpuset is a cpuset that the plan counts on.
type Cpuset struct {
	Path    string     `json:"path"`
	Planned cpuset.Set `json:"plannedCPUs"`
	InForce cpuset.Set `json:"inForceCPUs"`
}

// CPU counts what the kernel did on one CPU during the window.
type CPU struct {
	ID              int               `json:"id"`
	Interrupts      uint64            `json:"interrupts"`
	InterruptSource map[string]uint64 `json:"interruptSources,omitempty"` // by name, those that fired
	Softirqs        map[string]uint64 `json:"softirqs,omitempty"`
	ContextSwitches uint64            `json:"contextSwitches,omitempty"` // counted by bpf only
	Steal           Nanoseconds       `json:"stealNanoseconds"`
	Idle            Nanoseconds       `json:"idleNanoseconds"`
	// at its end, as cpufreq says; 0: unknown
	Frequency uint64 `json:"frequencyKilohertz,omitempty"`
	// How often it left an idle state, and the exit latencies of these together, as the driver has them. Where
	// the kernel does not say, and in a CPU that never slept, both are 0.
	IdleExits uint64      `json:"idleExits,omitempty"`
	IdleExit  Nanoseconds `json:"idleExitNanoseconds,omitempty"`
	Throttled uint64      `json:"throttled,omitempty"` // how often its heat slowed it, or its package, down
}

// Source is what takes time from one CPU, added up since the trace began. A time is the source's
// own: what interrupted it meanwhile has a row of its own, so the times of a CPU do not overlap. It
// counts whatever the CPU did otherwise, also while it idled. Nil is unknown.
type Source struct {
	CPU    int    `json:"cpu"`
	Kind   string `json:"kind"` // task, kernel thread, interrupt, softirq, ipi, tick or steal
	Name   string `json:"name"`
	Work   string `json:"work,omitempty"`   // the kernel's function that a kworker ran
	Cgroup string `json:"cgroup,omitempty"` // of a task, in the hierarchy with the cpuset controller
	PID    int    `json:"pid,omitempty"`    // of a task
	TID    int    `json:"tid,omitempty"`    // of a task or kernel thread; 0: those that found no room, together
	IRQ    *int   `json:"irq,omitempty"`    // of an interrupt
	Own    bool   `json:"own,omitempty"`    // it serves a device of the lane's own

	Count *uint64      `json:"count"`
	Total *Nanoseconds `json:"totalNanoseconds"`
	// AtMost is what a task ran on all CPUs, where what it ran on this one is not known.
	AtMost *Nanoseconds `json:"atMostNanoseconds,omitempty"`
	// the upper bound of its bucket, an eighth wide at most; of 100 at least
	P99     *Nanoseconds `json:"p99Nanoseconds"`
	Longest *Nanoseconds `json:"longestNanoseconds"`
	Remedy  string       `json:"remedy"`
}

// Neighbours is what the noise delivered. In quiet cells Alive is false and the rest is empty.
type Neighbours struct {
	Alive      bool               `json:"alive"` // at the end of the last probe
	CPUTime    Nanoseconds        `json:"cpuTimeNanoseconds"`
	Seen       cpuset.Set         `json:"seenCPUs"`
	BogoPerSec map[string]float64 `json:"bogoOpsPerSecond,omitempty"` // by stressor, as stress-ng counts
}
