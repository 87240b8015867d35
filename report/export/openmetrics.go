package export

import (
	"fmt"
	"io"
	"strings"

	"isolane.dev/isolane/report"
	"isolane.dev/isolane/report/figures"
	"isolane.dev/isolane/report/metric"
	"isolane.dev/isolane/results"
)

// openmetrics writes OpenMetrics 1.0 text. A metric of the scenario is a label. There is one family per unit,
// in the base units seconds and bits per second if ours are ns and bit/s. There are no timestamps:
// results.json says when it was measured.
func openmetrics(w io.Writer, d report.Document) error {
	s := d.Summary()
	var o exposition
	for _, c := range s.Cells {
		runs := o.family("isolane_runs", "", "gauge", "Runs that count, and those that are void.")
		runs.sample("", float64(c.Used), labels(s, c, "", "state", "used"))
		runs.sample("", float64(c.Void), labels(s, c, "", "state", "void"))
	}
	for _, m := range s.Metrics {
		var base figures.Figure
		if b := s.Cell(s.Baseline); b != nil {
			base = b.Figure(m)
		}
		for _, c := range s.Cells {
			if len(c.Figure(m).Blocks) > 0 {
				o.add(m, c.Figure(m), base, func(of figures.Figure, more ...string) string {
					if side := of.Side(); side != "" {
						more = append([]string{"bound", side}, more...)
					}
					return labels(s, c, m.Name, more...)
				})
			}
		}
	}
	for _, f := range o.families {
		if _, err := io.WriteString(w, f.String()); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, "# EOF\n")
	return err
}

// exposition has the families in the order of their first lines. The lines of a family stay together.
type exposition struct{ families []*family }

type family struct {
	strings.Builder
	name string
}

func (o *exposition) family(name, unit, kind, help string) *family {
	for _, f := range o.families {
		if f.name == name {
			return f
		}
	}
	f := &family{name: name}
	fmt.Fprintf(f, "# TYPE %s %s\n", name, kind)
	if unit != "" {
		fmt.Fprintf(f, "# UNIT %s %s\n", name, unit)
	}
	fmt.Fprintf(f, "# HELP %s %s\n", name, escaped(help))
	o.families = append(o.families, f)
	return f
}

func (f *family) sample(suffix string, v float64, labels string) {
	fmt.Fprintf(f, "%s%s{%s} %s\n", f.name, suffix, labels, number(v))
}

// add adds what a cell has of a metric. labels returns the labels of a figure, including its bound.
func (o *exposition) add(m metric.Metric, f, base figures.Figure,
	labels func(of figures.Figure, more ...string) string) {
	unit, per := unitOf(m)
	own := labels(f)
	o.family("isolane_run_median_"+unit, unit, "gauge",
		"Median over the used runs of a run's value; of a distribution that is its P50.").
		sample("", f.Centre/per, own)
	if f.Merged != nil {
		o.family("isolane_merged_lost", "", "gauge", "Samples that were lost: longer than all others, and part of "+
			"the percentiles, but not of count, sum and max.").
			sample("", float64(f.Merged.Lost), labels(figures.Figure{}))
	}
	if d := f.Merged; d.N() > 0 {
		merged := o.family("isolane_merged_"+unit, unit, "summary",
			"Percentiles of all used runs merged, as far as the sample supports them.")
		for _, p := range quantiles(d) {
			merged.sample("", d.Quantile(p)/per, labels(f, "quantile", number(p)))
		}
		merged.sample("_count", float64(d.N()), own)
		merged.sample("_sum", d.Histogram.Mean()*float64(d.N())/per, own)
		o.family("isolane_merged_max_"+unit, unit, "gauge",
			"The longest of all used runs. It has no interval, and grows with the sample.").
			sample("", d.Max()/per, own)
	}
	if c := f.Ratio; c.Known() && m.IsFigure() {
		ratio := func(end string, v float64, help string) {
			o.family("isolane_to_baseline"+end+"_ratio", "ratio", "gauge", help).sample("", v, labels(f.Over(base)))
		}
		ratio("", c.Estimate, "Ratio to the baseline, block by block.")
		if c.Confidence > 0 {
			ratio("_low", c.Lo, "Lower end of its 95% interval.")
			ratio("_high", c.Hi, "Upper end of its 95% interval.")
		}
	}
}

// labels returns scenario, cell, its levels and the metric as labels, and further pairs.
func labels(s *figures.Summary, c figures.Cell, of string, more ...string) string {
	all := []string{"scenario", s.Session.Scenario.Name, "cell", c.Name}
	if of != "" {
		all = append(all, "metric", of)
	}
	taken := map[string]bool{}
	for _, f := range s.Session.Factors {
		name := "factor_" + identifier(f.Name)
		for taken[name] { // a-b and a b
			name += "_"
		}
		taken[name] = true
		if l := level(c, f.Name); l != "" {
			all = append(all, name, l)
		}
	}
	all = append(all, more...)
	var text []string
	for k := 0; k < len(all); k += 2 {
		text = append(text, fmt.Sprintf(`%s="%s"`, all[k], escaped(all[k+1])))
	}
	return strings.Join(text, ",")
}

func escaped(text string) string {
	return strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`).Replace(text)
}

// unitOf returns the OpenMetrics name of a metric's unit, and how many of ours make one.
func unitOf(m metric.Metric) (name string, per float64) {
	switch unit := m.Metric.Unit; unit {
	case results.TimeUnit:
		return "seconds", 1e9
	case results.RateUnit:
		return "bits_per_second", 1
	case "%":
		return "percent", 1
	case "":
		return "units", 1
	default:
		return identifier(strings.ReplaceAll(unit, "/", "_per_")), 1
	}
}

// identifier turns a name into letters allowed in a label: others become their code number, blanks and dashes
// _.
func identifier(name string) string {
	var b strings.Builder
	for _, r := range name {
		switch {
		case r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z':
			b.WriteRune(r)
		case r == ' ' || r == '-':
			b.WriteByte('_')
		default:
			fmt.Fprintf(&b, "u%04x", r)
		}
	}
	return b.String()
}
