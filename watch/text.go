package watch

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/terminal"
	"isolane.dev/isolane/witness"
)

// Reading is what was found at a moment: what `isolane watch -o json` prints each second and at the end.
type Reading struct {
	APIVersion string              `json:"apiVersion"`
	Kind       string              `json:"kind"` // Intruders
	Host       string              `json:"host"`
	At         time.Time           `json:"at"`
	Evidence   string              `json:"evidence"` // bpf or procfs
	CPUs       cpuset.Set          `json:"cpus"`
	Final      bool                `json:"final"`
	Window     results.Nanoseconds `json:"windowNanoseconds"` // since the previous document
	// Sources are those of that window, the costliest first, the lanes' own last.
	Sources    []witness.Source `json:"sources"`
	SinceStart SinceStart       `json:"sinceStart"`
	Traffic    []Traffic        `json:"traffic"` // of lanes with a path, in that window
	Drift      []enforce.Drift  `json:"drift"`   // what is not as the lanes want it, or was just repaired
	Warnings   []string         `json:"warnings"`

	Fresh []enforce.Drift `json:"-"` // that no earlier reading had
	Timed bool            `json:"-"` // the trace has all times of this window, even the longest
}

// SinceStart is what was found since the watch began.
type SinceStart struct {
	At      time.Time           `json:"at"`
	Window  results.Nanoseconds `json:"windowNanoseconds"`
	Sources []witness.Source    `json:"sources"`
	Traffic []Traffic           `json:"traffic"`
}

// Documents returns what shows readings to programs, as a JSON document a line.
func Documents(w io.Writer) func(Reading) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return func(r Reading) error { return e.Encode(r) }
}

// Display shows readings to people: on a terminal a table that is redrawn, elsewhere a line per second and
// the table at the end.
type Display struct {
	w      io.Writer
	screen bool     // the terminal's alternate screen
	drift  []string // the last drift found, for the terminal
	budget time.Duration
}

// NewDisplay shows readings on w. What takes longer than the budget is red.
func NewDisplay(w io.Writer, budget time.Duration) *Display {
	d := &Display{w: w, screen: terminal.Height(w) > 0, budget: budget}
	if d.screen {
		fmt.Fprint(w, "\x1b[?1049h") // the alternate screen: Close brings the old one back
	}
	return d
}

// Close restores the terminal.
func (d *Display) Close() {
	if d.screen {
		fmt.Fprint(d.w, "\x1b[?1049l")
		d.screen = false
	}
}

// Show shows a reading.
func (d *Display) Show(r Reading) error {
	if r.Final {
		d.Close()
	}
	for _, drift := range r.Fresh {
		text := DriftText(r.At, drift)
		if !d.screen {
			if _, err := fmt.Fprintln(d.w, text); err != nil {
				return err
			}
		}
		d.drift = append(d.drift, text)
		d.drift = d.drift[max(0, len(d.drift)-5):]
	}
	for _, lane := range r.Traffic {
		if lane.Dropped+lane.Refused == 0 || d.screen {
			continue
		}
		_, err := fmt.Fprintf(d.w, "%s lane %s, last %s: %s\n", r.At.Local().Format(time.TimeOnly), lane.Lane,
			Took(&r.Window), lane)
		if err != nil {
			return err
		}
	}
	if d.screen {
		text := d.picture(terminal.Of(d.w), r, terminal.Height(d.w)-1)
		_, err := fmt.Fprint(d.w, "\x1b[H", strings.ReplaceAll(text, "\n", "\x1b[K\n"), "\x1b[J")
		return err
	}
	line := fmt.Sprintf("%s last %s: %s; since the start, %s: %s\n", r.At.Local().Format(time.TimeOnly),
		Took(&r.Window), Sum(r.Sources), Took(&r.SinceStart.Window), Sum(r.SinceStart.Sources))
	if r.Final {
		line += "\n" + d.picture(terminal.Of(d.w), r, 0)
	}
	_, err := io.WriteString(d.w, line)
	return err
}

// DriftText says in one line what was not as the lanes want it, who caused it, and what was done about it.
func DriftText(at time.Time, d enforce.Drift) string {
	text := fmt.Sprintf("%s drift: %s", at.Local().Format(time.TimeOnly), d.Text())
	if d.By != "" {
		text += ", by " + d.By
	}
	if d.Repaired {
		text += ": put back"
	}
	if d.Note != "" {
		text += ": " + d.Note
	}
	return text
}

// Sum says in one line what took time, without the lanes' own work.
func Sum(sources []witness.Source) string {
	var n, count uint64
	var total results.Nanoseconds
	var longest witness.Source
	for _, s := range sources {
		if s.Own {
			continue
		}
		n++
		if s.Count != nil {
			count += *s.Count
		}
		if s.Total != nil && s.Kind != results.Steal { // steal is part of the others, or of the lane's time
			total += *s.Total
		}
		if s.Longest != nil && (longest.Longest == nil || *s.Longest > *longest.Longest) {
			longest = s
		}
	}
	if n == 0 {
		return "nothing"
	}
	text := fmt.Sprintf("%d times, %s", count, Took(&total))
	if longest.Longest != nil {
		text += fmt.Sprintf(", the longest %s (%s on CPU %d)", Took(longest.Longest), Title(longest), longest.CPU)
	}
	return text
}

// picture returns the table with what is above it. If height is not 0, it leaves out the sources that took
// least.
func (d *Display) picture(t terminal.Terminal, r Reading, height int) string {
	head := t.Bold("CPUs "+r.CPUs.String()) + "\n"
	if d.screen {
		head = t.Fold(t.Bold("last "+Took(&r.Window))+": ", Sum(r.Sources)) +
			t.Fold(t.Bold("since the start, "+Took(&r.SinceStart.Window))+": ", Sum(r.SinceStart.Sources))
	}
	for i, lane := range r.SinceStart.Traffic {
		text := "since the start: " + lane.String()
		if d.screen {
			text = r.Traffic[i].String() + "; " + text
		}
		head += t.Fold(t.Bold("lane "+lane.Lane)+": ", text)
	}
	for _, w := range r.Warnings {
		head += t.Fold(t.Yellow("warning")+": ", w)
	}
	if d.screen {
		for _, text := range d.drift {
			head += t.Fold("", t.Yellow(text))
		}
	}
	rows := d.rows(t, r)
	if height == 0 {
		return head + table(t, rows)
	}
	room := height - strings.Count(head, "\n")
	shown := min(len(rows), max(room, 1))
	for {
		text := table(t, rows[:shown])
		if left := len(rows) - shown; left > 0 {
			text += fmt.Sprintf("%d sources that took less are left out here\n", left)
		}
		over := strings.Count(text, "\n") - room
		if over <= 0 || shown <= 1 {
			return head + text
		}
		shown = max(1, shown-max(1, over/3))
	}
}

// narrow is the width below which a table leaves figures out.
const narrow = 80

func table(t terminal.Terminal, rows [][]string) string {
	w := terminal.Table{Head: []string{"CPU", "source", "1 s", "took", "in all", "took", "P99", "longest",
		"what to do"},
		Rows: rows, Figures: []int{0, 2, 3, 4, 5, 6, 7}}
	if t.Columns < narrow {
		leave := func(row []string) []string { return slices.Concat(row[:3], row[4:6], row[7:]) }
		w.Head, w.Figures = leave(w.Head), []int{0, 2, 3, 4, 5}
		w.Rows = nil
		for _, row := range rows {
			w.Rows = append(w.Rows, leave(row))
		}
	}
	return t.Table(w)
}

// rows returns a row per source. While the watch goes on those of the last second come first; at its end they
// are ordered by their total time.
func (d *Display) rows(t terminal.Terminal, r Reading) [][]string {
	last := map[string]witness.Source{}
	for _, s := range r.Sources {
		last[fmt.Sprint(s.CPU, Title(s))] = s
	}
	var now, before [][]string
	for _, s := range r.SinceStart.Sources {
		l, lately := last[fmt.Sprint(s.CPU, Title(s))]
		row := []string{fmt.Sprint(s.CPU), terminal.Clean(Title(s)), Times(l.Count), Took(l.Total), Times(s.Count),
			Took(s.Total), Took(s.P99), Took(s.Longest), s.Remedy}
		switch {
		case s.Own:
			row[8] = "the lane's own"
		case d.budget > 0 && s.Longest != nil && time.Duration(*s.Longest) > d.budget:
			row[7] = t.Red(row[7])
		}
		if lately && !s.Own && !r.Final {
			now = append(now, row)
		} else {
			before = append(before, row)
		}
	}
	rows, above := append(now, before...), ""
	for _, row := range rows { // the same remedy of consecutive rows is printed once
		if row[8] == above {
			row[8] = ""
		} else {
			above = row[8]
		}
	}
	return rows
}

// Times prints how often something has happened, if known.
func Times(n *uint64) string {
	if n == nil {
		return "–"
	}
	return fmt.Sprint(*n)
}

// Took prints a time for people, with three digits.
func Took(ns *results.Nanoseconds) string {
	if ns == nil {
		return "–"
	}
	v, unit := float64(*ns), "ns"
	for _, next := range []struct {
		unit string
		size float64
	}{{"µs", 1e3}, {"ms", 1e3}, {"s", 1e3}} {
		if v < 999.5 {
			break
		}
		v, unit = v/next.size, next.unit
	}
	digits := 0
	if unit != "ns" {
		digits = max(0, 2-len(fmt.Sprint(int(v)))+1)
	}
	return fmt.Sprintf("%.*f %s", digits, v, unit)
}

// Title names a source with its kind, and what distinguishes it from others of that name.
func Title(s witness.Source) string {
	text := s.Kind
	if s.IRQ != nil {
		text += fmt.Sprintf(" %d", *s.IRQ)
	}
	text = strings.TrimSpace(text + " " + s.Name)
	if s.TID != 0 {
		text += fmt.Sprintf(" (%d)", s.TID)
	}
	if s.Work != "" {
		text += " " + s.Work
	}
	if s.Kind == results.Task && s.Cgroup != "" {
		text += " in " + s.Cgroup
	}
	return text
}
