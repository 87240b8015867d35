package export

import (
	"cmp"
	"encoding/csv"
	"io"
	"strconv"

	"isolane.dev/isolane/report"
	"isolane.dev/isolane/report/figures"
	"isolane.dev/isolane/report/format"
	"isolane.dev/isolane/report/metric"
	"isolane.dev/isolane/results"
)

// table writes comma-separated values (RFC 4180, but lines end with LF). A row without a block is of all used
// runs merged; its number of samples excludes lost ones, which have a row of their own. The columns of the
// factors are named factor.NAME.
func table(w io.Writer, d report.Document) error {
	s := d.Summary()
	out := csv.NewWriter(w)
	head := []string{"cell"}
	for _, f := range s.Session.Factors {
		head = append(head, "factor."+f.Name)
	}
	head = append(head, "metric", "unit", "statistic", "block", "value", "samples", "bound")
	_ = out.Write(head) // see out.Error
	for _, c := range s.Cells {
		conditions := []string{c.Name}
		for _, f := range s.Session.Factors {
			conditions = append(conditions, level(c, f.Name))
		}
		for _, m := range s.Metrics {
			for _, row := range rows(m, c.Figure(m)) {
				_ = out.Write(append(conditions[:len(conditions):len(conditions)], row...))
			}
		}
	}
	for _, row := range searches(s) {
		_ = out.Write(row)
	}
	out.Flush()
	return out.Error()
}

// searches returns a row for each end of a bracket, with the search as metric and the goal as statistic. An
// unknown end has no row.
func searches(s *figures.Summary) (all [][]string) {
	for _, q := range s.Session.Searches {
		for _, d := range q.Cells {
			row := []string{d.Name}
			for _, f := range s.Session.Factors {
				level := d.Cells[0].Levels[f.Name]
				if q.Kind == results.Smallest && f.Name == q.Varied {
					level = ""
				}
				row = append(row, level)
			}
			add := func(goal, end string, v *float64) {
				if v != nil {
					all = append(all, append(row[:len(row):len(row)], q.Name, q.Unit, goal+" "+end,
						"", number(*v), strconv.Itoa(len(d.Trials)), ""))
				}
			}
			for i, b := range d.Brackets {
				add(q.Goals[i].Name, "holds", b.Holds)
				add(q.Goals[i].Name, "fails", b.Fails)
				add(q.Goals[i].Name, "throughput", b.Throughput)
			}
		}
	}
	return all
}

// rows returns the rows of a cell's figure, without its conditions.
func rows(m metric.Metric, f figures.Figure) [][]string {
	statistic := cmp.Or(m.Statistic, "value")
	var all [][]string
	for _, b := range f.Blocks {
		all = append(all, []string{m.Name, m.Metric.Unit, statistic, strconv.Itoa(b.Block), number(b.Value), "",
			f.Of(b).Side()})
	}
	d := f.Merged
	if d == nil {
		return all
	}
	if d.Lost > 0 {
		all = append(all, []string{m.Name, "samples", "lost", "", strconv.FormatUint(d.Lost, 10),
			strconv.FormatUint(d.N(), 10), ""})
	}
	if d.N() == 0 {
		return all
	}
	add := func(name string, v float64) {
		all = append(all, []string{m.Name, m.Metric.Unit, name, "", number(v), strconv.FormatUint(d.N(), 10),
			f.Side()})
	}
	for _, p := range quantiles(d) {
		add(format.Quantile(p), d.Quantile(p))
	}
	add("max", d.Max())
	return all
}
