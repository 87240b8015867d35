// Package rules does the arithmetic over published tables: units, sums, ratios, rates, durations, statistics
// and the limits of a link. It believes no row more than another, knows nothing that the table does not say,
// and finds nothing where the figures agree within the digits that are printed.
//
//	r, err := rules.Audit(ctx, file)
//	if err == nil && r.Worst() == claims.Contradiction { … }
package rules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"isolane.dev/isolane/claims"
	"isolane.dev/isolane/claims/cells"
	"isolane.dev/isolane/claims/row"
)

// rule is one kind of finding. Beside its check it may have laws in laws(), or needs of figures in lacks().
type rule struct {
	id, title string
	severity  claims.Severity
	check     func(t *table) []hit
}

// hit is what a rule finds.
type hit struct {
	rows     []*row.Row
	sum      []string
	so       string
	severity claims.Severity // overrides that of the rule
}

// rules returns all rules. The first finds binary prefixes, for the rules after it.
func rules() []rule {
	return []rule{
		{"binary-units", "a unit is printed as decimal and counted as binary", claims.Contradiction,
			(*table).binaryUnits},
		{"product", "two figures multiplied do not give the third", claims.Contradiction, nil},
		{"balance", "what was sent is not what was received and lost", claims.Contradiction, nil},
		{"total", "the parts do not add up to the total", claims.Contradiction, (*table).totals},
		{"summary", "the mean, median or extreme of rows is not theirs", claims.Contradiction, (*table).summaries},
		{"derived", "a figure per CPU, or relative to another one, is not what the two give", claims.Contradiction,
			(*table).derived},
		{"comparison", "a comparison is not that of the figures it compares", claims.Contradiction,
			(*table).compared},
		{"whole", "a part, or parts together, are more than the whole", claims.Impossible,
			(*table).breakdowns},
		{"order", "a lower statistic, or end of a range, is above a higher one", claims.Impossible, (*table).order},
		{"deviation", "the deviation is larger than the range allows", claims.Impossible, nil},
		{"too-long", "nobody has measured for so long", claims.Impossible, nil},
		{"too-fast", "faster than light, or than the link", claims.Impossible, nil},
		{"mean", "the mean cannot be that of these statistics", claims.Suspicious, nil},
		{"repeat", "one figure has several values", claims.Suspicious, (*table).repeats},
		{"same-quantity", "two figures for one quantity differ", claims.Suspicious, nil},
		{"odd-unit", "one figure is in bytes, the others in bits", claims.Suspicious, (*table).oddUnit},
		{"same-goal", "numbers that are not enough for the same goal", claims.Suspicious, (*table).sameGoal},
		{"in-flight", "more requests are in flight than there are connections", claims.Suspicious, nil},
		{"too-few-samples", "a percentile of too few samples", claims.Suspicious, nil},
		{"averaged", "a mean of percentiles", claims.Suspicious, (*table).averaged},
		{"longer-than-run", "a latency is longer than the run", claims.Suspicious, nil},
		{"over-line", "more than the link carries", claims.Suspicious, nil},
		{"over-window", "more than a window each round trip", claims.Suspicious, nil},
		{"at-limit", "a value at the limit of the link: it is at least this", claims.Suspicious, (*table).atLimit},
		{"threads", "the threads are no multiple of the cores", claims.Suspicious, nil},
		{"wall-clock", "latency was measured with the wall clock", claims.Suspicious, nil},
		{"not-isolated", "the measuring thread is on a CPU that is not isolated", claims.Suspicious,
			(*table).notIsolated},
		{"noise-rate", "the noise is not the same all the time", claims.Unsaid, nil},
		{"changes-together", "two conditions change together", claims.Unsaid, (*table).changesTogether},
		{"confounded", "a comparison changes more than it names", claims.Unsaid, (*table).confounded},
		{"no-quiet", "noise without the quiet run of the same configuration", claims.Unsaid, (*table).noQuiet},
		{"no-absolute", "only percentages of a baseline that has no figure", claims.Unsaid, nil},
		{"mean-only", "a latency has a mean only", claims.Unsaid, nil},
		{"bare-maximum", "a maximum without the number of samples or the duration", claims.Unsaid, nil},
		{"only-range", "a result is a range only", claims.Unsaid, nil},
		{"no-result", "a configuration is named and has no result", claims.Unsaid, nil},
		{"no-variant", "a variant is listed, and no result names it", claims.Unsaid, nil},
		{"ambiguous-unit", "a size in bits or bytes: the unit does not say", claims.Unsaid, nil},
	}
}

// hits returns what a rule finds in a table.
func (r rule) hits(t *table) []hit {
	var hits []hit
	if r.check != nil {
		hits = r.check(t)
	}
	return append(append(hits, t.broken(r.id)...), t.lacking(r.id)...)
}

// Audit reads and checks a table as described in docs/claims.md. An error names the line.
func Audit(ctx context.Context, from io.Reader) (claims.Report, error) {
	rows, err := row.Read(from)
	if err != nil {
		return claims.Report{}, err
	}
	r := claims.Report{APIVersion: "isolane.dev/v1alpha2", Kind: "Claims", Rows: len(rows),
		Findings: []claims.Finding{}, Sources: len(row.Grouped[cells.Cell](rows, bySource))}
	for _, w := range rows {
		r.Table = append(r.Table, w.AsFigure())
	}
	t := tableOf(rows)
	for _, rule := range rules() {
		if err = ctx.Err(); err != nil {
			return claims.Report{}, err
		}
		for _, h := range rule.hits(t) {
			f := claims.Finding{Rule: rule.id, Title: rule.title, Severity: cmp.Or(h.severity, rule.severity),
				Sum: h.sum, Conclusion: h.so}
			for k, w := range h.rows {
				if !slices.Contains(h.rows[:k], w) {
					f.Figures = append(f.Figures, w.AsFigure())
				}
			}
			r.Findings = append(r.Findings, f)
		}
	}
	r.Compared = len(row.Keep(rows, func(w *row.Row) bool { return t.Used[w] }))
	slices.SortStableFunc(r.Findings, func(a, b claims.Finding) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), cmp.Compare(a.Figures[0].Line, b.Figures[0].Line))
	})
	return r, nil
}

// AuditFile audits the table in a file, and puts the file's name into the report.
func AuditFile(ctx context.Context, name string) (claims.Report, error) {
	file, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe must not block for ever
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		err = path.Err
	}
	var r claims.Report
	if err == nil {
		defer context.AfterFunc(ctx, func() { file.Close() })() // ends the read of a pipe
		defer file.Close()
		r, err = Audit(ctx, file)
	}
	if err = cmp.Or(ctx.Err(), err); err != nil {
		return r, fmt.Errorf("%s: %w", name, err)
	}
	r.File = name
	return r, nil
}
