package top

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/terminal"
	"isolane.dev/isolane/test/golden"
	"isolane.dev/isolane/watch"
	"isolane.dev/isolane/witness"
)

func pointer[T any](v T) *T { return &v }

func took(kind, name string, cpu int, count uint64, total, longest time.Duration) witness.Source {
	return witness.Source{Kind: kind, Name: name, CPU: cpu, Count: &count, Remedy: "bind " + name + " to the housekeeping CPUs",
		Total: pointer(results.Nanoseconds(total)), P99: pointer(results.Nanoseconds(longest)),
		Longest: pointer(results.Nanoseconds(longest))}
}

// figures returns those of a host with two lanes, one of which is disturbed.
func figures() now {
	own := took("interrupt", "eth0-rx-0", 2, 7000, 70*time.Millisecond, 12*time.Microsecond)
	own.IRQ, own.Own = pointer(41), true
	cron := took("task", "cron", 3, 3, 4200*time.Microsecond, 1234*time.Microsecond)
	cron.TID, cron.Cgroup = 612, "/system.slice/cron.service"
	tick := took("tick", "", 2, 4, 9*time.Microsecond, 3*time.Microsecond)
	ticks := took("tick", "", 2, 700, 2*time.Millisecond, 14*time.Microsecond)
	steal := witness.Source{Kind: results.Steal, CPU: 7, Total: pointer(results.Nanoseconds(time.Second))}
	n := now{lanes: []laneNow{
		{enforce.LaneStatus{Name: "db", CPUs: "7", Processes: 1}, cpuset.Of(7)},
		{enforce.LaneStatus{Name: "web", CPUs: "2-3", Idle: "10-11", Processes: 12, Objectives: []lane.Judgement{
			{Bound: lane.Bound{Metric: "rtt", Percentile: "p99", MaxNanoseconds: 100_000}, Verdict: lane.Held},
			{Bound: lane.Bound{Metric: "rtt", Percentile: "max", MaxNanoseconds: 1_000_000}, Verdict: lane.Unproven}}},
			cpuset.Of(2, 3, 10, 11)}}}
	lost := []watch.Traffic{{Lane: "web", Traffic: netpath.Traffic{Received: 900, Sent: 800, Dropped: 7, Refused: 2}}}
	n.Reading = watch.Reading{Host: "edge1", At: time.Date(2026, 11, 23, 10, 0, 1, 0, time.Local), CPUs: cpuset.Of(2, 3, 7, 10, 11),
		Window: 1e9, Sources: []witness.Source{tick}, Traffic: lost, SinceStart: watch.SinceStart{Window: 75e9,
			Sources: []witness.Source{cron, ticks, steal, own}, Traffic: lost},
		Drift: []enforce.Drift{{Name: "/proc/irq/9/smp_affinity_list", Expected: "0", Found: "3", By: "irqbalance (612)"}}}
	return n
}

// after returns a model after messages; a text is a key.
func after(t *testing.T, m model, messages ...any) model {
	t.Helper()
	for _, msg := range messages {
		if name, is := msg.(string); is {
			k := tea.Key{Code: []rune(name)[0], Text: name}
			switch name {
			case "up":
				k = tea.Key{Code: tea.KeyUp}
			case "down":
				k = tea.Key{Code: tea.KeyDown}
			case "enter":
				k = tea.Key{Code: tea.KeyEnter}
			case "esc":
				k = tea.Key{Code: tea.KeyEscape}
			}
			msg = tea.KeyPressMsg(k)
		}
		next, _ := m.Update(msg)
		m = next.(model)
	}
	return m
}

// Each view fits into the window, whatever its size.
func TestView(t *testing.T) {
	views := map[string][]any{"waits": nil, "none": {now{Reading: watch.Reading{At: figures().At}}}, "lanes": {figures()}, "sources": {figures(), "enter", "down"}, "help": {figures(), "h"}}
	for _, width := range []int{40, 80} {
		for name, messages := range views {
			m := after(t, model{}, append([]any{tea.WindowSizeMsg{Width: width, Height: 24}}, messages...)...)
			golden.Check(t, filepath.Join("testdata", fmt.Sprintf("%s-%d.want.txt", name, width)), []byte(m.View().Content+"\n"))
		}
	}
	many := figures()
	for i := range 40 {
		many.lanes = append(many.lanes, laneNow{enforce.LaneStatus{Name: fmt.Sprint("lane-with-a-long-name-", i), CPUs: "5"}, cpuset.Of(5)})
		many.Warnings = append(many.Warnings, "no eBPF: what took a CPU's time is known by names only")
		many.SinceStart.Sources = append(many.SinceStart.Sources, took("task", "测试", 7, 1, time.Duration(i), 5))
	}
	for _, colour := range []bool{false, true} {
		for _, width := range []int{1, 20, 40, 80, 200} {
			for _, height := range []int{1, 10, 24, 60} {
				for _, keys := range [][]any{{"G"}, {"enter", "G"}, {"h"}} {
					m := after(t, model{colour: colour}, append([]any{tea.WindowSizeMsg{Width: width, Height: height}, many}, keys...)...)
					lines := strings.Split(m.View().Content, "\n")
					if len(lines) > height {
						t.Errorf("%d×%d, %q: %d lines", width, height, keys, len(lines))
					}
					for _, line := range lines {
						if terminal.Width(line) > width {
							t.Errorf("%d×%d, %q: too wide: %q", width, height, keys, line)
						}
					}
					if m.chosenIsHidden(lines) && width >= 40 && height >= 24 && keys[0] != "h" {
						t.Errorf("%d×%d, %q: what is chosen is not in\n%s", width, height, keys, strings.Join(lines, "\n"))
					}
				}
			}
		}
	}
}

func (m model) chosenIsHidden(lines []string) bool {
	for _, line := range lines {
		if strings.HasPrefix(plain(line), "> ") {
			return false
		}
	}
	return true
}

func TestKeys(t *testing.T) {
	start := after(t, model{}, tea.WindowSizeMsg{Width: 80, Height: 24}, figures())
	for _, c := range []struct {
		name string
		keys []any
		want string // lane, source, order, and what else is so
	}{
		{"the most disturbed is first", nil, "web  in all"},
		{"down", []any{"down"}, "db  in all"},
		{"no further than the last", []any{"j", "j", "down"}, "db  in all"},
		{"and up", []any{"j", "k", "up"}, "web  in all"},
		{"sources", []any{"enter"}, "web 3 task cron (612) in /system.slice/cron.service in all open"},
		{"the next source", []any{"enter", "down"}, "web 2 tick in all open"},
		{"back", []any{"enter", "down", "esc"}, "web  in all"},
		{"back by Enter", []any{"enter", "enter"}, "web  in all"},
		{"sorted", []any{"s"}, "web  last second"},
		{"sorted by name, with what was chosen", []any{"s", "s", "s"}, "web  name"},
		{"and again", []any{"s", "s", "s", "s"}, "web  in all"},
		{"paused", []any{"p", now{}}, "web  in all paused"},
		{"goes on", []any{"p", "p", now{}}, "  in all"},
		{"help", []any{"h"}, "web  in all help"},
		{"any key ends it, and is none", []any{"h", "down"}, "web  in all"},
		{"its lane is gone", []any{"enter", now{lanes: figures().lanes[:1]}}, "db  in all open"},
		{"all are", []any{"enter", now{}}, "  in all"},
	} {
		m := after(t, start, c.keys...)
		got := fmt.Sprint(m.lane, " ", m.source, " ", m.order)
		for _, is := range []struct {
			so   bool
			name string
		}{{m.open, "open"}, {m.paused, "paused"}, {m.help, "help"}} {
			if is.so {
				got += " " + is.name
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if _, cmd := start.Update(tea.KeyPressMsg{Code: 'q', Text: "q"}); cmd == nil || cmd() != tea.Quit() {
		t.Error("q does not quit")
	}
}

// A repaired drift stays readable for a while; other drift goes when the setting is in force again.
func TestDrift(t *testing.T) {
	n := figures()
	n.Drift[0].Repaired = true
	m := after(t, model{}, tea.WindowSizeMsg{Width: 120, Height: 24}, n, figures())
	clean := figures()
	clean.Drift = nil
	for _, step := range []struct {
		m         model
		put, left bool
	}{{m, true, true}, {after(t, m, clean), true, false}} {
		text := step.m.View().Content
		if got := strings.Contains(text, "irqbalance (612): put back"); got != step.put {
			t.Errorf("put back: %t, want %t:\n%s", got, step.put, text)
		}
		if got := strings.Count(text, "irqbalance (612)") == 2; got != step.left {
			t.Errorf("left: %t, want %t:\n%s", got, step.left, text)
		}
	}
}
