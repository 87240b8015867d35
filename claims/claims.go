// Package claims does the arithmetic over published tables: units, sums, ratios, rates, durations, statistics
// and the limits of a link. It believes no row more than another, knows nothing that the table does not say,
// and finds nothing where the figures agree within the digits that are printed.
//
//	r, err := claims.Audit(ctx, file)
//	if err == nil && r.Worst() == claims.Contradiction { … }
package claims

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

	"isolane.dev/isolane/quantity"
)

// Severity says what is wrong with some figures.
type Severity int

// The severities.
const (
	None          Severity = iota
	Unsaid                 // the figures may be right, but the table lacks what they would need
	Suspicious             // the figures may be right, but not as a reader would take them
	Impossible             // no measurement can have given this
	Contradiction          // two figures of the table cannot both be right
)

func (s Severity) String() string {
	return [...]string{"none", "unsaid", "suspicious", "impossible", "contradiction"}[s]
}

// MarshalText makes a severity its name in JSON.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the name of a severity.
func (s *Severity) UnmarshalText(text []byte) error {
	for *s = Unsaid; *s <= Contradiction; *s++ {
		if s.String() == string(text) {
			return nil
		}
	}
	return errors.New("expected unsaid, suspicious, impossible or contradiction")
}

// Figure is one row of the table.
type Figure struct {
	Line      int    `json:"line"`         // in the CSV file
	At        string `json:"at,omitempty"` // the line in its source, as the table says it
	Source    string `json:"source,omitempty"`
	Scenario  string `json:"scenario"`
	Config    string `json:"config"`
	Metric    string `json:"metric"`
	Value     string `json:"value"` // as printed
	Unit      string `json:"unit"`  // as printed
	Qualifier string `json:"qualifier,omitempty"`
	Setup     bool   `json:"-"` // it describes the conditions of all measurements of its source
}

// Finding is something that the arithmetic shows.
type Finding struct {
	Rule       string   `json:"rule"`
	Title      string   `json:"title"`
	Severity   Severity `json:"severity"`
	Figures    []Figure `json:"figures"`    // that it is about
	Sum        []string `json:"sum"`        // written out, with units
	Conclusion string   `json:"conclusion"` // what a reader should make of it
}

// Report is what an audit of a table finds.
type Report struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	File       string    `json:"file,omitempty"` // as the caller names it
	Rows       int       `json:"rows"`
	Sources    int       `json:"sources"`
	Findings   []Finding `json:"findings"` // the worst first, else in the order of the table
	Table      []Figure  `json:"-"`        // all rows
}

// Worst is the severity of the worst finding, which is the first.
func (r Report) Worst() Severity {
	if len(r.Findings) == 0 {
		return None
	}
	return r.Findings[0].Severity
}

// rule is one kind of finding. One without check has its laws in laws(), or what figures need in lacks().
type rule struct {
	id, title string
	severity  Severity
	check     func(t *table) []hit
}

// hit is what a rule finds.
type hit struct {
	rows     []*row
	sum      []string
	so       string
	severity Severity // in place of the rule's
}

// rules begin with the one that says which prefixes are binary, for the others.
func rules() []rule {
	return []rule{
		{"binary-units", "a unit is printed as decimal and counted as binary", Contradiction, (*table).binaryUnits},
		{"product", "two figures multiplied do not give the third", Contradiction, nil},
		{"balance", "what was sent is not what was received and lost", Contradiction, nil},
		{"derived", "a figure per CPU, or relative to another one, is not what the two give", Contradiction,
			(*table).derived},
		{"comparison", "a comparison is not that of the figures it compares", Contradiction, (*table).compared},
		{"whole", "a share is more than the whole, or two parts together are", Impossible, nil},
		{"order", "a lower statistic, or end of a range, is above a higher one", Impossible, (*table).order},
		{"deviation", "the deviation is larger than the range allows", Impossible, nil},
		{"too-long", "nobody has measured for so long", Impossible, nil},
		{"mean", "the mean cannot be that of these statistics", Suspicious, nil},
		{"repeat", "one figure has several values", Suspicious, (*table).repeats},
		{"same-quantity", "two figures for one quantity differ", Suspicious, nil},
		{"same-goal", "numbers that are not enough for the same goal", Suspicious, (*table).sameGoal},
		{"in-flight", "more requests are in flight than there are connections", Suspicious, nil},
		{"too-few-samples", "a percentile of too few samples", Suspicious, nil},
		{"longer-than-run", "a latency is longer than the run", Suspicious, nil},
		{"over-line", "more than the link carries", Suspicious, nil},
		{"at-limit", "a value at the limit of the link: it is at least this", Suspicious, (*table).atLimit},
		{"threads", "the threads are no multiple of the cores", Suspicious, nil},
		{"wall-clock", "latency was measured with the wall clock", Suspicious, nil},
		{"not-isolated", "the measuring thread is on a CPU that is not isolated", Suspicious, (*table).notIsolated},
		{"noise-rate", "the noise is not the same all the time", Unsaid, nil},
		{"changes-together", "two conditions change together", Unsaid, (*table).changesTogether},
		{"confounded", "a comparison changes more than it names", Unsaid, (*table).confounded},
		{"no-quiet", "noise without the quiet run of the same configuration", Unsaid, (*table).noQuiet},
		{"no-absolute", "only percentages of a baseline that has no figure", Unsaid, nil},
		{"mean-only", "a latency has a mean only", Unsaid, nil},
		{"bare-maximum", "a maximum without the number of samples or the duration", Unsaid, nil},
		{"only-range", "a result is a range only", Unsaid, nil},
		{"no-result", "a configuration is named and has no result", Unsaid, nil},
		{"no-variant", "a variant is listed, and no result names it", Unsaid, nil},
		{"ambiguous-unit", "a size in bits or bytes: the unit does not say", Unsaid, nil},
	}
}

// hits are what a rule finds in a table.
func (r rule) hits(t *table) []hit {
	if r.check != nil {
		return r.check(t)
	}
	return append(t.broken(r.id), t.lacking(r.id)...)
}

// Audit reads a table, as docs/claims.md describes it, and checks it. An error names the line.
func Audit(ctx context.Context, from io.Reader) (Report, error) {
	rows, err := read(from)
	if err != nil {
		return Report{}, err
	}
	r := Report{APIVersion: "isolane.dev/v1alpha2", Kind: "Claims", Rows: len(rows), Findings: []Finding{},
		Sources: len(grouped[cell](rows, func(w *row) string { return w.source }))}
	for _, w := range rows {
		r.Table = append(r.Table, w.asFigure())
	}
	t := tableOf(rows)
	for _, rule := range rules() {
		if err = ctx.Err(); err != nil {
			return Report{}, err
		}
		for _, h := range rule.hits(t) {
			f := Finding{Rule: rule.id, Title: rule.title, Severity: cmp.Or(h.severity, rule.severity), Sum: h.sum,
				Conclusion: h.so}
			for k, w := range h.rows {
				if !slices.Contains(h.rows[:k], w) {
					f.Figures = append(f.Figures, w.asFigure())
				}
			}
			r.Findings = append(r.Findings, f)
		}
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), cmp.Compare(a.Figures[0].Line, b.Figures[0].Line))
	})
	return r, nil
}

// AuditFile audits the table in a file, and names it.
func AuditFile(ctx context.Context, name string) (Report, error) {
	file, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe must not block us for ever
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		err = path.Err
	}
	var r Report
	if err == nil {
		defer context.AfterFunc(ctx, func() { file.Close() })() // ends a read of a pipe
		defer file.Close()
		r, err = Audit(ctx, file)
	}
	if err = cmp.Or(ctx.Err(), err); err != nil {
		return r, fmt.Errorf("%s: %w", name, err)
	}
	r.File = name
	return r, nil
}

// Verdict is the report in one line.
func (r Report) Verdict() string {
	number := map[Severity]int{}
	for _, f := range r.Findings {
		number[f.Severity]++
	}
	verdict := map[Severity]string{Contradiction: "the figures do not agree",
		Impossible: "there are impossible figures",
		Suspicious: "there are suspicious figures"}[r.Worst()]
	return cmp.Or(verdict, "the figures agree") + ": " +
		quantity.Count(number[Contradiction], "contradiction") + ", " +
		quantity.Count(number[Impossible], "impossible finding") + ", " +
		quantity.Count(number[Suspicious], "suspicious finding") + "; " +
		quantity.Count(number[Unsaid], "thing") + " that the table does not say"
}
