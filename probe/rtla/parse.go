package rtla

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/probe/timer"
	"isolane.dev/isolane/results"
)

// longest is the largest plausible number, in ns. A report with a larger one is rejected.
const longest = 24 * time.Hour

// kinds returns the columns that rtla has for each CPU, and the suffixes of our metrics.
func kinds() []struct{ column, word string } {
	return []struct{ column, word string }{{"IRQ", interrupts}, {"Thr", ""}, {"Usr", returns}}
}

// column is a column of rtla's table: the samples of a CPU by latency in ns.
type column struct {
	kind string
	cpu  int
	rows []row
	over uint64 // samples beyond the end of the histogram
	// the number of samples and the longest one, by rtla; without samples there is no longest
	count, longest uint64
}

type row struct{ from, n uint64 }

// report is what rtla timerlat hist prints.
type report struct {
	columns []column
	missed  string // rtla's words about events that found no room in the trace; "": none
}

// parse reads rtla's output. Samples beyond the end of the histogram make the measurement void, except for a
// single one in a column: that is the column's maximum.
func (p Probe) parse(output []byte, cpus cpuset.Set, c probe.Conditions) (results.Measurement, error) {
	m := results.Measurement{Name: c.Name, Window: results.Nanoseconds(c.Window)}
	r, err := read(string(output))
	if err != nil {
		return m, fmt.Errorf("rtla report: %w", err)
	}
	if r.missed != "" {
		m.Void = append(m.Void, "rtla: "+r.missed)
	}
	measured := cpuset.Set{}
	all, counted := map[string]*hdrhistogram.Histogram{}, map[string]uint64{}
	for _, k := range r.columns {
		if all[k.kind] == nil {
			all[k.kind] = results.NewHistogram()
		}
		if err = k.add(all[k.kind]); err != nil {
			return m, fmt.Errorf("rtla report: %s of CPU %d: %w", k.kind, k.cpu, err)
		}
		if k.over > 1 {
			m.Void = append(m.Void, fmt.Sprintf("CPU %d: %d samples (%s) over %s: only the longest is known, %s",
				k.cpu, k.over, k.kind, histogramEnd, time.Duration(k.longest)))
		}
		if k.count > 0 {
			measured = measured.Union(cpuset.Of(k.cpu))
		} else {
			m.Void = append(m.Void, fmt.Sprintf("CPU %d: no samples (%s)", k.cpu, k.kind))
		}
		counted[k.kind] += k.count
	}
	if !measured.IsSubsetOf(cpus) {
		return m, fmt.Errorf("rtla report: CPUs %s: expected %s", measured, cpus)
	}
	if none := cpus.Difference(measured); !none.IsEmpty() { // rtla has no columns for them
		m.Void = append(m.Void, fmt.Sprintf("CPUs %s: no samples: their threads did not run", none))
	}
	return m, p.fill(&m, all, counted, cpus.Len())
}

// fill stores the samples and the skipped activations in a measurement.
func (p Probe) fill(m *results.Measurement, all map[string]*hdrhistogram.Histogram,
	counted map[string]uint64, threads int) (err error) {
	due := max(uint64(threads)*uint64(time.Duration(m.Window)/p.Interval.Duration()), counted["Thr"])
	lost := due - counted["Thr"]
	m.Samples = map[string]results.Samples{}
	m.Values = map[string]float64{timer.Skipped(m.Name, Program).Name: float64(lost)}
	for _, k := range kinds() {
		if all[k.column] == nil {
			continue // no CPU has any
		}
		s := results.Samples{Wanted: counted[k.column]}
		if k.word == "" { // for the other columns it would be the same again
			s.Wanted, s.Lost = due, lost
		}
		if s.Histogram, err = results.Encode(all[k.column]); err != nil {
			return err
		}
		m.Samples[m.Name+k.word] = s
	}
	return nil
}

// add counts the samples. A bucket counts as its middle, as for cyclictest. Samples beyond the end count as
// the longest, which is exact for a single one.
func (k column) add(to *hdrhistogram.Histogram) error {
	left := k.count
	for _, r := range k.rows {
		if r.n > left {
			return fmt.Errorf("more samples than count, %d", k.count)
		}
		left -= r.n
		if r.n > 0 && r.from > k.longest {
			return fmt.Errorf("samples at %d ns: expected none over max, %d", r.from, k.longest)
		}
		if err := to.RecordValues(int64(r.from)+int64(bucket)/2, int64(r.n)); err != nil {
			return err
		}
	}
	switch {
	case left != k.over:
		return fmt.Errorf("%d of %d samples are in no row of the histogram and not over it: the report is "+
			"truncated", left-min(left, k.over), k.count)
	case (k.over > 0) != (k.count > 0 && k.longest >= uint64(histogramEnd)):
		return fmt.Errorf("%d samples over %s, and max is %d ns", k.over, histogramEnd, k.longest)
	case k.over == 1:
		probe.Record(to, int64(k.longest))
	}
	return nil
}

// lines is the unread rest of a text.
type lines struct{ rest []string }

// next reads a line that must begin with the word first, and returns its other words.
func (l *lines) next(first string) ([]string, error) {
	if len(l.rest) == 0 {
		return nil, fmt.Errorf("expected %s, found the end: it is cut off", first)
	}
	f := strings.Fields(l.rest[0])
	if len(f) == 0 || f[0] != first {
		return nil, fmt.Errorf("expected %s, found %.60q", first, l.rest[0])
	}
	l.rest = l.rest[1:]
	return f[1:], nil
}

// read parses the table: a line for each bucket, then for each column its samples beyond the end and its
// sums, and in newer versions the sums over all CPUs.
func read(text string) (r report, err error) {
	if !strings.HasSuffix(text, "\n") {
		return r, errors.New("it is cut off")
	}
	l := &lines{strings.Split(strings.TrimSuffix(text, "\n"), "\n")}
	for _, want := range []string{"# RTLA timerlat histogram", "# Time unit is nanoseconds (ns)",
		"# Duration: "} {
		if len(l.rest) == 0 || !strings.HasPrefix(l.rest[0], want) {
			return r, fmt.Errorf("expected %q, found %.60q", want, strings.Join(l.rest[:min(1, len(l.rest))], ""))
		}
		l.rest = l.rest[1:]
	}
	heads, err := l.next("Index")
	if err == nil {
		r.columns, err = columnsOf(heads)
	}
	if err == nil {
		err = l.rows(r.columns)
	}
	if err == nil {
		err = l.sums(r.columns)
	}
	if err == nil {
		r.missed, err = l.end(r.columns)
	}
	return r, err
}

// columnsOf parses the head, "IRQ-000 Thr-000 Usr-000" and the same for further CPUs.
func columnsOf(heads []string) (all []column, err error) {
	three := kinds()
	for i, head := range heads {
		kind, number, _ := strings.Cut(head, "-")
		cpu, err := strconv.ParseUint(number, 10, 31)
		if err != nil || kind != three[i%3].column || i%3 > 0 && int(cpu) != all[i-1].cpu ||
			i%3 == 0 && i > 0 && int(cpu) <= all[i-1].cpu {
			return nil, fmt.Errorf("index: %.20q: expected IRQ, Thr and Usr of each CPU", head)
		}
		all = append(all, column{kind: kind, cpu: int(cpu)})
	}
	if len(all)%3 != 0 {
		return nil, fmt.Errorf("index: %d columns: expected IRQ, Thr and Usr of each CPU", len(all))
	}
	return all, nil
}

// rows parses the buckets that have samples.
func (l *lines) rows(columns []column) error {
	for last := int64(-1); len(l.rest) > 0 && !strings.HasPrefix(l.rest[0], "over:"); l.rest = l.rest[1:] {
		numbers, err := numbersOf(strings.Fields(l.rest[0]), 1+len(columns))
		if err != nil {
			return err
		}
		from := numbers[0]
		if from%uint64(bucket) != 0 || from >= uint64(histogramEnd) || int64(from) <= last {
			return fmt.Errorf("bucket %d: expected multiples of %d below %d, in order", from, bucket, histogramEnd)
		}
		last = int64(from)
		for i, n := range numbers[1:] {
			columns[i].rows = append(columns[i].rows, row{from, n})
		}
	}
	return nil
}

// sums parses the lines below the rows. Without samples rtla prints "-", or in older versions its initial
// values.
func (l *lines) sums(columns []column) error {
	for _, name := range []string{"over:", "count:", "min:", "avg:", "max:"} {
		words, err := l.next(name)
		if err != nil {
			return err
		}
		for i := range columns {
			if name == "max:" && columns[i].count == 0 && i < len(words) {
				words[i] = "0"
			}
		}
		if name == "min:" || name == "avg:" {
			if len(words) != len(columns) {
				return fmt.Errorf("%s %d columns, expected %d", name, len(words), len(columns))
			}
			continue // unused
		}
		numbers, err := numbersOf(words, len(columns))
		if err != nil {
			return fmt.Errorf("%s %w", name, err)
		}
		for i, n := range numbers {
			k := &columns[i]
			*map[string]*uint64{"over:": &k.over, "count:": &k.count, "max:": &k.longest}[name] = n
		}
	}
	return nil
}

// end parses the sums over all CPUs, if there are any, and what rtla says about missed events.
func (l *lines) end(columns []column) (missed string, err error) {
	if len(l.rest) > 0 && strings.HasPrefix(l.rest[0], "ALL:") {
		heads, err := l.next("ALL:")
		if err != nil || !slices.Equal(heads, []string{"IRQ", "Thr", "Usr"}) {
			return "", fmt.Errorf("ALL: %q: expected IRQ, Thr, Usr", heads)
		}
		words, err := l.next("count:")
		if err != nil {
			return "", err
		}
		counts, err := numbersOf(words, len(heads))
		if err != nil {
			return "", fmt.Errorf("ALL: count: %w", err)
		}
		for _, k := range columns {
			counts[slices.Index(heads, k.kind)] -= k.count
		}
		if slices.ContainsFunc(counts, func(left uint64) bool { return left != 0 }) {
			return "", errors.New("ALL: count: expected the sums of the columns")
		}
		for _, name := range []string{"min:", "avg:", "max:"} {
			if _, err = l.next(name); err != nil {
				return "", fmt.Errorf("ALL: %w", err)
			}
		}
	}
	if len(l.rest) == 1 && strings.HasSuffix(l.rest[0], "missed, results might not be accurate") {
		return l.rest[0], nil
	}
	if len(l.rest) > 0 {
		return "", fmt.Errorf("expected the end, found %.60q", l.rest[0])
	}
	return "", nil
}

// numbersOf parses count numbers, none of them implausibly large.
func numbersOf(words []string, count int) ([]uint64, error) {
	if len(words) != count {
		return nil, fmt.Errorf("%.60q: expected %d numbers, found %d", strings.Join(words, " "), count, len(words))
	}
	var all []uint64
	for _, w := range words {
		n, err := strconv.ParseUint(w, 10, 64)
		if err != nil || n > uint64(longest) {
			return nil, fmt.Errorf("%.30q: expected a number of at most %d", w, uint64(longest))
		}
		all = append(all, n)
	}
	return all, nil
}
