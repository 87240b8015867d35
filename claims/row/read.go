package row

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	mostBytes = 16 << 20 // of a file; published tables are much smaller
	mostRows  = 1_000
	mostParts = 20 // conditions of a row
)

func columns() []string {
	return []string{"scenario", "config", "metric", "unit", "value", "source_file", "qualifier", "line", "quote"}
}

const required = 5 // of the columns

// tolerances returns the qualifiers, with the share by which a figure may be off because of them.
func tolerances() map[string]float64 {
	return map[string]float64{"": 0, "exact": 0, "as_written": 0, "range_low": 0, "range_high": 0, "limit": 0,
		"lower_bound": 0, "upper_bound": 0, "approx": 0.05, "claimed": 0.05, "worded": 0.05}
}

// reader reports where in the file something is wrong.
type reader struct {
	*csv.Reader
	head   []string
	fields []string
}

func (r *reader) wrong(name, format string, args ...any) error {
	line, column := r.FieldPos(slices.Index(r.head, name))
	return fmt.Errorf("line %d, column %d: %s: %s", line, column, name, fmt.Sprintf(format, args...))
}

// Read parses a table strictly. An error names the line, and the column if there is one.
func Read(from io.Reader) ([]*Row, error) {
	data, err := io.ReadAll(io.LimitReader(from, mostBytes+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) > mostBytes:
		return nil, fmt.Errorf("more than %d MiB: expected a published table", mostBytes>>20)
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	for k, c := range string(data) {
		if _, size := utf8.DecodeRune(data[k:]); c == utf8.RuneError && size == 1 {
			line := 1 + bytes.Count(data[:k], []byte("\n"))
			return nil, fmt.Errorf("line %d, column %d: expected UTF-8", line, k-bytes.LastIndexByte(data[:k], '\n'))
		}
	}
	r := &reader{Reader: csv.NewReader(bytes.NewReader(data))}
	if err = r.readHead(); err != nil {
		return nil, err
	}
	var rows []*Row
	for {
		r.fields, err = r.Read()
		switch {
		case errors.Is(err, io.EOF) && len(rows) == 0:
			return nil, errors.New("line 2: expected a row below the header")
		case errors.Is(err, io.EOF):
			return rows, nil
		case errors.Is(err, csv.ErrFieldCount):
			line, column := r.FieldPos(len(r.fields) - 1)
			return nil, fmt.Errorf("line %d, column %d: %d fields, expected %d as in the header", line, column,
				len(r.fields), len(r.head))
		case err != nil:
			return nil, inWords(err)
		case len(rows) == mostRows:
			line, _ := r.FieldPos(0)
			return nil, fmt.Errorf("line %d: more than %d rows: expected a published table", line, mostRows)
		}
		next, err := r.row()
		if err != nil {
			return nil, err
		}
		rows = append(rows, next)
	}
}

// inWords words an error of encoding/csv like other errors of a table.
func inWords(err error) error {
	if parse, ok := errors.AsType[*csv.ParseError](err); ok {
		return fmt.Errorf("line %d, column %d: %w", parse.Line, parse.Column, parse.Err)
	}
	return err
}

func (r *reader) readHead() error {
	head, err := r.Read()
	expected := "expected a header with " + strings.Join(columns(), ", ")
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("line 1: " + expected)
	case err != nil:
		return inWords(err)
	}
	for k, name := range head {
		name = strings.TrimSpace(name)
		_, column := r.FieldPos(k)
		switch {
		case !slices.Contains(columns(), name):
			return fmt.Errorf("line 1, column %d: %.40q is no column: %s", column, name, expected)
		case slices.Contains(r.head, name):
			return fmt.Errorf("line 1, column %d: a second column %s", column, name)
		}
		r.head = append(r.head, name)
	}
	for _, name := range columns()[:required] {
		if !slices.Contains(r.head, name) {
			return fmt.Errorf("line 1: no column %s: %s", name, expected)
		}
	}
	return nil
}

// get returns a field of the present row, or "" if the file lacks the column.
func (r *reader) get(name string) string {
	if k := slices.Index(r.head, name); k >= 0 {
		return strings.TrimSpace(r.fields[k])
	}
	return ""
}

func (r *reader) row() (*Row, error) {
	w := &Row{at: r.get("line"), Source: r.get("source_file"), scenario: r.get("scenario"),
		Config: r.get("config"), Metric: r.get("metric"), Qualifier: r.get("qualifier"), Text: r.get("value"),
		Quoted: r.get("quote")}
	w.Line, _ = r.FieldPos(0)
	w.Group = w.Source + "\x00" + w.scenario
	w.UnitText, _, _ = strings.Cut(strings.TrimSuffix(r.get("unit"), ")"), "(")
	w.UnitText = strings.TrimSpace(w.UnitText)
	for _, name := range []string{"scenario", "metric"} {
		if r.get(name) == "" {
			return nil, r.wrong(name, "expected a name")
		}
	}
	share, ok := tolerances()[w.Qualifier]
	if !ok {
		return nil, r.wrong("qualifier", "%.40q: expected exact, approx, range_low, range_high, lower_bound, "+
			"upper_bound, claimed, as_written, limit, worded or nothing", w.Qualifier)
	}
	if w.Unit, ok = UnitOf(w.UnitText); !ok {
		return nil, r.wrong("unit",
			"%.40q: expected a unit such as us, ms, s, req/s, Gbps, GB/s, MB, percent, "+
				"ratio or count; text, version or date where the value is no number", w.UnitText)
	}
	metric := ranked.ReplaceAllString(joined.ReplaceAllString(w.Metric, "$1 $2"), "p$1$2")
	metric = runTimes.ReplaceAllString(metric, "${1}duration$4")
	metric = w.withoutUnit(metric)
	w.Words, w.Parts = WordsOf(metric), partsOf(w.Config)
	w.Stem, w.Stat = StatOf(metric)
	w.Conditions = w.Group + "\x00" + Unordered(w.Parts)
	w.Figure = w.Group + "\x00" + strings.Join(w.Words, " ")
	w.General = append(WordsOf(w.scenario), WordsOf(w.Config)...)
	w.Prose = w.proseOf()
	if len(w.Parts) > mostParts {
		return nil, r.wrong("config", "%d conditions, expected %d at most", len(w.Parts), mostParts)
	}
	if w.Unit.Dim == Text {
		return w, nil
	}
	var err error
	if w.Value, err = parseValue(w.Text, w.Unit, share); err != nil {
		return nil, r.wrong("value", "%.40q: %v", w.Text, err)
	}
	if w.Value.High < 0 && w.Unit.amount() && !w.IsChange() {
		return nil, r.wrong("value", "%.40q: expected no negative %s", w.Text, w.Metric)
	}
	return w, nil
}

// withoutUnit removes the unit from a metric that names it too: "latency p99 (us)", "throughput_gbps".
func (w *Row) withoutUnit(metric string) string {
	none := []Dimension{Text, Other, ID, Count, Share}
	if slices.Contains(none, w.Unit.Dim) || strings.EqualFold(w.UnitText, "min") {
		return metric
	}
	name := strings.TrimRight(metric, ")]")
	k := len(name) - len(w.UnitText)
	if k < 2 || !strings.EqualFold(name[k:], w.UnitText) || !strings.ContainsRune("_([ ", rune(name[k-1])) {
		return metric
	}
	return strings.TrimRight(name[:k], "_([ ")
}

// runTimes matches other words for how long a measurement took.
var runTimes = regexp.MustCompile(`(?i)(^|[_ -])(measurement|measuring|test|trial|run)[_ -]` +
	`(time|period|length)($|[_ -])`)

var plain = regexp.MustCompile(`^-?\d+(\.\d+)?([eE][+-]?\d{1,3})?$`)

// parseValue returns the values for which a figure may stand: its last digit may be rounded, or cut off.
func parseValue(s string, u Unit, share float64) (Span, error) {
	if !plain.MatchString(s) {
		return Span{}, errors.New("expected a plain decimal number, with its unit and qualifier in their columns")
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsInf(v, 0) {
		return Span{}, errors.New("is too large")
	}
	mantissa, exponent, _ := strings.Cut(strings.ToLower(s), "e")
	power, _ := strconv.Atoi(exponent) // no exponent is 0
	_, decimals, _ := strings.Cut(mantissa, ".")
	digit := math.Pow(10, float64(power-len(decimals)))
	if (u.Dim == Count || u.Dim == ID) && decimals == "" {
		digit = 0 // a count is exact
	}
	off := digit + share*math.Abs(v)
	if u.Dim == Duration && u.Factor >= 60 && decimals == "" && share == 0 {
		return Span{v - digit/2, v, v + digit}, nil // nobody calls half an hour one hour
	}
	return Span{v - off, v, v + off}, nil
}
