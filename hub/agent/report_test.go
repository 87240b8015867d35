package agent

import (
	"encoding/json"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/plan"
)

// A change on the host is reported: what is free at once, the rest a minute after the last report.
func TestMoved(t *testing.T) {
	a := &Agent{o: Options{Lanes: lanes.Options{Dir: filepath.Join(t.TempDir(), "lanes")}}}
	l, err := lanes.Look(a.o.Lanes)
	if err != nil {
		t.Fatal(err)
	}
	room, err := l.Free()
	if err != nil {
		t.Fatal(err)
	}
	is, err := a.look(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	if a.cost <= 0 || a.pause() < glanceInterval/2 {
		t.Errorf("a look has taken %s of a CPU, the next is after %s", a.cost, a.pause())
	}
	for _, row := range []struct {
		name, free, planned string
		since               time.Duration
		cost                time.Duration // what the last look, just now, has cost
		moved               bool
	}{
		{"as it was", room.CPUs.String(), is.planned, glanceInterval, 0, false},
		{"less is free", "1000", is.planned, 0, time.Second, true},
		{"another device", room.CPUs.String(), "no devices", glanceInterval, 0, true},
		{"just after", room.CPUs.String(), "no devices", 0, 0, false},
		{"on a large machine", room.CPUs.String(), "no devices", glanceInterval, time.Second, false},
	} {
		// Other programs on this machine may change what an audit finds: that must not matter here.
		a.free, a.planned.text, a.told = row.free, row.planned, time.Now().Add(-row.since)
		a.looked, a.cost = time.Now().Add(-5*glanceInterval), row.cost
		a.found = detail{text: "anything", pause: longestReportPause}
		if moved := a.changedHere(t.Context()); moved != row.moved {
			t.Errorf("%s: found moved %t", row.name, moved)
		}
	}
}

// What a look has found is reported without another look, unless the report comes late.
func TestSeen(t *testing.T) {
	a := &Agent{o: Options{Lanes: lanes.Options{Dir: filepath.Join(t.TempDir(), "lanes")}, Log: slog.New(slog.DiscardHandler)}}
	l, err := lanes.Look(a.o.Lanes)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name    string
		ago     time.Duration
		changed bool
		again   bool
	}{
		{"just now", 0, false, false},
		{"something has changed", 0, true, true},
		{"the hub was away meanwhile", glanceInterval, false, true},
	} {
		a.seen, a.looked = &details{found: "seen"}, time.Now().Add(-row.ago)
		d, err := a.details(t.Context(), l, row.changed)
		if again := d.found != "seen"; err != nil || again != row.again || a.seen != nil {
			t.Errorf("%s: looked again %t, error %v, still seen %v", row.name, again, err, a.seen)
		}
	}
}

// The hub plans with everything about a machine except what changes all the time.
func TestCounted(t *testing.T) {
	machine := func() lanes.Machine {
		m := lanes.Machine{Lanes: []plan.Lane{{Name: "a", CPUs: cpuset.Of(1)}}}
		m.Kernel.Steal, m.Warnings = new(uint64(1)), []string{"one"}
		m.Interrupts = []host.Interrupt{{IRQ: 5, Affinity: new(cpuset.Of(1)), Effective: new(cpuset.Of(1))}}
		m.NUMANodes = []host.NUMANode{{Hugepages: []host.Hugepages{{PageBytes: 1 << 21, Total: new(uint64(8)), Free: new(uint64(8))}}}}
		m.PCIDevices = []host.PCIDevice{{Address: "0000:3b:00.0", SRIOV: &host.SRIOV{TotalVFs: 8, NumVFs: 4}}}
		return m
	}
	for _, row := range []struct {
		name   string
		change func(*lanes.Machine)
		counts bool
	}{
		{"time that was stolen", func(m *lanes.Machine) { *m.Kernel.Steal = 2 }, false},
		{"warnings", func(m *lanes.Machine) { m.Warnings = nil }, false},
		{"where interrupts fire", func(m *lanes.Machine) { m.Interrupts[0].Affinity, m.Interrupts[0].Effective = nil, nil }, false},
		{"pages in use", func(m *lanes.Machine) { m.NUMANodes[0].Hugepages[0].Free = new(uint64(7)) }, false},
		{"an interrupt", func(m *lanes.Machine) { m.Interrupts = nil }, true},
		{"pages of the pool", func(m *lanes.Machine) { m.NUMANodes[0].Hugepages[0].Total = new(uint64(7)) }, true},
		{"functions", func(m *lanes.Machine) { m.PCIDevices[0].SRIOV.NumVFs = 0 }, true},
		{"a device", func(m *lanes.Machine) { m.PCIDevices = nil }, true},
		{"a lane on the CPUs of another", func(m *lanes.Machine) { m.Lanes[0].Name = "b" }, true},
	} {
		before, err := counted(machine())
		if err != nil {
			t.Fatal(err)
		}
		m := machine()
		row.change(&m)
		text, err := json.Marshal(m)
		now, cerr := counted(m)
		if err != nil || cerr != nil || (now != before) != row.counts {
			t.Errorf("%s: %v, %v, before %s\nnow %s", row.name, err, cerr, before, now)
		}
		if again, merr := json.Marshal(m); merr != nil || string(again) != string(text) {
			t.Errorf("%s: what is told was changed, %v: %s", row.name, merr, again)
		}
	}
}

// What changes all the time is reported less and less often, and other changes within a minute.
func TestDetail(t *testing.T) {
	var d detail
	d.wasSent("first", true)
	var waits []time.Duration
	for i := range 6 {
		since, text := time.Duration(0), string(rune('a'+i))
		for ; !d.isDue(text, since); since += time.Minute {
		}
		waits = append(waits, since/time.Minute)
		d.wasSent(text, true)
	}
	if want := []time.Duration{1, 2, 4, 8, 10, 10}; !slices.Equal(waits, want) {
		t.Errorf("told after %v minutes, expected %v", waits, want)
	}
	if d.wasSent("f", true); d.isDue("f", longestReportPause) || !d.isDue("g", glanceInterval) {
		t.Errorf("when it was as before: %+v", d)
	}
}

// BenchmarkLook measures the CPU time of a look at the details of this machine, above all of an audit.
func BenchmarkLook(b *testing.B) {
	a := &Agent{o: Options{Lanes: lanes.Options{Dir: filepath.Join(b.TempDir(), "lanes")}, Log: slog.New(slog.DiscardHandler)}}
	l, err := lanes.Look(a.o.Lanes)
	if err != nil {
		b.Fatal(err)
	}
	var all time.Duration
	for b.Loop() {
		if _, err = a.look(b.Context(), l); err != nil {
			b.Fatal(err)
		}
		all += a.cost
	}
	b.ReportMetric(float64(all.Microseconds())/1000/float64(b.N), "CPU-ms/op")
}
