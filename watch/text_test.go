package watch

import (
	"bytes"
	"path/filepath"
	"testing"
	"time"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/terminal"
	"isolane.dev/isolane/test/golden"
	"isolane.dev/isolane/witness"
)

func pointer[T any](v T) *T { return &v }

// source is one that took a time so often.
func source(kind, name string, count uint64, total, longest time.Duration) witness.Source {
	return witness.Source{Kind: kind, Name: name, CPU: 3, Count: &count, Remedy: "isolane apply",
		Total: pointer(results.Nanoseconds(total)), P99: pointer(results.Nanoseconds(longest)),
		Longest: pointer(results.Nanoseconds(longest))}
}

func readings() []Reading {
	tick, timer := source("tick", "", 4, 9*time.Microsecond, 3*time.Microsecond),
		source("task", "cron", 1, 1234*time.Microsecond, 1234*time.Microsecond)
	own := source("interrupt", "eth0-rx-0", 7, 70*time.Microsecond, 12*time.Microsecond)
	own.IRQ, own.Own = pointer(41), true
	steal := witness.Source{Kind: results.Steal, CPU: 3, Total: pointer(results.Nanoseconds(time.Second))}
	at := time.Date(2026, 11, 22, 10, 0, 1, 0, time.Local)
	drift := enforce.Drift{Name: "/proc/irq/9/smp_affinity_list", Expected: "0", Found: "3", By: "irqbalance (612)",
		Repaired: true}
	first := Reading{At: at.UTC(), CPUs: cpuset.Of(3), Window: 1e9, Sources: []witness.Source{tick, own},
		SinceStart: SinceStart{Window: 1e9, Sources: []witness.Source{tick, own}}, Fresh: []enforce.Drift{drift}}
	lost := Traffic{"web", netpath.Traffic{Received: 900, Sent: 800, Dropped: 7, Refused: 2}}
	first.Traffic, first.SinceStart.Traffic = []Traffic{lost}, []Traffic{lost}
	last := first
	last.At, last.Final, last.Fresh = at.Add(time.Second).UTC(), true, nil
	last.Warnings = []string{"no eBPF: what took a CPU's time is known by names only"}
	last.Sources = nil
	last.Traffic = []Traffic{{Lane: "web"}}
	last.SinceStart = SinceStart{Window: 2e9, Traffic: []Traffic{lost}, Sources: []witness.Source{timer, tick, steal, own}}
	return []Reading{first, last}
}

// Without a terminal a reading is a line, drift too, and the last one is the table; narrow ones leave figures out.
func TestShow(t *testing.T) {
	for _, columns := range []string{"60", "100"} {
		t.Setenv("COLUMNS", columns)
		var b bytes.Buffer
		d := NewDisplay(&b, 100*time.Microsecond)
		for _, r := range readings() {
			if err := d.Show(r); err != nil {
				t.Fatal(err)
			}
		}
		d.Close()
		golden.Check(t, filepath.Join("testdata", "show-"+columns+".want.txt"), b.Bytes())
	}
}

// On a screen, the sources that took least are left out where there is no room.
func TestPictureFits(t *testing.T) {
	r := readings()[1]
	for range 40 {
		r.SinceStart.Sources = append(r.SinceStart.Sources, source("task", "cron", 1, time.Millisecond, time.Millisecond))
	}
	d := &Display{screen: true}
	for _, height := range []int{8, 24, 49} {
		text := d.picture(terminal.Terminal{Columns: 100}, r, height)
		if lines := bytes.Count([]byte(text), []byte("\n")); lines > height {
			t.Errorf("%d lines in %d:\n%s", lines, height, text)
		}
	}
}

// The budget holds for what is not the lanes' own; steal has no longest.
func TestVerdict(t *testing.T) {
	sources := readings()[1].SinceStart.Sources
	for budget, want := range map[time.Duration]string{
		0: "", 2 * time.Millisecond: "",
		100 * time.Microsecond: "the budget of 100µs is exceeded by 1 source: task cron took CPU 3 for 1.23 ms",
		time.Microsecond:       "the budget of 1µs is exceeded by 2 sources: task cron took CPU 3 for 1.23 ms",
	} {
		w := Watch{o: Options{Budget: budget}}
		if err := w.verdict(sources); (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%s: %v, want %q", budget, err, want)
		}
	}
}

// A device that somebody has deleted was found as nothing, which is said.
func TestDriftOfWhatIsGone(t *testing.T) {
	at := time.Date(2026, 11, 22, 10, 0, 1, 0, time.Local)
	want := "10:00:01 drift: device eth0: expected veth, found nothing"
	if got := DriftText(at, enforce.Drift{Name: "device eth0", Expected: "veth"}); got != want {
		t.Errorf("got %q, expected %q", got, want)
	}
}
