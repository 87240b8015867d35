// Package results is the results directory of a proof: its schema, its writer and its reader.
//
// `prove` writes it run by run; `report` and other tools read it. Probes and the witness return
// these types, so that what is measured is what is stored. Times are in nanoseconds, sizes in bytes
// and rates in bit/s, with the unit in the JSON key. What is not known is absent or null.
package results

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/lane"
)

// APIVersion and Kind head the document; Schema counts incompatible changes of it.
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
	Factors     []Factor    `json:"factors"` // what differs between the cells, in the order of their names
	Metrics     []Metric    `json:"metrics"` // what the runs measure, in the order in which they do
	Environment Environment `json:"environment"`
	// Boots are the environments of a session that went on after a reboot, one a boot; the first is Environment.
	Boots    []Environment `json:"boots,omitempty"`
	Started  time.Time     `json:"started"`
	Ended    time.Time     `json:"ended"` // of the last run stored
	Complete bool          `json:"complete"`
	// Stopped says what ended it before its last run. Nil of one that is complete, waits for a boot, runs still,
	// or ended without a word, as by SIGKILL.
	Stopped *Stop `json:"stopped,omitempty"`
	// Notes say what a reader of the figures must know: what this machine could not give,
	// what fell back to something else, what was never run on a real kernel.
	Notes []string `json:"notes"`
	// LeftOut are optional probes that could not run in some cells.
	LeftOut []LeftOut `json:"leftOut,omitempty"`
	// Capacities are what was measured first, where loads are shares of it.
	Capacities []Capacity `json:"capacities,omitempty"`
	Lane       *Lane      `json:"lane,omitempty"` // in force, beside which the session measured; else nil
	Pods       *Pods      `json:"pods,omitempty"` // nil: application and neighbours were processes
	Cells      []Cell     `json:"cells"`
	Runs       []Run      `json:"runs"` // in the order in which they were made
	// Searches are made after the runs, in the order in which they stand here.
	Searches []Search `json:"searches,omitempty"`
	// Awaits are cells that are measured in another boot, to which the session has not come.
	Awaits []Await `json:"awaits,omitempty"`
}

// Stop is what ended a session before its last run.
type Stop struct {
	Interrupted bool   `json:"interrupted"` // by a signal, such as that of Ctrl-C; else by an error
	Why         string `json:"why"`
}

// Lane is a lane in force that is proved.
type Lane struct {
	Name       string          `json:"name"`
	Bounds     []lane.Bound    `json:"bounds"` // of its objective
	Conditions lane.Conditions `json:"conditions"`
	// Drift is what was not as the lane wants it after the last run: the figures are not the lane's.
	Drift []string `json:"drift,omitempty"`
}

// Pods says whose pods the application and the neighbours were.
type Pods struct {
	Node    string `json:"node"`
	Kubelet string `json:"kubelet"`          // its version
	Image   string `json:"image"`            // below the host's programs, which the pods ran
	Static  string `json:"static,omitempty"` // the node where a kubelet gave the CPUs of a cell
}

// Scenario says what was asked.
type Scenario struct {
	Name   string `json:"name"`
	Title  string `json:"title"`
	Mode   string `json:"mode"`   // quick, standard or proof
	Blocks int    `json:"blocks"` // counted ones; one more is run first and dropped
	// Boots are how many boots of each level the blocks are spread over; 0 is one.
	Boots     int         `json:"boots,omitempty"`
	Seed      uint64      `json:"seed"`   // of the order of the cells, and of random arrivals
	Source    string      `json:"source"` // the scenario as YAML, with all defaults filled in
	Excluded  []Excluded  `json:"excluded,omitempty"`
	Aims      *Aims       `json:"aims,omitempty"`
	Published []Published `json:"published,omitempty"`
	Doubts    []Doubt     `json:"publishedDoubts,omitempty"` // what does not hold in the published figures
}

// Excluded is a combination of levels that is no cell.
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
	// Quiet is the level at which nothing disturbs the application, of a factor that is there to disturb it:
	// each disturbed cell is also compared with its own quiet one. "": it does not disturb.
	Quiet string `json:"quietLevel,omitempty"`
	// Outside says that it changes nothing of the application and its way: who disturbs it, or what is asked of
	// it.
	Outside bool `json:"outside,omitempty"`
	// PerBoot says that it cannot be changed while the machine runs: its levels are compared between boots.
	PerBoot bool `json:"perBoot,omitempty"`
}

// Level is one value of a factor.
type Level struct {
	Name  string `json:"name"`
	Words string `json:"words,omitempty"` // what it means
}

// Metric is a quantity that runs measure.
type Metric struct {
	// Name is that of its values: the probe's name in the scenario, with a word behind it where a probe has
	// several.
	Name     string    `json:"name"`
	Quantity string    `json:"quantity"` // what it is, the same for all probes of it: rtt, throughput
	Noun     string    `json:"noun"`     // in a sentence: RTT
	Title    string    `json:"title"`    // in a heading: Round trip
	About    string    `json:"about,omitempty"`
	Unit     string    `json:"unit"`   // ns, bit/s; others are printed as they stand
	Better   Direction `json:"better"` // higher or lower
	Margin   float64   `json:"margin"` // the smallest ratio beyond 1 that matters: 0.05 is 5%
	Role     Role      `json:"role,omitempty"`
	// Sampled metrics have a histogram a run, and their value is its median; the others have one value a run.
	Sampled bool     `json:"sampled,omitempty"`
	Loop    Loop     `json:"loop,omitempty"`
	MeanOf  []string `json:"meanOf,omitempty"` // metrics whose geometric mean it is
	// Guards names the metric that a check checks: where its median over the runs of a cell is beyond Limit, on
	// either side of 0, the verdict on that metric is lowered. A Limit of 0 is of what must not be at all: one
	// run is enough, and nothing was at its limit.
	Guards string  `json:"guards,omitempty"`
	Limit  float64 `json:"limit,omitempty"`
	// Trend is a check that holds the second half of the window against the first: beyond Limit the metric
	// changed while it was measured, and nothing was at its limit.
	Trend bool   `json:"trend,omitempty"`
	Short string `json:"short,omitempty"` // its name as a part of a mean: up
}

// Units that are printed and read with a prefix that fits.
const (
	TimeUnit = "ns"
	RateUnit = "bit/s"
)

// Direction says what is better.
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
	Primary Role = "primary" // comes first, and belongs to the one family of verdicts
	Cost    Role = "cost"    // what the figures were paid with
	Check   Role = "check"   // shows whether the measurement can be trusted
)

// Loop says what a sampling probe waits for.
type Loop string

// The loops.
const (
	Open   Loop = "open"   // a fixed rate, whatever the replies do; latencies count from the intended time
	Closed Loop = "closed" // the next sample begins after the last: service time, which misses stalls
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
	// Settings are of the host, as the session found them: by pattern of files, "/proc/sys/vm/swappiness". Those
	// of several files have a count before each of their values.
	Settings map[string]string `json:"settings,omitempty"`
}

// Cell is one combination of conditions.
type Cell struct {
	Name   string            `json:"name"`   // its levels, in the order of the factors: "noisy-lane-express"
	Levels map[string]string `json:"levels"` // by factor; one that does not matter in this cell has none
	// InForce are levels that this kernel cannot do, and what was in force in their place; a note says why.
	InForce  map[string]string `json:"inForce,omitempty"`
	Baseline bool              `json:"baseline"` // the cell to which the others are compared
	// Commands of the scenario run in it, and what they leave running.
	Commands bool `json:"commands,omitempty"`
	// The CPUs that the plan gives each part.
	Application cpuset.Set `json:"applicationCPUs"`
	Client      cpuset.Set `json:"clientCPUs"`
	Neighbours  cpuset.Set `json:"neighbourCPUs"` // empty in quiet cells
}

// Doubt is a sentence about the published figures of a source: what does not hold in them.
type Doubt struct {
	Source string `json:"source"` // "" in sessions that did not say
	Text   string `json:"text"`
}

// UnmarshalJSON also reads the sentence alone, as the first sessions have it.
func (d *Doubt) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, &d.Text) == nil {
		return nil
	}
	type plain Doubt
	return json.Unmarshal(data, (*plain)(d))
}

// Published is a figure of somebody else for the conditions of a cell.
type Published struct {
	Cell   string `json:"cell"`
	Metric string `json:"metric"` // its name
	// of the baseline cell; 0: only an absolute figure was published
	Percent   float64 `json:"percent,omitempty"`
	Value     float64 `json:"value,omitempty"`     // in the metric's unit; 0: only a percentage was published
	Statistic string  `json:"statistic,omitempty"` // min, mean, max, p99.9 of the samples; "": what is compared
	Qualifier string  `json:"qualifier,omitempty"`
	Source    string  `json:"source"`
}

// The words that a Qualifier may begin with. All else in it is for a reader.
const (
	About    = "about"    // read off a chart, or rounded
	Average  = "average"  // of a quantity that we give as a percentile
	Limit    = "limit"    // of the equipment: the true figure may be beyond
	Censored = "censored" // the measurement ended there
)

// Qualified says whether the qualifier begins with a word.
func (p Published) Qualified(word string) bool { return strings.HasPrefix(p.Qualifier, word) }

// IsStatistic says whether a name is one of the samples of a metric: min, mean, max, a percentile; "" is what
// is compared.
func IsStatistic(name string) bool {
	_, err := lane.Quantile(name)
	return err == nil || name == "" || name == "min" || name == "mean"
}

// Aims are what one cell is to reach.
type Aims struct {
	Cell  string `json:"cell"`
	Goals []Goal `json:"goals"`
}

// Goal is a figure in percent of another cell's: at least that, or at most where less is better.
type Goal struct {
	Against   string  `json:"against,omitempty"`   // the other cell; "": the baseline
	Metric    string  `json:"metric"`              // its name
	Statistic string  `json:"statistic,omitempty"` // p99 or p99.9, of all runs merged; "": by block
	Percent   float64 `json:"percent"`
}

// Run is one cell measured once, with fresh processes and sockets.
type Run struct {
	Block    int         `json:"block"` // 0 is the warm-up block, which is dropped
	Cell     string      `json:"cell"`
	Again    int         `json:"again,omitempty"` // void runs of the cell before it, in this block
	Boot     int         `json:"boot,omitempty"`  // its place in the session's boots
	Started  time.Time   `json:"started"`
	Duration Nanoseconds `json:"durationNanoseconds"`
	// Changed are the settings that were not as in its boot's environment when the run began; "" is gone.
	Changed  map[string]string `json:"changedSettings,omitempty"`
	Dropped  string            `json:"dropped,omitempty"` // why this run is not used although it is valid
	Void     []string          `json:"void,omitempty"`    // what contradicts the plan; a void run is not used
	Notes    []string          `json:"notes,omitempty"`
	Measured []Measurement     `json:"measurements"`
	Witness  Witness           `json:"witness"`
}

// Used says whether the figures of the run count.
func (r Run) Used() bool { return r.Dropped == "" && len(r.Void) == 0 }

// Stolen says whether a run is void for steal alone, which is no doing of its cell.
func (r Run) Stolen() bool {
	return len(r.Void) > 0 && !slices.ContainsFunc(r.Void, func(why string) bool {
		return !strings.HasPrefix(why, Steal+" ")
	})
}

// Nanoseconds is a duration or a moment within a run.
type Nanoseconds int64

// Measurement is what one probe found in one run.
type Measurement struct {
	Name   string      `json:"name"` // of the probe in the scenario
	Window Nanoseconds `json:"windowNanoseconds"`
	// Begin is that of the window, on CLOCK_MONOTONIC; of several instances the last one's. 0: nobody says.
	Begin Nanoseconds `json:"beginNanoseconds,omitempty"`
	Void  []string    `json:"void,omitempty"` // why this is not used: the client could not keep up
	// Overloaded are those of Void that are a finding: the application did not carry what it was asked to.
	Overloaded []string `json:"overloaded,omitempty"`
	// Late are those of Void that say that the client was late, or at its limit, in an open loop.
	Late    []string           `json:"late,omitempty"`
	Values  map[string]float64 `json:"values,omitempty"`  // by metric
	Samples map[string]Samples `json:"samples,omitempty"` // by metric
	// what the program says of itself: congestionControl, reno
	Facts map[string]string `json:"facts,omitempty"`
	// Segments are those of TCP that both ends counted, there and back; none where nobody can.
	Segments []Segments `json:"segments,omitempty"`
	// Conditions are those of Facts that must be the same in runs that are compared: version.
	Conditions []string `json:"conditions,omitempty"`
	// the longest of the metric named as the probe, at most 64
	Worst []Sample `json:"worst,omitempty"`
	Tail  *Tail    `json:"tail,omitempty"` // what they met; nil where nothing recorded it, or nobody knows where
}

// Samples are those of one metric in one run. In an open loop they count from the intended time.
type Samples struct {
	// how many were to be taken: messages sent, activations that were due
	Wanted    uint64    `json:"wanted"`
	Lost      uint64    `json:"lost,omitempty"` // of them, without an end
	Histogram Histogram `json:"histogram"`
	Lag       Histogram `json:"lag,omitempty"` // open loop: actual minus intended begin
}

// Sample is from its (in the open loop: intended) begin to its end, on CLOCK_MONOTONIC.
type Sample struct {
	Begin Nanoseconds `json:"beginNanoseconds"`
	End   Nanoseconds `json:"endNanoseconds"`
	CPU   *int        `json:"cpu,omitempty"` // that the application measured itself on; absent: not known
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

// Histogram is an HdrHistogram from 1 ns to 60 s with 3 digits, in the V2 compressed base64 form
// that other HdrHistogram tools read. The empty string is an empty histogram.
type Histogram string
