package prove

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/factor/boot"
	"isolane.dev/isolane/factor/placement"
	"isolane.dev/isolane/factor/runtime"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/probe/wakeup"
	"isolane.dev/isolane/prove/layout"
	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/prove/testbed"
	"isolane.dev/isolane/results"
)

// choosy is a probe that needs a file of the host's kernel, and has no place in a guest.
type choosy struct{ wakeup.Probe }

func (choosy) Missing(_ context.Context, root fs.FS) (what, remedy string) {
	if _, err := fs.Stat(root, "sys/tracer"); err != nil {
		return "this kernel has no tracer", "boot another"
	}
	return "", ""
}

func (choosy) OnHost() string { return "it is of the host" }

type choosyDriver struct{ wakeup.Driver }

func (choosyDriver) Name() string { return "choosy" }

func (d choosyDriver) Read(settings []byte) (probe.Probe, error) {
	p, err := d.Driver.Read(settings)
	if err != nil {
		return nil, err
	}
	return choosy{p.(wakeup.Probe)}, nil
}

func optional(t *testing.T, fields string) (scenario.Scenario, error) {
	t.Helper()
	text := "{apiVersion: isolane.dev/v1alpha3, kind: Scenario, metadata: {name: test}, spec: {" +
		"factors: [{name: runtime, levels: [host, container]}, {name: kernel, kind: boot, levels: [as-booted, {name: rt, realtime: true}]}], " +
		"baseline: host-as-booted, lane: {cpus: {count: 1}}, probes: [{name: w, kind: wakeup}, {name: t, kind: choosy, " + fields + "}], " +
		"modes: {quick: {blocks: 2, windows: {wakeup: {measure: 1s}, choosy: {measure: 3s}}}}}}"
	return scenario.Parse("test", strings.NewReader(text), scenario.Drivers{
		Factors: []factor.Driver{placement.Driver{}, boot.Driver{}, runtime.Driver{}}, Probes: []probe.Driver{wakeup.Driver{}, choosyDriver{}}})
}

func TestLeaveOut(t *testing.T) {
	if _, err := optional(t, "interval: 1ms"); err == nil || !strings.Contains(err.Error(), "cell container-as-booted: it is of the host: expected optional: true") {
		t.Errorf("in a container: %v", err)
	}
	sc, err := optional(t, "optional: true")
	if err != nil {
		t.Fatal(err)
	}
	without, with := fstest.MapFS{}, fstest.MapFS{"sys/tracer": &fstest.MapFile{}}
	s := results.Session{Scenario: results.Scenario{Blocks: 2, Seed: 3}, Environment: ordinary("1"), Cells: sc.AllCells()}
	// enter begins or goes on in a boot, and says which probes each cell of it has.
	enter := func(s *results.Session, now results.Environment, root fs.FS, resume bool) (string, error) {
		t.Helper()
		r := runner{Bed: testbed.Bed{Scenario: sc, Kinds: scenario.Drivers{Probes: []probe.Driver{wakeup.Driver{}, choosyDriver{}}},
			Mode: sc.Spec.Modes["quick"], Layouts: map[string]layout.Layout{}}}
		o := Options{Dir: "d", Resume: resume, Root: root}
		if rerr := r.enter(o, s, now); rerr != nil {
			return "", rerr
		}
		for _, c := range s.Cells {
			if r.boots.Here(c) {
				r.Layouts[c.Name] = layout.Layout{}
			}
		}
		if rerr := r.leaveOut(t.Context(), o, s); rerr != nil {
			return "", rerr
		}
		var all []string
		for _, c := range s.Cells {
			if _, here := r.Layouts[c.Name]; !here {
				continue
			}
			probes, perr := r.ProbesOf(c, sc.Conditions(c))
			if perr != nil {
				t.Fatal(perr)
			}
			all = append(all, c.Name)
			for _, p := range probes {
				all = append(all, p.Name)
			}
		}
		s.Runs = append(s.Runs, results.Run{Block: 0, Cell: all[0], Boot: r.boots.Number})
		return strings.Join(all, " "), nil
	}
	const neither, both = "host-as-booted w container-as-booted w", "host-rt w t container-rt w"
	got, err := enter(&s, ordinary("1"), without, false)
	if err != nil || got != neither || len(s.LeftOut) != 1 || len(s.LeftOut[0].Cells) != 2 {
		t.Fatalf("%s, %v, %+v", got, err, s.LeftOut)
	}
	if len(s.Notes) != 1 || s.Notes[0] != "t is left out: this kernel has no tracer: boot another." {
		t.Errorf("notes %q", s.Notes)
	}
	// What was begun goes on without it, also where it could run now.
	if got, err = enter(&s, ordinary("2"), with, true); err != nil || got != neither || len(s.LeftOut) != 1 {
		t.Errorf("%s, %v, %+v", got, err, s.LeftOut)
	}
	// Another boot is asked again.
	if got, err = enter(&s, realTime("3"), with, true); err != nil || got != both || len(s.LeftOut) != 2 {
		t.Fatalf("%s, %v, %+v", got, err, s.LeftOut)
	}
	if last := s.Notes[len(s.Notes)-1]; last != "t is left out in 1 of 2 cells: it is of the host." {
		t.Errorf("notes %q", s.Notes)
	}
	// What was begun with it does not go on without.
	var missing *MissingError
	if _, err = enter(&s, realTime("4"), without, true); !errors.As(err, &missing) || missing.Remedy != "boot another" {
		t.Errorf("begun with it: %v", err)
	}
	stored, err := sc.Spec.Probes[1].MarshalJSON()
	if err != nil || !strings.Contains(string(stored), `"optional":true`) {
		t.Errorf("stored as %s, %v", stored, err)
	}
}
