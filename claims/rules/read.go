package rules

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
	mostBytes = 16 << 20 // of a file; published tables are far smaller
	mostRows  = 1_000
	mostParts = 20 // conditions of a row
)

// row is one published figure.
type row struct {
	line                                                    int // in the CSV file
	at, source, scenario, config, metric, qualifier, quoted string
	unit                                                    unit
	unitText,
	text string // as printed; the unit without a remark in parentheses
	group string // source and scenario
	value span   // what the digits allow, in the printed unit
	words []string
	stem  string // the metric without its statistic
	stat  stat
	parts []part // of the config
	// Keys of rows that belong together: by conditions in any order, and by metric, both in a group.
	conditions, figure string
	general            []string // words of scenario and config
	prose              string   // all that it says in words
}

func columns() []string {
	return []string{"scenario", "config", "metric", "unit", "value", "source_file", "qualifier", "line", "quote"}
}

const required = 5 // of the columns

// tolerances are the qualifiers, and what share of its value a figure may be off because of them.
func tolerances() map[string]float64 {
	return map[string]float64{"": 0, "exact": 0, "as_written": 0, "range_low": 0, "range_high": 0, "limit": 0,
		"lower_bound": 0, "upper_bound": 0, "approx": 0.05, "claimed": 0.05, "worded": 0.05}
}

// reader says where in the file it found something wrong.
type reader struct {
	*csv.Reader
	head   []string
	fields []string
}

func (r *reader) wrong(name, format string, args ...any) error {
	line, column := r.FieldPos(slices.Index(r.head, name))
	return fmt.Errorf("line %d, column %d: %s: %s", line, column, name, fmt.Sprintf(format, args...))
}

// read reads a table strictly: an error names the line, and the column where there is one.
func read(from io.Reader) ([]*row, error) {
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
	var rows []*row
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

// inWords is an error of encoding/csv as ours are.
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

// get is a field of the row at hand, "" where the file lacks the column.
func (r *reader) get(name string) string {
	if k := slices.Index(r.head, name); k >= 0 {
		return strings.TrimSpace(r.fields[k])
	}
	return ""
}

func (r *reader) row() (*row, error) {
	w := &row{at: r.get("line"), source: r.get("source_file"), scenario: r.get("scenario"),
		config: r.get("config"), metric: r.get("metric"), qualifier: r.get("qualifier"), text: r.get("value"),
		quoted: r.get("quote")}
	w.line, _ = r.FieldPos(0)
	w.group = w.source + "\x00" + w.scenario
	w.unitText, _, _ = strings.Cut(strings.TrimSuffix(r.get("unit"), ")"), "(")
	w.unitText = strings.TrimSpace(w.unitText)
	for _, name := range []string{"scenario", "metric"} {
		if r.get(name) == "" {
			return nil, r.wrong(name, "expected a name")
		}
	}
	share, ok := tolerances()[w.qualifier]
	if !ok {
		return nil, r.wrong("qualifier", "%.40q: expected exact, approx, range_low, range_high, lower_bound, "+
			"upper_bound, claimed, as_written, limit, worded or nothing", w.qualifier)
	}
	if w.unit, ok = unitOf(w.unitText); !ok {
		return nil, r.wrong("unit",
			"%.40q: expected a unit such as us, ms, s, req/s, Gbps, GB/s, MB, percent, "+
				"ratio or count; text, version or date where the value is no number", w.unitText)
	}
	w.words, w.parts = wordsOf(w.metric), partsOf(w.config)
	w.stem, w.stat = statOf(w.metric)
	w.conditions = w.group + "\x00" + unordered(w.parts)
	w.figure = w.group + "\x00" + strings.Join(w.words, " ")
	w.general = append(wordsOf(w.scenario), wordsOf(w.config)...)
	w.prose = w.proseOf()
	if len(w.parts) > mostParts {
		return nil, r.wrong("config", "%d conditions, expected %d at most", len(w.parts), mostParts)
	}
	if w.unit.dim == text {
		return w, nil
	}
	var err error
	if w.value, err = parseValue(w.text, w.unit.dim, share); err != nil {
		return nil, r.wrong("value", "%.40q: %v", w.text, err)
	}
	if w.value.high < 0 && w.unit.amount() && !w.isChange() {
		return nil, r.wrong("value", "%.40q: expected no negative %s", w.text, w.metric)
	}
	return w, nil
}

var plain = regexp.MustCompile(`^-?\d+(\.\d+)?([eE][+-]?\d{1,3})?$`)

// parseValue returns the values that a figure stands for: it may be rounded or cut off behind its last digit.
func parseValue(s string, d dimension, share float64) (span, error) {
	if !plain.MatchString(s) {
		return span{}, errors.New("expected a plain decimal number, with its unit and qualifier in their columns")
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsInf(v, 0) {
		return span{}, errors.New("is too large")
	}
	mantissa, exponent, _ := strings.Cut(strings.ToLower(s), "e")
	power, _ := strconv.Atoi(exponent) // none is 0
	_, decimals, _ := strings.Cut(mantissa, ".")
	digit := math.Pow(10, float64(power-len(decimals)))
	if (d == count || d == id) && decimals == "" {
		digit = 0 // a count is exact
	}
	off := digit + share*math.Abs(v)
	return span{v - off, v, v + off}, nil
}
