package top

import (
	"cmp"
	"fmt"
	"slices"

	tea "charm.land/bubbletea/v2"

	"isolane.dev/isolane/results"
	"isolane.dev/isolane/watch"
	"isolane.dev/isolane/witness"
)

// model is what is shown and what the user has chosen. Its zero value waits for the first figures.
type model struct {
	now
	width, height int
	colour        bool

	put    []string // the last repaired drift, because only one reading reports it
	lane   string   // the chosen lane
	source string   // the chosen source of that lane
	open   bool     // only the sources of the chosen lane are shown
	order  order
	paused bool
	help   bool
}

// order is how rows are sorted.
type order int

const (
	byAll order = iota // by what others took since the start
	byNow              // by what others took in the last second
	byLongest
	byName
	orders
)

func (o order) String() string {
	return []string{"in all", "last second", "longest", "name"}[o]
}

// Init requests nothing: figures arrive by themselves.
func (m model) Init() tea.Cmd { return nil }

// Update handles figures, keys and the size of the window.
func (m model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case now:
		if !m.paused {
			m = m.take(msg)
		}
	case tea.KeyPressMsg:
		return m.key(msg.String())
	}
	return m, nil
}

// kept is how many repaired drifts stay on the screen.
const kept = 3

func (m model) take(n now) model {
	m.now = n
	for _, d := range n.Drift {
		if d.Repaired {
			m.put = append(slices.Clone(m.put), watch.DriftText(n.At, d))
		}
	}
	m.put = m.put[max(0, len(m.put)-kept):]
	return m.choose(0)
}

func (m model) key(name string) (tea.Model, tea.Cmd) {
	if m.help && name != "q" && name != "ctrl+c" {
		m.help = false
		return m, nil
	}
	switch name {
	case "q", "ctrl+c", "f10":
		return m, tea.Quit
	case "up", "k":
		m = m.choose(-1)
	case "down", "j":
		m = m.choose(1)
	case "pgup":
		m = m.choose(-m.height / 2)
	case "pgdown":
		m = m.choose(m.height / 2)
	case "home", "g":
		m = m.choose(-1 << 20)
	case "end", "G":
		m = m.choose(1 << 20)
	case "enter":
		m.open, m.source = !m.open, ""
		m = m.choose(0)
	case "esc", "left":
		m.open, m.source = false, ""
	case "s":
		m.order = (m.order + 1) % orders
	case "p", "space":
		m.paused = !m.paused
	case "h", "?", "f1":
		m.help = true
	}
	return m, nil
}

// choose moves the choice by so many rows. A choice stays on its lane or source while that exists.
func (m model) choose(by int) model {
	var names []string
	for _, l := range m.sorted() {
		names = append(names, l.Name)
	}
	if !m.open {
		m.lane = next(names, m.lane, by)
		return m
	}
	if m.lane = next(names, m.lane, 0); m.lane == "" {
		m.open, m.source = false, ""
		return m
	}
	names = nil
	for _, s := range m.sources(m.chosen()) {
		names = append(names, s.id)
	}
	m.source = next(names, m.source, by)
	return m
}

func next(names []string, name string, by int) string {
	if len(names) == 0 {
		return ""
	}
	return names[min(max(0, max(0, slices.Index(names, name))+by), len(names)-1)]
}

// chosen returns the chosen lane, or the zero value if there is none.
func (m model) chosen() laneNow {
	at := slices.IndexFunc(m.lanes, func(l laneNow) bool { return l.Name == m.lane })
	if at < 0 {
		return laneNow{}
	}
	return m.lanes[at]
}

// source is a source on one of a lane's CPUs, with what it took in the last second.
type source struct {
	witness.Source
	id   string
	last witness.Source
}

// sources returns the sources on a lane's CPUs, the lanes' own last.
func (m model) sources(l laneNow) []source {
	id := func(s witness.Source) string { return fmt.Sprint(s.CPU, " ", watch.Title(s)) }
	last := map[string]witness.Source{}
	for _, s := range m.Sources {
		last[id(s)] = s
	}
	var all []source
	for _, s := range m.SinceStart.Sources {
		if l.owned.Contains(s.CPU) {
			all = append(all, source{s, id(s), last[id(s)]})
		}
	}
	slices.SortStableFunc(all, func(a, b source) int {
		if a.Own != b.Own {
			return map[bool]int{false: -1, true: 1}[a.Own]
		}
		switch m.order {
		case byName:
			return cmp.Or(cmp.Compare(watch.Title(a.Source), watch.Title(b.Source)), cmp.Compare(a.CPU, b.CPU))
		case byNow:
			return cmp.Or(most(a.last.Total, b.last.Total), most(a.Total, b.Total))
		case byLongest:
			return most(a.Longest, b.Longest)
		default:
			return most(a.Total, b.Total)
		}
	})
	return all
}

// most compares times, the longer first; an unknown one is last.
func most(a, b *results.Nanoseconds) int {
	value := func(n *results.Nanoseconds) results.Nanoseconds {
		if n == nil {
			return -1
		}
		return *n
	}
	return cmp.Compare(value(b), value(a))
}

// taken is what others have taken from a lane's CPUs.
type taken struct {
	count         uint64
	time, longest *results.Nanoseconds // nil: unknown
}

func (t *taken) add(s witness.Source) {
	if s.Count != nil {
		t.count += *s.Count
	}
	if s.Total != nil && s.Kind != results.Steal { // steal is part of the others, or of the lane's own time
		sum := *s.Total
		if t.time != nil {
			sum += *t.time
		}
		t.time = &sum
	}
	if most(s.Longest, t.longest) < 0 {
		t.longest = s.Longest
	}
}

// taken adds up what others took from a lane's CPUs in the last second, and since the start.
func (m model) taken(l laneNow) (last, all taken) {
	for _, s := range m.sources(l) {
		if !s.Own {
			last.add(s.last)
			all.add(s.Source)
		}
	}
	return last, all
}

// sorted returns the lanes in the order in which they are shown.
func (m model) sorted() []laneNow {
	all := slices.Clone(m.lanes)
	slices.SortStableFunc(all, func(a, b laneNow) int {
		aLast, aAll := m.taken(a)
		bLast, bAll := m.taken(b)
		by := 0
		switch m.order {
		case byAll:
			by = most(aAll.time, bAll.time)
		case byNow:
			by = most(aLast.time, bLast.time)
		case byLongest:
			by = most(aAll.longest, bAll.longest)
		default: // by name
		}
		return cmp.Or(by, cmp.Compare(a.Name, b.Name))
	})
	return all
}
