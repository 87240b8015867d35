// Package export writes a session in the formats of other programs. Package report/figures computes. Each
// format only prints its results, in the order of the session, so the same results always give the same
// bytes.
package export

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"isolane.dev/isolane/report"
	"isolane.dev/isolane/report/figures"
	"isolane.dev/isolane/report/samples"
)

// Format is a way to write a session.
type Format struct {
	Name  string
	About string // what it is, for the help
	Write func(io.Writer, report.Document) error
}

// Formats returns all formats.
func Formats() []Format {
	return []Format{
		{"benchstat", "a line a used run, in the format of Go's benchmarks: benchstat -col /placement", benchstat},
		{"csv", "a row a cell, metric and block, and rows of the percentiles of all used runs merged", table},
		{"hdr", "interval log of HdrHistogram, a tag a cell and metric", histograms},
		{"json", "what -o json prints", document},
		{"junit", "aims and the bounds of an objective as test cases, in XML", junit},
		{"markdown", "a summary for a comment on a pull request", func(w io.Writer, d report.Document) error {
			return d.Markdown(w)
		}},
		{"openmetrics", "medians, percentiles and ratios as metrics, with units and help", openmetrics},
	}
}

// Find returns the format of that name, or an error that names all.
func Find(name string) (Format, error) {
	var names []string
	for _, f := range Formats() {
		if f.Name == name {
			return f, nil
		}
		names = append(names, f.Name)
	}
	last := len(names) - 1
	return Format{}, fmt.Errorf("expected %s or %s, and =FILE behind it for a file",
		strings.Join(names[:last], ", "), names[last])
}

// level returns the level of a factor in a cell, with an asterisk if another level was in force; "" for none.
func level(c figures.Cell, factor string) string {
	if _, other := c.InForce[factor]; other {
		return c.Levels[factor] + "*"
	}
	return c.Levels[factor]
}

// quantiles returns those of the usual quantiles that a distribution's sample supports.
func quantiles(d *samples.Distribution) []float64 {
	return slices.DeleteFunc(samples.Quantiles(), func(p float64) bool { return math.IsNaN(d.Quantile(p)) })
}

// number prints a value with all its digits, and no exponent.
func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// word replaces blanks, control characters and some others in a name, each written as in a URL: %20.
// Different names stay different.
func word(name, others string) string {
	var b strings.Builder
	for _, r := range name {
		if unicode.IsSpace(r) || unicode.IsControl(r) || r == '%' || strings.ContainsRune(others, r) {
			for _, c := range []byte(string(r)) {
				fmt.Fprintf(&b, "%%%02X", c)
			}
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}
