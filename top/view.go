package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/terminal"
	"isolane.dev/isolane/watch"
	"isolane.dev/isolane/witness"
)

// View returns the whole window. The terminal library redraws only what has changed.
func (m model) View() tea.View {
	v := tea.NewView(m.text())
	v.AltScreen = true
	return v
}

// text returns fewer lines than the window has, each no wider than the window.
func (m model) text() string {
	width, height := m.width, m.height
	if width == 0 {
		width, height = 80, 24
	}
	t := terminal.Terminal{Columns: width, Colour: m.colour}
	var lines []string
	switch {
	case m.help:
		lines = help(t)
	case m.At.IsZero():
		lines = []string{"isolane top: the first figures come in a second"}
	default:
		lines = m.page(t, height)
	}
	for i, line := range lines {
		if terminal.Width(line) > width {
			lines[i] = terminal.Cut(plain(line), width)
		}
	}
	return strings.Join(lines[:min(len(lines), height)], "\n")
}

// plain returns a line without colours.
func plain(line string) string {
	for {
		before, rest, found := strings.Cut(line, "\x1b[")
		_, after, closed := strings.Cut(rest, "m")
		if !found || !closed {
			return line
		}
		line = before + after
	}
}

func help(t terminal.Terminal) []string {
	lines := []string{t.Bold("isolane top") + ": who takes time from the CPUs of lanes", ""}
	for _, key := range [][2]string{
		{"up k, down j", "another lane, or another source"},
		{"PgUp PgDn", "the same, half a window further"},
		{"Home g, End G", "the first, the last"},
		{"Enter", "the lane's sources alone, with what to do; again, or Esc: back"},
		{"s", "sort: by what they took in all, in the last second, the longest, by name"},
		{"p, space", "pause: the figures stay; again: they go on"},
		{"h ?", "these keys"},
		{"q", "quit"},
	} {
		lines = append(lines, fold(t, fmt.Sprintf("%-15s", key[0]), key[1])...)
	}
	lines = append(lines, "")
	for _, word := range [][2]string{
		{"1 s", "how often in the last second, and how long"},
		{"in all", "the same since the start. Times are a source's own."},
		{"longest", "the longest single time since the start"},
		{"lost", "packets that the lane's device dropped or refused since the start"},
		{"objective", "what isolane prove --lane has found: the worst verdict, of how many bounds"},
	} {
		lines = append(lines, fold(t, fmt.Sprintf("%-15s", word[0]), word[1])...)
	}
	return append(lines, "", "any key: back")
}

// fold returns the lines of a text with a head.
func fold(t terminal.Terminal, head, text string) []string {
	return strings.Split(strings.TrimSuffix(t.Fold(head, text), "\n"), "\n")
}

// page returns what is shown: the list fills the room that the lines around it leave.
func (m model) page(t terminal.Terminal, height int) []string {
	head := m.head(t)
	foot := append(m.notes(t), m.keys(t))
	room := max(3, height-len(head)-len(foot))
	var body []string
	switch {
	case len(m.lanes) == 0:
		body = fold(t, "", cmp.Or(m.none, "no lanes are in force; those that come are shown"))
	case m.open:
		body = m.openLane(t, room)
	default:
		body = m.overview(t, room)
	}
	for len(body) < room {
		body = append(body, "")
	}
	return slices.Concat(head, body[:room], foot)
}

func (m model) head(t terminal.Terminal) []string {
	state := m.At.Local().Format(time.TimeOnly)
	if m.paused {
		state = t.Yellow("paused at " + state)
	}
	title := t.Bold("isolane top")
	if m.Host != "" {
		title += " on " + m.Host
	}
	title += ", " + state + ": " + quantity.Count(len(m.lanes), "lane")
	if !m.CPUs.IsEmpty() {
		title += ", CPUs " + m.CPUs.String()
	}
	last, all := "last "+watch.Took(&m.Window), "since the start, "+watch.Took(&m.SinceStart.Window)
	return slices.Concat([]string{title}, short(fold(t, "", t.Bold(last)+": "+sum(m.Sources)), 2),
		short(fold(t, "", t.Bold(all)+": "+sum(m.SinceStart.Sources)), 2), []string{""})
}

// sum is printable: programs choose their own names.
func sum(all []witness.Source) string { return terminal.Clean(watch.Sum(all)) }

// short cuts lines to at most so many. The last then shows that there are more.
func short(lines []string, most int) []string {
	if len(lines) > most {
		lines = lines[:most]
		lines[most-1] += " …"
	}
	return lines
}

// notes says what is wrong. If that takes many lines, only the first are shown.
func (m model) notes(t terminal.Terminal) []string {
	const most = 6
	var lines []string
	for _, w := range m.Warnings {
		lines = append(lines, fold(t, t.Yellow("warning")+": ", w)...)
	}
	for _, text := range m.put {
		lines = append(lines, fold(t, "", t.Yellow(terminal.Clean(text)))...)
	}
	for _, d := range m.Drift {
		if !d.Repaired {
			lines = append(lines, fold(t, "", t.Red(terminal.Clean(watch.DriftText(m.At, d))))...)
		}
	}
	if len(lines) > most {
		lines = append(lines[:most-1], t.Yellow("… isolane status has all of it"))
	}
	return lines
}

func (m model) keys(t terminal.Terminal) string {
	choose := "↑↓ lane  Enter sources"
	if m.open {
		choose = "↑↓ source  Enter back"
	}
	return t.Dim("h help  q quit  " + choose + "  p pause  s sort: " + m.order.String())
}

// overview shows all lanes, and below them what takes time from the chosen one.
func (m model) overview(t terminal.Terminal, room int) []string {
	list := m.sorted()
	rows := make([]row, len(list))
	at := 0
	for i, l := range list {
		rows[i] = m.laneRow(t, l)
		if l.Name == m.lane {
			at = i
		}
	}
	head := []string{"lane", "CPUs", "1 s", "took", "in all", "took", "longest", "lost", "objective"}
	lines := table{head: head, rows: rows, figures: "--rrrrrr-", drop: []int{4, 7, 8, 5}, fold: 0}.lines(t,
		at, max(3, min(len(rows)+1, room-4)))
	about := m.about(t, m.chosen())
	if left := room - len(lines) - len(about) - 1; left >= 2 {
		lines = append(append(lines, ""), about...)
		lines = append(lines, m.sourceTable(t, m.sources(m.chosen()), -1, left)...)
	}
	return lines
}

func (m model) laneRow(t terminal.Terminal, l laneNow) row {
	last, all := m.taken(l)
	lost := "–"
	for _, c := range m.SinceStart.Traffic {
		if c.Lane == l.Name {
			lost = fmt.Sprint(c.Dropped + c.Refused)
		}
	}
	return row{cells: []string{l.Name, l.CPUs, fmt.Sprint(last.count), watch.Took(last.time),
		fmt.Sprint(all.count), watch.Took(all.time), watch.Took(all.longest), lost, objective(t, l)}}
}

// objective says what was proved about a lane: how many bounds have the worst verdict.
func objective(t terminal.Terminal, l laneNow) string {
	for _, v := range []struct {
		is    lane.Verdict
		paint func(string) string
	}{{lane.Missed, t.Red}, {lane.Void, t.Yellow}, {lane.Unproven, t.Yellow}, {lane.Held, t.Green}} {
		n := 0
		for _, j := range l.Objectives {
			if j.Verdict == v.is {
				n++
			}
		}
		if n > 0 {
			return v.paint(fmt.Sprintf("%s %d/%d", v.is, n, len(l.Objectives)))
		}
	}
	return "–"
}

// about says about a lane what its row does not.
func (m model) about(t terminal.Terminal, l laneNow) []string {
	text := quantity.Count(l.Processes, "process")
	if l.Idle != "" {
		text += ", siblings " + l.Idle + " idle"
	}
	for _, c := range m.SinceStart.Traffic {
		if c.Lane == l.Name {
			text += "; " + c.String()
		}
	}
	lines := short(fold(t, "", t.Bold("lane "+l.Name)+": "+text), 3)
	for _, j := range l.Objectives {
		lines = append(lines, fold(t, "  objective ", j.String())...)
	}
	return lines
}

// openLane shows one lane with all its sources, and what to do about the chosen source.
func (m model) openLane(t terminal.Terminal, room int) []string {
	l := m.chosen()
	lines := short(m.about(t, l), max(1, room/2))
	all := m.sources(l)
	at := slices.IndexFunc(all, func(s source) bool { return s.id == m.source })
	var remedy []string
	if at >= 0 {
		text := all[at].Remedy
		if all[at].Own {
			text = "the lane's own"
		}
		remedy = short(fold(t, "", t.Bold(terminal.Clean(watch.Title(all[at].Source)))+": "+text), 4)
	}
	left := max(2, room-len(lines)-len(remedy))
	list := m.sourceTable(t, all, at, left)
	for len(list) < left {
		list = append(list, "")
	}
	return slices.Concat(lines, list, remedy)
}

// sourceTable returns at most room lines of sources, with the one at this index among them; -1: none.
func (m model) sourceTable(t terminal.Terminal, all []source, at, room int) []string {
	if len(all) == 0 {
		return []string{"  nothing has taken time from its CPUs"}
	}
	rows := make([]row, len(all))
	for i, s := range all {
		name := terminal.Clean(watch.Title(s.Source))
		if s.Own {
			name += " (the lane's own)"
		}
		rows[i] = row{s.last.Count == nil, []string{fmt.Sprint(s.CPU), name, watch.Times(s.last.Count),
			watch.Took(s.last.Total), watch.Times(s.Count), watch.Took(s.Total), watch.Took(s.P99),
			watch.Took(s.Longest)}}
	}
	head := []string{"CPU", "source", "1 s", "took", "in all", "took", "P99", "longest"}
	list := table{head: head, rows: rows, figures: "r-rrrrrr", drop: []int{6, 4, 5, 3}, fold: 1}
	return list.lines(t, at, room)
}
