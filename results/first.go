package results

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

// Sessions of schema 1 had three factors and two metrics, which readers had to know by name. This file has
// what they were.

type (
	firstSession struct {
		Session
		Cells []firstCell `json:"cells"`
		Runs  []firstRun  `json:"runs"`
	}
	firstCell struct {
		Cell
		Placement, Noise, Path, PathInForce string
		Published                           []Published
	}
	firstRun struct {
		Run
		Measured []firstMeasurement `json:"measurements"`
		Witness  struct {
			Witness
			Intruders []intruder
		} `json:"witness"`
	}
	firstMeasurement struct {
		Measurement
		RTT *struct {
			Protocol, Mode   string
			PayloadBytes     int
			Sent, Lost       uint64
			Latency, SendLag Histogram
		}
		Throughput *struct {
			Direction, CongestionControl    string
			BitsPerSecond, ClientCPUPercent float64
		}
	}
	// intruder is a task on a lane's CPUs. Sessions before 2026-11-22 store these apart from the sources.
	intruder struct {
		CPU, TID     int
		Comm, Remedy string
		Kernel       bool
		Runs         uint64
		Ran          Nanoseconds `json:"ranNanoseconds"`
		Worst        Nanoseconds `json:"worstNanoseconds"`
	}
)

// readFirst reads a session of schema 1.
func readFirst(data []byte) (Session, error) {
	var first firstSession
	if err := json.Unmarshal(data, &first); err != nil {
		return Session{}, err
	}
	s := first.Session
	s.Schema = Schema
	s.Factors, s.Metrics = firstFactors(first.Cells), firstMetrics(first.Runs)
	for _, c := range first.Cells {
		cell := c.Cell
		cell.Levels = map[string]string{"noise": c.Noise, "placement": c.Placement, "path": c.Path}
		if c.PathInForce != c.Path && c.PathInForce != "" {
			cell.InForce = map[string]string{"path": c.PathInForce}
		}
		s.Cells = append(s.Cells, cell)
		for _, p := range c.Published {
			p.Cell, p.Qualifier = c.Name, strings.TrimPrefix(p.Qualifier, "at the ") // limit
			s.Scenario.Published = append(s.Scenario.Published, p)
		}
	}
	for _, r := range first.Runs {
		s.Runs = append(s.Runs, r.second())
	}
	if s.Scenario.Aims == nil && s.Scenario.Name == "edge" && s.Lane == nil {
		s.Scenario.Aims = &Aims{"noisy-lane-express", []Goal{{Metric: "throughput", Percent: 150},
			{Metric: "rtt", Percent: 50}, {Metric: "rtt", Statistic: "p99.9", Percent: 100}}}
	}
	for i, p := range s.Scenario.Published {
		s.Scenario.Published[i].Metric = s.primaryOf(p.Metric)
	}
	if aims := s.Scenario.Aims; aims != nil {
		for i, g := range aims.Goals {
			aims.Goals[i].Metric = s.primaryOf(g.Metric)
		}
	}
	return s, nil
}

// primaryOf names the primary metric of a quantity.
func (s Session) primaryOf(quantity string) string {
	for _, m := range s.Metrics {
		if m.Quantity == quantity && m.Role == Primary {
			return m.Name
		}
	}
	return quantity
}

// firstFactors returns the factors of the cells, with their levels in the order of their appearance.
func firstFactors(cells []firstCell) []Factor {
	factors := []Factor{{Name: "noise", Quiet: "quiet"}, {Name: "placement"}, {Name: "path"}}
	for _, c := range cells {
		for i, level := range []string{c.Noise, c.Placement, c.Path} {
			if !slices.Contains(factors[i].Levels, Level{Name: level}) {
				factors[i].Levels = append(factors[i].Levels, Level{Name: level})
			}
		}
	}
	return factors
}

// firstMetrics returns the metrics: the mean of the rates, the rates, then the round trips.
func firstMetrics(runs []firstRun) []Metric {
	var rates, trips []Metric
	seen, represented := map[string]bool{}, false
	for _, r := range runs {
		for _, m := range r.Measured {
			switch {
			case seen[m.Name]:
			case m.Throughput != nil:
				rates = append(rates, Metric{Name: m.Name, Quantity: "throughput", Noun: "throughput",
					Title: "Throughput",
					About: "TCP, " + m.Name, Unit: RateUnit, Better: Higher, Margin: 0.05,
					Short: cmp.Or(m.Throughput.Direction, m.Name)})
			case m.RTT != nil:
				trip := Metric{Name: m.Name, Quantity: "rtt", Noun: "RTT", Title: "Round trip", Unit: TimeUnit,
					Better: Lower,
					Margin: 0.10, Sampled: true, Loop: Open, About: "Median round trip (P50)"}
				if m.RTT.Mode == "pingpong" {
					trip.Loop = Closed
				}
				// The closed loop of small datagrams stands for the others.
				if trip.Loop == Closed && m.RTT.Protocol == "udp" && m.RTT.PayloadBytes <= 64 && !represented {
					trip.Role, represented = Primary, true
				}
				trips = append(trips, trip)
			}
			seen[m.Name] = true
		}
	}
	if len(trips) > 0 && !represented {
		trips[0].Role = Primary
	}
	if len(rates) > 0 {
		mean := rates[0]
		mean.Name, mean.Role, mean.Short = "throughput", Primary, ""
		var parts []string
		for _, r := range rates {
			mean.MeanOf, parts = append(mean.MeanOf, r.Name), append(parts, r.Short)
			if r.Name == mean.Name {
				mean.Name += " (mean)"
			}
		}
		if len(rates) > 1 {
			mean.About = "TCP, geometric mean of " + strings.Join(parts, " and ")
		}
		for _, name := range mean.MeanOf {
			rates = append(rates, Metric{Name: name + clientCPU, Quantity: "client-cpu", Noun: "client's CPU",
				Title: "client's CPU", Unit: "%", Better: Lower, Margin: 0.10, Role: Check, Guards: name, Limit: 90})
		}
		rates = slices.Insert(rates, 0, mean)
	}
	return append(rates, trips...)
}

// clientCPU ends the name of the metric that checks whether the client limits a rate.
const clientCPU = "-client-cpu"

// second converts the run to schema 2.
func (r firstRun) second() Run {
	run := r.Run
	run.Witness = r.Witness.Witness
	for _, m := range r.Measured {
		one := m.Measurement
		switch {
		case m.Throughput != nil:
			one.Values = map[string]float64{m.Name: m.Throughput.BitsPerSecond,
				m.Name + clientCPU: m.Throughput.ClientCPUPercent}
			if cc := m.Throughput.CongestionControl; cc != "" {
				one.Facts = map[string]string{"congestionControl": cc}
			}
		case m.RTT != nil:
			one.Samples = map[string]Samples{m.Name: {Wanted: m.RTT.Sent, Lost: m.RTT.Lost, Histogram: m.RTT.Latency,
				Lag: m.RTT.SendLag}}
		}
		run.Measured = append(run.Measured, one)
	}
	w := &run.Witness
	for _, o := range r.Witness.Intruders {
		kind := map[bool]string{false: Task, true: KernelThread}[o.Kernel]
		same := func(k Source) bool { return k.CPU == o.CPU && k.TID == o.TID && k.Kind == kind }
		if !slices.ContainsFunc(w.Sources, same) {
			w.Sources = append(w.Sources, Source{CPU: o.CPU, TID: o.TID, Kind: kind, Name: o.Comm,
				Count: &o.Runs, Total: &o.Ran, Longest: &o.Worst, Remedy: o.Remedy})
		}
	}
	return run
}
