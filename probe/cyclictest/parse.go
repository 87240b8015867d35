package cyclictest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/probe/timer"
	"isolane.dev/isolane/results"
)

// held is what cyclictest prints if it keeps CPUs out of idle states.
const held = "# /dev/cpu_dma_latency set to"

// A report with larger figures is rejected.
const (
	longest   = 24 * time.Hour
	maxCycles = uint64(longest / minInterval)
)

// report is what cyclictest writes with --json.
type report struct {
	FileVersion int               `json:"file_version"`
	Version     string            `json:"rt_test_version:"` // sic
	ReturnCode  int               `json:"return_code"`
	NumThreads  int               `json:"num_threads"`
	Resolution  int               `json:"resolution_in_ns"` // 1 with --nsecs, else 0
	Threads     map[string]thread `json:"thread"`
}

type thread struct {
	// by latency in µs, rounded down; samples beyond the end of the histogram are missing
	Histogram map[string]uint64 `json:"histogram"`
	Cycles    uint64            `json:"cycles"`
	Max       uint64            `json:"max"` // µs
}

// Parse reads the report. It rejects a histogram that lacks samples without saying that they lie beyond its
// end.
func (p Probe) Parse(output []byte, c probe.Conditions) (results.Measurement, error) {
	m := results.Measurement{Name: c.Name, Window: results.Nanoseconds(c.Window)}
	r, holds, err := read(output)
	if err == nil {
		err = r.validate(p.Threads)
	}
	if err != nil {
		return m, fmt.Errorf("%s report: %w", Program, err)
	}
	all, cycles := results.NewHistogram(), uint64(0)
	for id, t := range r.Threads {
		beyond, wrong := t.add(all)
		if wrong != nil {
			return m, fmt.Errorf("%s report: thread %s: %w", Program, id, wrong)
		}
		if beyond > 1 {
			m.Void = append(m.Void, fmt.Sprintf("thread %s: %d samples over %s: only the longest is known, %s", id,
				beyond, microseconds(histogramEnd), microseconds(t.Max)))
		}
		if t.Cycles == 0 {
			m.Void = append(m.Void, fmt.Sprintf("thread %s: no samples", id))
		}
		cycles += t.Cycles
	}
	if p.HoldIdle && !holds {
		m.Void = append(m.Void, "holdIdle: cyclictest could not open /dev/cpu_dma_latency")
	}
	due := max(cycles, uint64(len(r.Threads))*uint64(c.Window/p.Interval.Duration()))
	samples := results.Samples{Wanted: due, Lost: due - cycles}
	if samples.Histogram, err = results.Encode(all); err != nil {
		return m, err
	}
	m.Samples = map[string]results.Samples{c.Name: samples}
	m.Values = map[string]float64{timer.Skipped(c.Name, Program).Name: float64(samples.Lost)}
	m.Facts, m.Conditions = map[string]string{"version": r.Version}, []string{"version"}
	return m, nil
}

// read splits the output into the report and the lines about it, and reports whether idle states were held.
func read(output []byte) (r report, holds bool, err error) {
	var document []byte
	for line := range bytes.Lines(output) {
		if bytes.HasPrefix(line, []byte("#")) {
			holds = holds || bytes.HasPrefix(line, []byte(held))
			continue
		}
		document = append(document, line...)
	}
	if len(bytes.TrimSpace(document)) == 0 {
		return r, holds, errors.New("nothing was printed")
	}
	err = json.Unmarshal(document, &r)
	if odd, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		err = fmt.Errorf("%s: expected another value than %s", odd.Field, strings.TrimPrefix(odd.Value, "number "))
	}
	return r, holds, err
}

func (r report) validate(threads int) error {
	switch {
	case r.FileVersion != 1 || r.Resolution != 0:
		return fmt.Errorf("file_version %d, resolution_in_ns %d: expected 1 and 0, as of rt-tests 2", r.FileVersion,
			r.Resolution)
	case r.ReturnCode != 0:
		return fmt.Errorf("return_code: %d: expected 0", r.ReturnCode)
	case len(r.Threads) == 0 || len(r.Threads) != r.NumThreads || threads > 0 && len(r.Threads) != threads:
		return fmt.Errorf("thread: %d of num_threads %d: expected all, and as many as asked for", len(r.Threads),
			r.NumThreads)
	}
	return nil
}

// add counts the thread's samples, and returns how many lie beyond the end of its histogram. A single one is
// the thread's maximum. The others count as the middle of their bin: cyclictest rounds down to µs, so the
// lower edge would be 500 ns too low on average.
func (t thread) add(to *hdrhistogram.Histogram) (beyond uint64, err error) {
	if t.Cycles > maxCycles || t.Max > uint64(longest/time.Microsecond) {
		return 0, fmt.Errorf("cycles %d, max %d: expected at most %d, and %s", t.Cycles, t.Max, maxCycles, longest)
	}
	beyond = t.Cycles
	for bin, n := range t.Histogram {
		us, err := strconv.ParseUint(strings.TrimSpace(bin), 10, 64)
		if err != nil || us >= histogramEnd || us > t.Max {
			return 0, fmt.Errorf("histogram: bin %q: expected µs below %d and up to max, %d", bin,
				histogramEnd, t.Max)
		}
		if n > beyond {
			return 0, fmt.Errorf("histogram: more samples than cycles, %d", t.Cycles)
		}
		beyond -= n
		if err = to.RecordValues(int64(us)*1000+500, int64(n)); err != nil {
			return 0, fmt.Errorf("histogram: bin %q: %w", bin, err)
		}
	}
	if beyond > 0 && t.Max < histogramEnd {
		return 0, fmt.Errorf("histogram: %d of %d samples are missing, and none took over %s: it is cut off",
			beyond, t.Cycles, microseconds(histogramEnd))
	}
	if beyond == 1 {
		probe.Record(to, int64(microseconds(t.Max)))
	}
	return beyond, nil
}

func microseconds(n uint64) time.Duration { return time.Duration(n) * time.Microsecond }
