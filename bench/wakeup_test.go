package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/probe/cyclictest"
	"isolane.dev/isolane/probe/wakeup"
	"isolane.dev/isolane/results"
)

// manyPairs are short: a machine with other work drifts from second to second.
const manyPairs = 40

// wakeupConditions are those of both programs. cyclictest has no warm-up, and takes whole seconds.
func wakeupConditions() probe.Conditions {
	return probe.Conditions{Name: "w", Warmup: 100 * time.Millisecond, Window: time.Second}
}

// probeWakeup makes this binary the wake-up probe: the same code as `isolane probe wakeup`.
func probeWakeup() (bool, error) {
	settings := os.Getenv("ISOLANE_BENCH_WAKEUP")
	if settings == "" {
		return false, nil
	}
	p, err := wakeup.Driver{}.Read([]byte(settings))
	if err != nil {
		return true, err
	}
	m, err := p.(wakeup.Probe).Run(context.Background(), wakeupConditions())
	return true, errors.Join(err, json.NewEncoder(os.Stdout).Encode(m))
}

// BenchmarkWakeup measures wake-up latency with our own probe and with cyclictest, on one CPU, with the same interval,
// priority and idle states, in pairs of random order. It reports the medians, and those of the ratios within the pairs; in
// the log with the ranks 14 and 27 of 40, which hold the true median with a probability of 96% (binomial).
func BenchmarkWakeup(b *testing.B) {
	hosttest.Need(b, hosttest.Root, hosttest.Program("taskset"), hosttest.Program(cyclictest.Program))
	h, err := host.Read(host.Live())
	if err != nil {
		b.Fatal(err)
	}
	cpu := fmt.Sprint(h.Usable().First())
	for _, settings := range []string{"{interval: 1ms}", "{interval: 200us}", "{interval: 1ms, holdIdle: true}"} {
		b.Run(settings, func(b *testing.B) {
			ours, err := wakeup.Driver{}.Read([]byte(settings))
			if err != nil {
				b.Fatal(err)
			}
			theirs, err := cyclictest.Driver{}.Read([]byte(settings))
			if err != nil {
				b.Fatal(err)
			}
			run := func(p probe.Probe, argv ...string) map[string]float64 {
				cmd := exec.CommandContext(b.Context(), "taskset", append([]string{"-c", cpu}, argv...)...)
				cmd.Env = append(os.Environ(), "ISOLANE_BENCH_WAKEUP="+settings)
				return wakeupFigures(b, p, cmd)
			}
			for b.Loop() {
				comparePairs(b, [2]string{"wakeup", "cyclictest"}, func() map[string]float64 { return run(ours, os.Args[0]) },
					func() map[string]float64 { return run(theirs, theirs.Client("", wakeupConditions())...) })
			}
		})
	}
}

// comparePairs runs both in pairs and reports each figure of ours, of theirs, and the ratio.
func comparePairs(b *testing.B, names [2]string, ours, theirs func() map[string]float64) {
	b.Helper()
	all := map[string][]float64{}
	for range manyPairs {
		var o, t map[string]float64
		if rand.N(2) == 0 {
			o, t = ours(), theirs()
		} else {
			t, o = theirs(), ours()
		}
		b.Logf("%s %v  %s %v", names[0], o, names[1], t)
		for name := range o {
			all[name+"-"+names[0]] = append(all[name+"-"+names[0]], o[name])
			all[name+"-"+names[1]] = append(all[name+"-"+names[1]], t[name])
			if t[name] > 0 {
				all[name+"-ratio"] = append(all[name+"-ratio"], o[name]/t[name])
			}
		}
	}
	for name, values := range all {
		if len(values) < manyPairs {
			continue // of what was 0
		}
		slices.Sort(values)
		median := (values[(manyPairs-1)/2] + values[manyPairs/2]) / 2
		b.ReportMetric(math.Round(median*1000)/1000, name)
		b.Logf("%s: %.3f [%.3f, %.3f]", name, median, values[13], values[26])
	}
}

func wakeupFigures(b *testing.B, p probe.Probe, cmd *exec.Cmd) map[string]float64 {
	b.Helper()
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	var m results.Measurement
	if err == nil {
		m, err = p.Parse(out, wakeupConditions())
	}
	if err != nil || len(m.Void) > 0 {
		b.Fatalf("%s: void %q, %v", cmd, m.Void, err)
	}
	latency, err := m.Samples[m.Name].Histogram.Decode()
	if err != nil {
		b.Fatal(err)
	}
	figures := map[string]float64{"P50-ns": float64(latency.ValueAtQuantile(50)), "P99-ns": float64(latency.ValueAtQuantile(99)),
		"max-ns": float64(latency.Max())}
	for _, late := range m.Values { // missed, or skipped
		figures["late"] = late
	}
	return figures
}
