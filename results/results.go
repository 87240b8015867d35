// Package results is the results directory of a proof: its schema, its writer and its reader.
//
// `prove` writes it run by run; `report` and other tools read it. Probes and the witness return these types,
// so what is measured is what is stored. Times are in nanoseconds, sizes in bytes and rates in bit/s, with
// the unit in the JSON key. What is unknown is absent or null.
package results

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/lane"
)

// APIVersion and Kind begin the document. Schema counts its incompatible changes.
const (
	APIVersion = "isolane.dev/v1alpha1"
	Kind       = "ProveResult"
	Schema     = 2
)

// Session is the whole document, results.json.
type Session struct {
	APIVersion  string      `json:"apiVersion"`
	Kind        string      `json:"kind"`
	Schema      int         `json:"schema"`
	Scenario    Scenario    `json:"scenario"`
	Factors     []Factor    `json:"factors"` // what differs between cells, in the order of words in their names
	Metrics     []Metric    `json:"metrics"` // what the runs measure, in that order
	Environment Environment `json:"environment"`
	// Boots has the environment of each boot, if the session went on after a reboot. The first is Environment.
	Boots    []Environment `json:"boots,omitempty"`
	Started  time.Time     `json:"started"`
	Ended    time.Time     `json:"ended"` // when the last stored run ended
	Complete bool          `json:"complete"`
	// Stopped says what ended the session before its last run. It is nil if the session is complete, waits for a
	// boot, still runs, or was ended without a trace, as by SIGKILL.
	Stopped *Stop `json:"stopped,omitempty"`
	// Notes say what a reader of the figures must know: what this machine lacked, what fell back to something
	// else, what was never run on a real kernel.
	Notes []string `json:"notes"`
	// LeftOut are optional probes that could not run in some cells.
	LeftOut []LeftOut `json:"leftOut,omitempty"`
	// Capacities were measured first, if loads are shares of them.
	Capacities []Capacity `json:"capacities,omitempty"`
	Lane       *Lane      `json:"lane,omitempty"` // the lane in force that the session proves; nil: none
	Pods       *Pods      `json:"pods,omitempty"` // nil: application and neighbours were processes
	Cells      []Cell     `json:"cells"`
	Runs       []Run      `json:"runs"` // in the order in which they were made
	// Searches were made after the runs, in this order.
	Searches []Search `json:"searches,omitempty"`
	// Awaits names the cells that need another boot, to which the session has not come.
	Awaits []Await `json:"awaits,omitempty"`
}

// Stop is what ended a session before its last run.
type Stop struct {
	Interrupted bool   `json:"interrupted"` // by a signal, as of Ctrl-C; else by an error
	Why         string `json:"why"`
}

// Lane is a lane in force that a session proves.
type Lane struct {
	Name       string          `json:"name"`
	Bounds     []lane.Bound    `json:"bounds"` // of its objective
	Conditions lane.Conditions `json:"conditions"`
	// Drift is what was not as the lane wants it after the last run. Then the figures are not the lane's.
	Drift []string `json:"drift,omitempty"`
}

// Pods says in which pods the application and the neighbours ran.
type Pods struct {
	Node    string `json:"node"`
	Kubelet string `json:"kubelet"`          // its version
	Image   string `json:"image"`            // in which the pods ran the host's programs
	Static  string `json:"static,omitempty"` // the node whose kubelet assigned the CPUs of a cell
}

// Scenario says what was requested.
type Scenario struct {
	Name   string `json:"name"`
	Title  string `json:"title"`
	Mode   string `json:"mode"`   // quick, standard or proof
	Blocks int    `json:"blocks"` // without the warm-up block, which is dropped
	// Boots is over how many boots of each level the blocks are spread; 0: one.
	Boots     int         `json:"boots,omitempty"`
	Seed      uint64      `json:"seed"`   // of the order of the cells, and of random arrivals
	Source    string      `json:"source"` // the scenario as YAML, with all defaults filled in
	Excluded  []Excluded  `json:"excluded,omitempty"`
	Aims      *Aims       `json:"aims,omitempty"`
	Published []Published `json:"published,omitempty"`
	Doubts    []Doubt     `json:"publishedDoubts,omitempty"` // what does not hold in the published figures
}

// Excluded is a combination of levels that is not measured.
type Excluded struct {
	Cell    string `json:"cell"`
	Because string `json:"because"`
}

// LeftOut is a probe that is not measured in some cells.
type LeftOut struct {
	Probe   string   `json:"probe"`
	Cells   []string `json:"cells"`
	Because string   `json:"because"`
}

// Factor is a condition that differs between cells.
type Factor struct {
	Name   string  `json:"name"`
	Levels []Level `json:"levels"`
	// Quiet is the level of a disturbing factor at which nothing disturbs the application. Each disturbed cell
	// is also compared with its own quiet one. "": the factor does not disturb.
	Quiet string `json:"quietLevel,omitempty"`
	// Outside says that the factor changes nothing about the application and its network path: only who disturbs
	// it, or the load.
	Outside bool `json:"outside,omitempty"`
	// PerBoot says that the factor cannot change while the machine runs: its levels are compared between boots.
	PerBoot bool `json:"perBoot,omitempty"`
}

// Level is one value of a factor.
type Level struct {
	Name  string `json:"name"`
	Words string `json:"words,omitempty"` // what it means
}

// Metric is a quantity that runs measure.
type Metric struct {
	// Name is the name of the metric's values: the probe's name in the scenario, followed by a word if a probe
	// has several metrics.
	Name     string    `json:"name"`
	Quantity string    `json:"quantity"` // what it is, common to all probes that measure it: rtt, throughput
	Noun     string    `json:"noun"`     // in a sentence: RTT
	Title    string    `json:"title"`    // in a heading: Round trip
	About    string    `json:"about,omitempty"`
	Unit     string    `json:"unit"`   // ns, bit/s; others are printed as they stand
	Better   Direction `json:"better"` // higher or lower
	Margin   float64   `json:"margin"` // the smallest ratio beyond 1 that matters: 0.05 is 5%
	Role     Role      `json:"role,omitempty"`
	// Sampled metrics have a histogram a run, whose median is their value. The others have one value a run.
	Sampled bool     `json:"sampled,omitempty"`
	Loop    Loop     `json:"loop,omitempty"`
	MeanOf  []string `json:"meanOf,omitempty"` // metrics of which it is the geometric mean
	// Guards names the metric that this metric, a check, guards: if the check's median over the runs of a cell
	// is beyond Limit, on either side of 0, the verdict on that metric is lowered. A Limit of 0 is for what must
	// never happen: one run is enough, and the metric does not become a lower bound (≥).
	Guards string  `json:"guards,omitempty"`
	Limit  float64 `json:"limit,omitempty"`
	// Trend is a check that compares the second half of the window with the first: beyond Limit the metric
	// changed while it was measured. That does not mean that anything was at its limit.
	Trend bool   `json:"trend,omitempty"`
	Short string `json:"short,omitempty"` // its name as part of a mean: up
}

// Units that are printed and parsed with a fitting prefix.
const (
	TimeUnit = "ns"
	RateUnit = "bit/s"
)

// Direction says which values are better.
type Direction string

// The directions.
const (
	Higher Direction = "higher"
	Lower  Direction = "lower"
)

// Role is what a metric is for.
type Role string

// The roles. A metric without one is shown after the primary ones.
const (
	Primary Role = "primary" // comes first, and belongs to the only family of verdicts
	Cost    Role = "cost"    // what the figures cost
	Check   Role = "check"   // whether the measurement can be trusted
)

// Loop says for what a sampling probe waits.
type Loop string

// The loops.
const (
	Open   Loop = "open"   // a fixed rate, whatever the replies; latencies count from the intended time
	Closed Loop = "closed" // each sample begins after the last: service time, which misses stalls
)

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
	// Settings are those of the host as the session found them, by file pattern: "/proc/sys/vm/swappiness". If a
	// pattern matches several files, a count precedes each value.
	Settings map[string]string `json:"settings,omitempty"`
}

// Cell is one combination of conditions.
type Cell struct {
	Name   string            `json:"name"`   // its levels, in the order of the factors: "noisy-lane-express"
	Levels map[string]string `json:"levels"` // by factor; without factors that do not matter in this cell
	// InForce has, for levels of which this kernel is incapable, what was in force instead. A note says why.
	InForce  map[string]string `json:"inForce,omitempty"`
	Baseline bool              `json:"baseline"` // the cell with which the others are compared
	// Commands of the scenario run in this cell, and may leave something running.
	Commands bool `json:"commands,omitempty"`
	// The CPUs that the plan gives to each part.
	Application cpuset.Set `json:"applicationCPUs"`
	Client      cpuset.Set `json:"clientCPUs"`
	Neighbours  cpuset.Set `json:"neighbourCPUs"` // empty in quiet cells
	// Apart is where the application's CPUs are, seen from other ones of the client, as the kernel has it.
	Apart []string `json:"apart,omitempty"`
}

// Doubt is a sentence about what does not hold in the published figures of a source.
type Doubt struct {
	Source string `json:"source"` // "" in sessions that did not store it
	Text   string `json:"text"`
}

// UnmarshalJSON also accepts the sentence alone, as the first sessions have it.
func (d *Doubt) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, &d.Text) == nil {
		return nil
	}
	type plain Doubt
	return json.Unmarshal(data, (*plain)(d))
}

// Published is a published figure for the conditions of a cell.
type Published struct {
	Cell   string `json:"cell"`
	Metric string `json:"metric"` // its name
	// in percent of the baseline cell; 0: only an absolute figure was published
	Percent   float64 `json:"percent,omitempty"`
	Value     float64 `json:"value,omitempty"`     // in the metric's unit; 0: only a percentage was published
	Statistic string  `json:"statistic,omitempty"` // of the samples: min, mean, max, p99.9; "": that compared
	Qualifier string  `json:"qualifier,omitempty"`
	Source    string  `json:"source"`
}

// The words with which a Qualifier may begin. The rest is for readers.
const (
	About    = "about"    // read off a chart, or rounded
	Average  = "average"  // an average of a quantity for which we give a percentile
	Limit    = "limit"    // a limit of the equipment: the true figure may be beyond
	Censored = "censored" // the measurement ended there
)

// Qualified reports whether the qualifier begins with a word.
func (p Published) Qualified(word string) bool { return strings.HasPrefix(p.Qualifier, word) }

// IsStatistic reports whether a name is a statistic of samples: min, mean, max, a percentile, or "" for the
// one that is compared.
func IsStatistic(name string) bool {
	_, err := lane.Quantile(name)
	return err == nil || name == "" || name == "min" || name == "mean"
}

// Aims are the goals of one cell.
type Aims struct {
	Cell  string `json:"cell"`
	Goals []Goal `json:"goals"`
}

// Goal is a figure in percent of another cell's. It is a lower bound, or an upper bound if less is better.
type Goal struct {
	Against   string  `json:"against,omitempty"`   // the other cell; "": the baseline
	Metric    string  `json:"metric"`              // its name
	Statistic string  `json:"statistic,omitempty"` // p99 or p99.9, of all runs merged; "": by block
	Percent   float64 `json:"percent"`
}

// Run is one measurement of a cell, with fresh processes and sockets.
type Run struct {
	Block    int         `json:"block"` // 0 is the warm-up block, which is dropped
	Cell     string      `json:"cell"`
	Again    int         `json:"again,omitempty"` // how many void runs of the cell precede it in this block
	Boot     int         `json:"boot,omitempty"`  // index into the session's boots
	Started  time.Time   `json:"started"`
	Duration Nanoseconds `json:"durationNanoseconds"`
	// Changed has the settings that differed from the boot's environment when the run began; "": gone.
	Changed  map[string]string `json:"changedSettings,omitempty"`
	Dropped  string            `json:"dropped,omitempty"` // why this valid run is not used
	Void     []string          `json:"void,omitempty"`    // what contradicts the plan; a void run is not used
	Notes    []string          `json:"notes,omitempty"`
	Measured []Measurement     `json:"measurements"`
	Witness  Witness           `json:"witness"`
}

// Used reports whether the figures of the run count.
func (r Run) Used() bool { return r.Dropped == "" && len(r.Void) == 0 }

// Stolen reports whether a run is void for steal alone, which its cell does not cause.
func (r Run) Stolen() bool {
	return len(r.Void) > 0 && !slices.ContainsFunc(r.Void, func(why string) bool {
		return !strings.HasPrefix(why, Steal+" ")
	})
}

// Nanoseconds is a duration, or a moment within a run.
type Nanoseconds int64

// Measurement is what one probe found in one run.
type Measurement struct {
	Name   string      `json:"name"` // of the probe in the scenario
	Window Nanoseconds `json:"windowNanoseconds"`
	// Begin is the begin of the window on CLOCK_MONOTONIC, of the last one if there are several instances. 0:
	// unknown.
	Begin Nanoseconds `json:"beginNanoseconds,omitempty"`
	Void  []string    `json:"void,omitempty"` // why it is not used: the client could not keep up
	// Overloaded has those reasons in Void that are a finding: the application did not carry the requested load.
	Overloaded []string `json:"overloaded,omitempty"`
	// Late has those reasons in Void that say that an open-loop client was late, or at its limit.
	Late    []string           `json:"late,omitempty"`
	Values  map[string]float64 `json:"values,omitempty"`  // by metric
	Samples map[string]Samples `json:"samples,omitempty"` // by metric
	// what the program says about itself: congestionControl, reno
	Facts map[string]string `json:"facts,omitempty"`
	// Segments are TCP segments as both ends have counted them, in both directions; nil if that is impossible.
	Segments []Segments `json:"segments,omitempty"`
	// Conditions names those Facts that must be equal in runs that are compared: version.
	Conditions []string `json:"conditions,omitempty"`
	// the longest samples of the metric that has the probe's name, at most 64
	Worst []Sample `json:"worst,omitempty"`
	Tail  *Tail    `json:"tail,omitempty"` // what they met; nil if that was not recorded, or no CPU is known
	// CacheLine is of the measurement's time; nil if client and application have no CPU apart, or nothing says.
	CacheLine *CacheLine `json:"cacheLine,omitempty"`
}

// Has reports whether the measurement has a figure of a metric.
func (m Measurement) Has(metric string) bool {
	_, value := m.Values[metric]
	_, sampled := m.Samples[metric]
	return value || sampled
}

// Samples are the samples of one metric in one run. In an open loop they count from the intended time.
type Samples struct {
	// how many samples were due: messages sent, activations
	Wanted    uint64    `json:"wanted"`
	Lost      uint64    `json:"lost,omitempty"` // of these, those without an end
	Histogram Histogram `json:"histogram"`
	Lag       Histogram `json:"lag,omitempty"` // open loop: actual minus intended begin
}

// Sample has its begin (in an open loop, the intended one) and its end, on CLOCK_MONOTONIC.
type Sample struct {
	Begin Nanoseconds `json:"beginNanoseconds"`
	End   Nanoseconds `json:"endNanoseconds"`
	CPU   *int        `json:"cpu,omitempty"` // on which the application took the sample; absent: unknown
}

// Tail relates the longest samples of a measurement, by time, to what happened on the CPUs of the application
// and the client. Its times are parts of Excess, the time that the samples took beyond the run's median.
type Tail struct {
	// Quantile is where these samples begin. 0: they are the longest hundredth, because there are too few
	// samples for a quantile.
	Quantile    float64     `json:"quantile,omitempty"`
	Samples     int         `json:"samples"`
	Missing     int         `json:"missing,omitempty"` // as long, but not kept because there were too many
	Excess      Nanoseconds `json:"excessNanoseconds"`
	Met         []Met       `json:"met"` // the costliest first
	Unexplained Nanoseconds `json:"unexplainedNanoseconds"`
	// Lost counts intrusions that found no room. Their time is part of what is unexplained.
	Lost uint64 `json:"lostIntrusions,omitempty"`
}

// Met is how much of the excess a source covers. If sources interrupt each other, only the innermost counts.
type Met struct {
	// Kind is as in Source, or wake-up: the time from the waking of a thread until it runs, beyond the usual
	// time.
	Kind string      `json:"kind"`
	Name string      `json:"name"`           // of a wake-up: application or client
	Side string      `json:"side,omitempty"` // client: on the client's CPU; absent: on the application's CPU
	Took Nanoseconds `json:"tookNanoseconds"`
}

// Histogram is an HdrHistogram from 1 ns to 60 s with 3 digits, in the V2 compressed base64 form that other
// HdrHistogram tools read. "" is an empty histogram.
type Histogram string
