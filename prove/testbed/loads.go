package testbed

import (
	"slices"
	"time"

	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/results"
)

// Relative is a probe whose load may be a share of the application's capacity.
type Relative interface {
	Part() float64                         // the share, such as 0.5; 0: the load is a number
	At(capacity float64) probe.Probe       // with that share of a capacity per second
	Saturating() probe.Probe               // asks for as much as is carried
	Carried(m results.Measurement) float64 // per second, of a measurement of Saturating
}

// ProbesOf returns the probes of a run.
func (r *Bed) ProbesOf(c results.Cell, given factor.Conditions) ([]scenario.Probe, error) {
	if r.Only != nil {
		return []scenario.Probe{*r.Only}, nil
	}
	probes, err := r.Scenario.ProbesOf(given, r.Kinds.Probes)
	probes = r.NotLeftOut(c.Name, probes)
	for i := range probes {
		probes[i] = r.Loaded(probes[i])
	}
	return probes, err
}

// Loaded returns a probe with its share turned into a load.
func (r *Bed) Loaded(p scenario.Probe) scenario.Probe {
	if s, ok := p.Probe.(Relative); ok && s.Part() > 0 {
		p.Probe = s.At(r.Capacity[p.Name])
	}
	return p
}

// NotLeftOut returns the probes that are not left out of a cell.
func (r *Bed) NotLeftOut(cell string, probes []scenario.Probe) []scenario.Probe {
	return slices.DeleteFunc(slices.Clone(probes), func(p scenario.Probe) bool {
		return slices.ContainsFunc(r.LeftOut, func(out results.LeftOut) bool {
			return out.Probe == p.Name && slices.Contains(out.Cells, cell)
		})
	})
}

// Estimate returns how long one run takes at most.
func (r *Bed) Estimate() (most time.Duration) {
	for name := range r.Layouts {
		most = max(most, r.EstimateOf(r.NotLeftOut(name, r.Scenario.Spec.Probes)))
	}
	return most
}

// EstimateOf adds up the windows, and the usual time around them.
func (r *Bed) EstimateOf(probes []scenario.Probe) time.Duration {
	total := Around
	for i, p := range probes {
		c := r.Mode.Conditions(p)
		total += c.Warmup + c.Window
		if i > 0 {
			total += 100 * time.Millisecond
		}
	}
	return total
}

// Around is the time of a run with one probe, without its measurement.
const Around = settle + 800*time.Millisecond
