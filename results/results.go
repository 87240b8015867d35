// Package results is the results directory of a proof: its schema, its writer and its reader.
//
// `prove` writes it run by run; `report` and other tools read it. Probes and the witness return
// these types, so that what is measured is what is stored. Times are in nanoseconds, sizes in bytes
// and rates in bit/s, with the unit in the JSON key. What is not known is absent or null.
package results

import (
	"strings"
	"time"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/lane"
)

// APIVersion and Kind head the document; Schema counts incompatible changes of it.
const (
	APIVersion = "isolane.dev/v1alpha1"
	Kind       = "ProveResult"
	Schema     = 1
)

// Session is the whole document, results.json.
type Session struct {
	APIVersion  string      `json:"apiVersion"`
	Kind        string      `json:"kind"`
	Schema      int         `json:"schema"`
	Scenario    Scenario    `json:"scenario"`
	Environment Environment `json:"environment"`
	Started     time.Time   `json:"started"`
	Ended       time.Time   `json:"ended"` // of the last run stored
	Complete    bool        `json:"complete"`
	// Notes say what a reader of the figures must know: what this machine could not give,
	// what fell back to something else, what was never run on a real kernel.
	Notes []string `json:"notes"`
	Lane  *Lane    `json:"lane,omitempty"` // in force on this host, beside which the session measured; else nil
	Cells []Cell   `json:"cells"`
	Runs  []Run    `json:"runs"` // in the order in which they were made
}

// Lane is a lane in force that is proved.
type Lane struct {
	Name       string          `json:"name"`
	Bounds     []lane.Bound    `json:"bounds"` // of its objective
	Conditions lane.Conditions `json:"conditions"`
	// Drift is what was not as the lane wants it after the last run: the figures are not the lane's.
	Drift []string `json:"drift,omitempty"`
}

// Scenario says what was asked.
type Scenario struct {
	Name   string `json:"name"`
	Title  string `json:"title"`
	Mode   string `json:"mode"`   // quick, standard or proof
	Blocks int    `json:"blocks"` // counted ones; one more is run first and dropped
	Seed   uint64 `json:"seed"`   // of the order of the cells
	Source string `json:"source"` // the scenario as YAML, with all defaults filled in
	Aims   *Aims  `json:"aims,omitempty"`
}

// Aims are what one cell is to reach against the baseline.
type Aims struct {
	Cell  string `json:"cell"`
	Goals []Goal `json:"goals"`
}

// Goal is a figure in percent of the baseline's: at least that, or at most where less is better.
type Goal struct {
	Metric    string  `json:"metric"`              // throughput or rtt
	Statistic string  `json:"statistic,omitempty"` // p99.9, of all runs merged; "": that of the single blocks
	Percent   float64 `json:"percent"`
}

// P999 is the Statistic of a Goal for the 99.9th percentile.
const P999 = "p99.9"

// Environment is the machine and the programs that made the figures.
type Environment struct {
	Hostname    string            `json:"hostname"`
	Kernel      string            `json:"kernel"` // release and version, as uname prints them
	Cmdline     string            `json:"cmdline"`
	BootID      string            `json:"bootID"`
	CPUModel    string            `json:"cpuModel"`
	Hypervisor  bool              `json:"hypervisor"`
	Online      cpuset.Set        `json:"online"`
	IdleDriver  string            `json:"idleDriver"`
	IdleGov     string            `json:"idleGovernor"`
	Clocksource string            `json:"clocksource"`
	MemoryBytes uint64            `json:"memoryBytes"`
	Versions    map[string]string `json:"versions"` // isolane, stress-ng, iperf3: program to version
}

// Cell is one combination of conditions. Cells with the same Path, Runtime and so on differ only
// in what their fields say.
type Cell struct {
	Name      string `json:"name"`      // noise-placement-path, "noisy-lane-express"
	Placement string `json:"placement"` // floating, pinned or lane
	Noise     string `json:"noise"`     // quiet or noisy
	Path      string `json:"path"`      // bridge or express, as asked
	// PathInForce differs from Path where this kernel cannot do what was asked; a note says why.
	PathInForce string `json:"pathInForce"`
	Baseline    bool   `json:"baseline"` // the cell to which the others are compared
	// The CPUs that the plan gives each part.
	Application cpuset.Set  `json:"applicationCPUs"`
	Client      cpuset.Set  `json:"clientCPUs"`
	Neighbours  cpuset.Set  `json:"neighbourCPUs"` // empty in quiet cells
	Published   []Published `json:"published,omitempty"`
}

// Published is a figure of somebody else for the same conditions.
type Published struct {
	Metric    string  `json:"metric"`  // throughput or rtt
	Percent   float64 `json:"percent"` // of the baseline cell
	Qualifier string  `json:"qualifier"`
	Source    string  `json:"source"`
}

// The words that a Qualifier may begin with. All else in it is for a reader.
const (
	About   = "about"   // read off a chart, or rounded
	Average = "average" // of a quantity that we give as a percentile
)

// Qualified says whether the qualifier begins with a word.
func (p Published) Qualified(word string) bool { return strings.HasPrefix(p.Qualifier, word) }

// Run is one cell measured once, with fresh processes and sockets.
type Run struct {
	Block    int           `json:"block"` // 0 is the warm-up block, which is dropped
	Cell     string        `json:"cell"`
	Started  time.Time     `json:"started"`
	Duration Nanoseconds   `json:"durationNanoseconds"`
	Dropped  string        `json:"dropped,omitempty"` // why this run is not used although it is valid
	Void     []string      `json:"void,omitempty"`    // what contradicts the plan; a void run is not used
	Notes    []string      `json:"notes,omitempty"`
	Measured []Measurement `json:"measurements"`
	Witness  Witness       `json:"witness"`
}

// Used says whether the figures of the run count.
func (r Run) Used() bool { return r.Dropped == "" && len(r.Void) == 0 }

// Nanoseconds is a duration or a moment within a run.
type Nanoseconds int64

// Measurement is what one probe found in one run.
type Measurement struct {
	// Name tells the probe and its settings: "rtt-udp-64-pingpong", "rtt-udp-64-open",
	// "throughput-tcp-up". It is the same in all runs of a session.
	Name   string      `json:"name"`
	Metric string      `json:"metric"` // rtt or throughput
	Window Nanoseconds `json:"windowNanoseconds"`
	Void   []string    `json:"void,omitempty"` // why this one figure is not used: the client could not keep up
	RTT    *RTT        `json:"rtt,omitempty"`
	Worst  []Sample    `json:"worst,omitempty"` // the longest samples, the longest first; at most 64
	Tail   *Tail       `json:"tail,omitempty"`  // what the longest of them met; nil where nothing recorded it
	Rate   *Throughput `json:"throughput,omitempty"`
}

// Sample is one round trip, from its (in the open loop: intended) send time to its reply, on
// CLOCK_MONOTONIC.
type Sample struct {
	Begin Nanoseconds `json:"beginNanoseconds"`
	End   Nanoseconds `json:"endNanoseconds"`
}

// Tail links the longest samples of a measurement, by time, to what happened on the CPUs of the application
// and the client. The times are parts of Excess: what the samples took beyond the run's median.
type Tail struct {
	// Quantile is where these samples begin; 0: the longest hundredth of a sample too small for one.
	Quantile    float64     `json:"quantile,omitempty"`
	Samples     int         `json:"samples"`
	Missing     int         `json:"missing,omitempty"` // as long, but too many to be kept
	Excess      Nanoseconds `json:"excessNanoseconds"`
	Met         []Met       `json:"met"` // the costliest first
	Unexplained Nanoseconds `json:"unexplainedNanoseconds"`
	// Lost found no room: they are among what is unexplained.
	Lost uint64 `json:"lostIntrusions,omitempty"`
}

// Met is how much of the excess a source covers. Of sources that interrupt each other only the
// innermost counts.
type Met struct {
	// As of a Source, or wake-up: from the waking of a thread until it runs, beyond the usual.
	Kind string      `json:"kind"`
	Name string      `json:"name"`           // of a wake-up: application or client
	Side string      `json:"side,omitempty"` // client: on the client's CPU; absent: on the application's
	Took Nanoseconds `json:"tookNanoseconds"`
}

// RTT is the outcome of an echo probe. Open-loop latencies count from the intended send time.
type RTT struct {
	Protocol     string    `json:"protocol"` // udp or tcp
	PayloadBytes int       `json:"payloadBytes"`
	Mode         string    `json:"mode"` // pingpong (closed loop: service time) or open
	RatePerSec   float64   `json:"ratePerSecond,omitempty"`
	Wait         string    `json:"wait"` // how the client awaits the reply: spin or block
	Sent         uint64    `json:"sent"`
	Lost         uint64    `json:"lost"`
	Latency      Histogram `json:"latency"`
	SendLag      Histogram `json:"sendLag,omitempty"` // open loop: actual minus intended send time
}

// Histogram is an HdrHistogram from 1 ns to 60 s with 3 digits, in the V2 compressed base64 form
// that other HdrHistogram tools read. The empty string is an empty histogram.
type Histogram string

// Throughput is the outcome of an iperf3 run, as its receiver saw it.
type Throughput struct {
	Protocol          string  `json:"protocol"`
	Direction         string  `json:"direction"` // up: client to application; down: the other way
	WriteBytes        int     `json:"writeBytes"`
	BitsPerSecond     float64 `json:"bitsPerSecond"`
	Retransmits       uint64  `json:"retransmits"`
	CongestionControl string  `json:"congestionControl"`
	ClientCPUPercent  float64 `json:"clientCPUPercent"`
	ServerCPUPercent  float64 `json:"serverCPUPercent"`
}

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
	Role        string      `json:"role"` // application or client
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
