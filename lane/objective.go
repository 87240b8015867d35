package lane

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"isolane.dev/isolane/quantity"
)

// Objective is what the lane must achieve.
type Objective struct {
	RTT        map[string]quantity.Duration `json:"rtt,omitempty"` // by percentile: p50, p99, p99.9, max
	Throughput Throughput                   `json:"throughput,omitzero"`
}

// Throughput bounds a rate.
type Throughput struct {
	Min quantity.BitRate `json:"min,omitempty"`
}

// Bound is one limit of an objective: on a percentile of round trips, or on the throughput.
type Bound struct {
	Metric           string `json:"metric"` // rtt or throughput
	Percentile       string `json:"percentile,omitempty"`
	MaxNanoseconds   int64  `json:"maxNanoseconds,omitempty"`
	MinBitsPerSecond uint64 `json:"minBitsPerSecond,omitempty"`
}

// Bounds returns the limits of an objective, round trips first.
func (o Objective) Bounds() []Bound {
	var all []Bound
	for _, p := range slices.Sorted(maps.Keys(o.RTT)) {
		all = append(all, Bound{Metric: "rtt", Percentile: p, MaxNanoseconds: int64(o.RTT[p])})
	}
	if o.Throughput.Min > 0 {
		all = append(all, Bound{Metric: "throughput", MinBitsPerSecond: uint64(o.Throughput.Min)})
	}
	return all
}

// Quantile returns the fraction of a percentile by its name: 0.999 for p99.9, 1 for max.
func Quantile(percentile string) (float64, error) {
	if percentile == "max" {
		return 1, nil
	}
	text, ok := strings.CutPrefix(percentile, "p")
	p, err := strconv.ParseFloat(text+"e-2", 64) // 99.9 divided by 100 would not be exactly 0.999
	if !ok || err != nil || !(p > 0 && p < 1) {
		return 0, fmt.Errorf("percentile %q: expected p99.9 or max", percentile)
	}
	return p, nil
}

// String returns the bound as a lane file writes it.
func (b Bound) String() string {
	if b.Metric == "rtt" {
		return fmt.Sprintf("rtt %s at most %s", b.Percentile, quantity.Duration(b.MaxNanoseconds))
	}
	return fmt.Sprintf("%s at least %s", b.Metric, quantity.BitRate(b.MinBitsPerSecond))
}

// Verdict says whether a lane keeps a bound.
type Verdict string

// The verdicts on a bound.
const (
	Held     Verdict = "held"     // even the unfavourable end of the interval keeps the bound
	Missed   Verdict = "missed"   // not even the favourable end keeps it
	Unproven Verdict = "unproven" // nothing was measured under the present conditions, or not enough
	Void     Verdict = "void"     // the measurement contradicts the plan
)

// Judgement is a bound with what measurements beside the lane say about it.
type Judgement struct {
	Bound
	Verdict  Verdict   `json:"verdict"`
	Reason   string    `json:"reason,omitempty"` // for every verdict other than held
	Evidence *Evidence `json:"evidence,omitempty"`
}

// Proof is what measurements beside a lane in force have found.
type Proof struct {
	At         time.Time   `json:"at"`
	Scenario   string      `json:"scenario"`
	Mode       string      `json:"mode"`
	Results    string      `json:"results"` // directory
	Conditions Conditions  `json:"conditions"`
	Judgements []Judgement `json:"judgements"`
}

// Conditions are those under which a proof is valid. Lane and Outside are digests: they show that something
// has changed, not what.
type Conditions struct {
	Kernel  string `json:"kernel"`  // release, version and command line
	Lane    string `json:"lane"`    // its placement and its declaration
	Outside string `json:"outside"` // the other lanes, and the CPUs of all else
}

// Changed says in words what differs from a proof's conditions; "" if nothing does.
func (c Conditions) Changed(now Conditions) string {
	switch {
	case c.Kernel != now.Kernel:
		return "the kernel or its command line is another"
	case c.Lane != now.Lane:
		return "the lane was moved or declared anew"
	case c.Outside != now.Outside:
		return "other lanes came, went or moved"
	}
	return ""
}

// Evidence is the measurement that came closest to the bound, or broke it.
type Evidence struct {
	Probe   string `json:"probe"`
	Cell    string `json:"cell"`
	Samples uint64 `json:"samples"` // round trips, or runs for a throughput
	// Low and High are the 95% confidence interval of the percentile in nanoseconds, or of the rate in bit/s. An
	// end that the sample does not bound is 0.
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// end prints one end of the interval with at least three digits; an unknown end is open.
func (e Evidence) end(metric string, v float64) string {
	switch {
	case v == 0:
		return "…"
	case metric == "rtt":
		return quantity.Duration(v).String()
	}
	return quantity.BitRate(math.Round(v/1e6) * 1e6).String()
}

// String returns in one line all that is known about a bound.
func (j Judgement) String() string {
	text := fmt.Sprintf("%s: %s", j.Bound, j.Verdict)
	if j.Reason != "" {
		text += ": " + j.Reason
	}
	if e := j.Evidence; e != nil {
		text += fmt.Sprintf(" (%s to %s, %s of %s in %s)", e.end(j.Metric, e.Low), e.end(j.Metric, e.High),
			quantity.Count(int(e.Samples), "sample"), e.Probe, e.Cell)
	}
	return text
}
