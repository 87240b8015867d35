package main

import (
	"math"
	"path/filepath"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/report"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/stats"
)

func reportCommand() *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   "report DIR",
		Short: "Write the table and the page again from stored results",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := results.Read(args[0])
			if err != nil {
				return usage(err)
			}
			if out.json() {
				err = presentJSON(cmd, args[0], s)
			} else {
				_, err = present(cmd.OutOrStdout(), args[0], s)
			}
			if err != nil {
				return fail(err)
			}
			return nil
		},
	}
	out.flags(cmd, "text", "json")
	return cmd
}

// reportDocument is the JSON of isolane report: what the table says. The raw results are in results.json.
type reportDocument struct {
	head
	Page     string       `json:"page"` // the file that was written
	Scenario string       `json:"scenario"`
	Mode     string       `json:"mode"`
	Complete bool         `json:"complete"`
	Planned  int          `json:"plannedRuns"`
	Used     int          `json:"usedRuns"`
	Void     int          `json:"voidRuns"`
	Baseline string       `json:"baseline,omitempty"` // the cell that the others are compared with
	Cells    []reportCell `json:"cells"`
	Aims     []reportAim  `json:"aims"`
	// Objective is that of the lane that was proved, with the verdict on each of its bounds.
	Objective []lane.Judgement `json:"objective,omitempty"`
}

type reportCell struct {
	Name    string         `json:"name"`
	Used    int            `json:"usedRuns"`
	Void    int            `json:"voidRuns"`
	Figures []reportFigure `json:"figures"`
}

// reportFigure is one quantity of a cell. What its sample does not support is null.
type reportFigure struct {
	Name          string        `json:"name"`
	Metric        string        `json:"metric"`
	BitsPerSecond *float64      `json:"bitsPerSecond,omitempty"` // the median of the blocks
	P50           *float64      `json:"p50Nanoseconds,omitempty"`
	P99           *float64      `json:"p99Nanoseconds,omitempty"`
	P999          *float64      `json:"p999Nanoseconds,omitempty"`
	Max           *float64      `json:"maxNanoseconds,omitempty"`
	Samples       uint64        `json:"samples,omitempty"` // round trips
	Ratio         *reportRatio  `json:"ratio,omitempty"`   // to the baseline
	Verdict       stats.Verdict `json:"verdict,omitempty"`
}

// reportRatio is an estimate, with its interval of confidence; where the blocks are too few for one,
// low and high are the least and the greatest ratio of a block.
type reportRatio struct {
	Estimate   float64  `json:"estimate"`
	Low        *float64 `json:"low"`
	High       *float64 `json:"high"`
	Confidence float64  `json:"confidence"` // 0: no interval
	Blocks     int      `json:"blocks"`
}

type reportAim struct {
	Text  string       `json:"text"`
	Goal  string       `json:"goal"`
	Found string       `json:"found"`
	State report.State `json:"state"`
}

func presentJSON(cmd *cobra.Command, dir string, s results.Session) error {
	sum, err := report.Summarize(s)
	if err != nil {
		return err
	}
	if err = report.Write(dir, sum); err != nil {
		return err
	}
	d := reportDocument{head: document("Report"), Page: filepath.Join(dir, "report.html"),
		Scenario: s.Scenario.Name, Mode: s.Scenario.Mode, Complete: s.Complete,
		Planned: sum.Planned, Used: sum.Used, Void: sum.Void, Baseline: sum.Baseline,
		Cells: []reportCell{}, Aims: []reportAim{}, Objective: sum.Objective}
	for _, c := range sum.Cells {
		cell := reportCell{Name: c.Name, Used: c.Used, Void: c.Void, Figures: []reportFigure{}}
		for _, m := range sum.Metrics {
			if f := c.Figures[m.Name]; f != nil {
				cell.Figures = append(cell.Figures, newReportFigure(m, *f, c.Baseline))
			}
		}
		d.Cells = append(d.Cells, cell)
	}
	for _, a := range sum.Aims {
		d.Aims = append(d.Aims, reportAim{Text: a.Text, Goal: a.Goal, Found: a.Found, State: a.State})
	}
	return printJSON(cmd.OutOrStdout(), d)
}

func newReportFigure(m report.Metric, f report.Figure, baseline bool) reportFigure {
	r := reportFigure{Name: m.Name, Metric: m.Kind, Verdict: f.Verdict}
	if d := f.Merged; d != nil {
		r.P50, r.P99 = known(d.Quantile(0.5)), known(d.Quantile(0.99))
		r.P999, r.Max, r.Samples = known(d.Quantile(0.999)), known(d.Max()), d.N()
	} else {
		r.BitsPerSecond = known(f.Centre)
	}
	if f.Ratio.Known() && !baseline {
		low, high, interval := f.Ratio.Spread()
		r.Ratio = &reportRatio{Estimate: f.Ratio.Estimate, Low: known(low), High: known(high), Blocks: f.Ratio.N}
		if interval {
			r.Ratio.Confidence = f.Ratio.Confidence
		}
	}
	return r
}

// known is nil for what is no number.
func known(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}
