package prove

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/factor/boot"
	factornoise "isolane.dev/isolane/factor/noise"
	"isolane.dev/isolane/factor/placement"
	"isolane.dev/isolane/factor/runtime"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/probe/cyclictest"
	"isolane.dev/isolane/probe/rtla"
	"isolane.dev/isolane/probe/wakeup"
	"isolane.dev/isolane/prove/layout"
	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/prove/schedule"
	"isolane.dev/isolane/prove/testbed"
	"isolane.dev/isolane/results"
)

// Environments of one machine.
func ordinary(id string) results.Environment {
	return results.Environment{Kernel: "6.12.57+deb13-amd64 #1 SMP PREEMPT_DYNAMIC Debian", Cmdline: "BOOT_IMAGE=/a quiet",
		BootID: id, CPUModel: "one", Online: cpuset.MustParse("0-3")}
}

func realTime(id string) results.Environment {
	e := ordinary(id)
	e.Kernel, e.Cmdline = "6.12.57+deb13-rt-amd64 #1 SMP PREEMPT_RT Debian", "BOOT_IMAGE=/b quiet"
	return e
}

const bootFactors = "[{name: placement, levels: [floating, lane]}, {name: kernel, kind: boot, levels: [as-booted, {name: rt, realtime: true}]}]"

func perBoot(t *testing.T, factors, baseline string) scenario.Scenario {
	t.Helper()
	s, err := scenario.Parse("test", strings.NewReader("{apiVersion: isolane.dev/v1alpha3, kind: Scenario, metadata: {name: test}, spec: {"+
		"factors: "+factors+", baseline: "+baseline+", lane: {cpus: {count: 1}}, probes: [{name: w, kind: wakeup}], "+
		"modes: {quick: {blocks: 2, windows: {wakeup: {measure: 1s}}}}}}"), scenario.Drivers{
		Factors: []factor.Driver{placement.Driver{}, boot.Driver{}}, Probes: []probe.Driver{wakeup.Driver{}}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// begin enters a session in a boot, and returns what is to be measured in it.
func begin(t *testing.T, sc scenario.Scenario, s *results.Session, now results.Environment, resume bool) ([]schedule.Slot, error) {
	t.Helper()
	r := runner{Bed: testbed.Bed{Scenario: sc}}
	if err := r.enter(Options{Dir: "d", Resume: resume}, s, now); err != nil {
		return nil, err
	}
	r.Layouts = map[string]layout.Layout{}
	for _, c := range s.Cells {
		if r.boots.Here(c) {
			r.Layouts[c.Name] = layout.Layout{}
		}
	}
	todo := r.todo(s)
	for _, k := range todo {
		s.Runs = append(s.Runs, results.Run{Block: k.Block, Cell: k.Cell, Boot: r.boots.Number})
	}
	return todo, nil
}

func names(todo []schedule.Slot, block int) string {
	var all []string
	for _, k := range todo {
		if k.Block == block {
			all = append(all, k.Cell)
		}
	}
	if len(all) == 2 && all[0] > all[1] {
		all[0], all[1] = all[1], all[0]
	}
	return strings.Join(all, " ")
}

// Of each boot all blocks of its cells are measured; what waits is said, and what was measured stays.
func TestBoots(t *testing.T) {
	sc := perBoot(t, bootFactors, "floating-as-booted")
	s := results.Session{Scenario: results.Scenario{Blocks: 2, Seed: 3}, Environment: ordinary("1"), Cells: sc.AllCells()}
	todo, err := begin(t, sc, &s, ordinary("1"), false)
	if err != nil || len(todo) != 6 || names(todo, 1) != "floating-as-booted lane-as-booted" {
		t.Fatalf("%v, %v", todo, err)
	}
	if len(s.Awaits) != 1 || len(s.Awaits[0].Cells) != 2 || !strings.HasPrefix(s.Awaits[0].Boot, "a real-time kernel") {
		t.Errorf("awaits %+v", s.Awaits)
	}

	// the same kernel again, and another without what is awaited: nothing waits for them
	updated := ordinary("2")
	updated.Kernel = "6.12.60 #2"
	for _, now := range []results.Environment{ordinary("1"), ordinary("2"), updated} {
		var awaits *schedule.AwaitsError
		refused := s
		if _, err = begin(t, sc, &refused, now, true); !errors.As(err, &awaits) || awaits.Dir != "d" ||
			!strings.HasPrefix(err.Error(), "2 of 4 cells wait for another boot: 2 for a real-time kernel") {
			t.Errorf("%v", err)
		}
	}
	// another kernel, in which the session is interrupted and goes on after a reboot
	todo, err = begin(t, sc, &s, realTime("3"), true)
	if err != nil || len(todo) != 6 || names(todo, 0) != "floating-rt lane-rt" || len(s.Awaits) != 0 {
		t.Fatalf("%v, %v", todo, err)
	}
	if len(s.Boots) != 2 || s.BootOf(s.Runs[0]).BootID != "1" || s.BootOf(s.Runs[6]).BootID != "3" {
		t.Errorf("boots %+v", s.Boots)
	}
	if len(s.Notes) != 0 {
		t.Errorf("notes %q", s.Notes)
	}
	s.Runs = s.Runs[:9] // block 1 is cut
	todo, err = begin(t, sc, &s, realTime("4"), true)
	if err != nil || len(todo) != 6 || todo[0].Block != 0 || todo[2].Block != 1 || s.Runs[8].Dropped != schedule.Cut || s.Runs[7].Dropped != "" || s.Runs[12].Boot != 2 {
		t.Errorf("%v, %v, %+v", todo, err, s.Runs)
	}
	if len(s.Notes) != 1 || !strings.Contains(s.Notes[0], "rebooted within the session") {
		t.Errorf("notes %q", s.Notes)
	}
	if left, later := schedule.Remaining(s, schedule.Boots{}); len(left)+len(later) != 0 {
		t.Error("something is left")
	}
}

// A session that is cut in one boot may go on in another first.
func TestBootsInAnyOrder(t *testing.T) {
	sc := perBoot(t, bootFactors, "floating-as-booted")
	s := results.Session{Scenario: results.Scenario{Blocks: 2, Seed: 3}, Environment: ordinary("1"), Cells: sc.AllCells()}
	if _, err := begin(t, sc, &s, ordinary("1"), false); err != nil {
		t.Fatal(err)
	}
	s.Runs = s.Runs[:3]
	if todo, err := begin(t, sc, &s, realTime("2"), true); err != nil || len(todo) != 6 {
		t.Fatalf("%v, %v", todo, err)
	}
	if len(s.Awaits) != 1 || !strings.Contains(s.Awaits[0].Boot, `what the session began with (kernel 6.12.57+deb13-amd64`) {
		t.Errorf("awaits %+v", s.Awaits)
	}
	other := ordinary("3")
	other.Kernel = "6.12.60 #2"
	if _, err := begin(t, sc, &s, other, true); err == nil || !strings.Contains(err.Error(), "boot kernel 6.12.57") {
		t.Errorf("another kernel for the same cells: %v", err)
	}
	if todo, err := begin(t, sc, &s, ordinary("3"), true); err != nil || len(todo) != 6 || todo[0].Block != 0 || len(s.Awaits) != 0 {
		t.Errorf("%v, %v", todo, err)
	}
}

// Several boots a level: the blocks are spread over them in turns of all levels, each with a warm-up block; what
// is out of turn is refused.
func TestSeveralBoots(t *testing.T) {
	sc := perBoot(t, bootFactors, "floating-as-booted")
	s := results.Session{Scenario: results.Scenario{Blocks: 5, Boots: 2, Seed: 3}, Environment: ordinary("1"), Cells: sc.AllCells()}
	awaits := func() (all string) {
		for _, a := range s.Awaits {
			all += fmt.Sprintf("%d times %.20s; ", max(1, a.Boots), a.Boot)
		}
		return all
	}
	blocks := func(todo []schedule.Slot) (all []int) {
		for _, k := range todo {
			all = append(all, k.Block)
		}
		return slices.Compact(all)
	}
	const rt, first, same = "a real-time kernel (", "what the session beg", "the same again"
	for i, c := range []struct {
		now    results.Environment
		blocks []int // that are measured; nil: nothing is
		awaits string
	}{
		{ordinary("1"), []int{0, 1, 2, 3}, "2 times " + rt + "; 1 times " + same + "; "},
		{ordinary("2"), nil, ""},
		{realTime("3"), []int{0, 1, 2, 3}, "1 times " + first + "; 1 times " + same + "; "},
		{realTime("3"), nil, ""},
		{ordinary("1"), nil, ""}, // it had its share in this boot
		{realTime("4"), []int{0, 4, 5}, "1 times " + first + "; "},
		{ordinary("5"), []int{0, 4, 5}, ""},
	} {
		before := s
		todo, err := begin(t, sc, &s, c.now, i > 0)
		if c.blocks == nil {
			var waits *schedule.AwaitsError
			if !errors.As(err, &waits) {
				t.Errorf("boot %d: %v, %v", i, todo, err)
			}
			s = before
			continue
		}
		if err != nil || !slices.Equal(blocks(todo), c.blocks) || awaits() != c.awaits {
			t.Errorf("boot %d: blocks %v, awaits %s, %v", i, blocks(todo), awaits(), err)
		}
	}
	if len(s.Runs) != 2*2*(5+2) || len(s.Notes) != 0 {
		t.Errorf("%d runs, notes %q", len(s.Runs), s.Notes)
	}
	s.Runs = s.Runs[:len(s.Runs)-1] // the last block is cut by a reboot, and goes on in another boot
	if todo, err := begin(t, sc, &s, ordinary("6"), true); err != nil || !slices.Equal(blocks(todo), []int{0, 5}) {
		t.Errorf("after a reboot: %v, %v", todo, err)
	}
}

// The default cells of realtime need no reboot on any kernel, and all of them one.
func TestRealtimeCells(t *testing.T) {
	sc, err := Load("realtime", scenario.Drivers{
		Factors: []factor.Driver{placement.Driver{}, factornoise.Driver{}, runtime.Driver{}, boot.Driver{}},
		Probes:  []probe.Driver{wakeup.Driver{}, cyclictest.Driver{}, rtla.Driver{}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cells  []string
		now    results.Environment
		awaits int
	}{{nil, ordinary("1"), 0}, {nil, realTime("1"), 0}, {[]string{"all"}, ordinary("1"), 18}, {[]string{"all"}, realTime("1"), 0}} {
		cells, err := sc.Cells(c.cells)
		if err != nil {
			t.Fatal(err)
		}
		s := results.Session{Scenario: results.Scenario{Blocks: 1}, Environment: c.now, Cells: cells}
		todo, err := begin(t, sc, &s, c.now, false)
		if waiting := len(s.Cells) - len(todo)/2; err != nil || waiting != c.awaits || waiting > 0 != (len(s.Awaits) > 0) {
			t.Errorf("%s on %s: %d of %d wait, %v", c.cells, c.now.Kernel, waiting, len(s.Cells), err)
		}
	}
}

// Where the session begins with what a level asks for, "as booted" is that.
func TestBootsAlike(t *testing.T) {
	sc := perBoot(t, bootFactors, "floating-as-booted")
	s := results.Session{Scenario: results.Scenario{Blocks: 1, Seed: 3}, Environment: realTime("1"), Cells: sc.AllCells()}
	todo, err := begin(t, sc, &s, realTime("1"), false)
	if err != nil || len(todo) != 8 || len(s.Awaits) != 0 || len(s.Notes) != 1 || s.Notes[0] != "kernel: the session began with rt, so as-booted is the same here." {
		t.Errorf("%v, %v, %+v %q", todo, err, s.Awaits, s.Notes)
	}
}

// Of two factors each cell is told both that it wants.
func TestBootsOfTwoFactors(t *testing.T) {
	sc := perBoot(t, "[{name: kernel, kind: boot, levels: [as-booted, {name: rt, realtime: true}]}, "+
		"{name: line, kind: boot, levels: [plain, {name: isolated, cmdline: isolcpus=2}]}]", "as-booted-plain")
	s := results.Session{Scenario: results.Scenario{Blocks: 1}, Environment: ordinary("1"), Cells: sc.AllCells()}
	if todo, err := begin(t, sc, &s, ordinary("1"), false); err != nil || len(todo) != 2 {
		t.Fatal(todo, err)
	}
	var got []string
	for _, a := range s.Awaits {
		got = append(got, strings.Join(a.Cells, " ")+": "+strings.Replace(a.Boot, "arm64", "amd64", 1))
	}
	want := "rt-plain: a real-time kernel (Debian: apt-get install linux-image-rt-amd64), line as when the session began\n" +
		"as-booted-isolated: isolcpus=2 on the kernel's command line, kernel as when the session began\n" +
		"rt-isolated: a real-time kernel (Debian: apt-get install linux-image-rt-amd64), isolcpus=2 on the kernel's command line"
	if strings.Join(got, "\n") != want {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
	both := realTime("2")
	both.Cmdline += " isolcpus=2"
	if todo, err := begin(t, sc, &s, both, true); err != nil || names(todo, 1) != "rt-isolated" || len(s.Awaits) != 2 {
		t.Error(todo, err, s.Awaits)
	}
}

// A session that nothing can be measured of is refused before anything is stored, and so is what cannot be
// told apart.
func TestBootsRefuse(t *testing.T) {
	sc := perBoot(t, "[{name: kernel, kind: boot, levels: [{name: rt, realtime: true}, {name: isolated, cmdline: isolcpus=2}]}]", "rt")
	s := results.Session{Scenario: results.Scenario{Blocks: 1}, Environment: ordinary("1"), Cells: sc.AllCells()}
	var awaits *schedule.AwaitsError
	if _, err := begin(t, sc, &s, ordinary("1"), false); !errors.As(err, &awaits) || awaits.Dir != "" || len(awaits.Awaits) != 2 {
		t.Errorf("%v", err)
	}
	both := realTime("1")
	both.Cmdline += " isolcpus=2"
	s.Environment = both
	if _, err := begin(t, sc, &s, both, false); !errors.Is(err, ErrInput) || !errors.Is(err, boot.ErrSeveral) {
		t.Errorf("%v", err)
	}
}

// A reboot within a session whose factors know nothing of boots: what was measured stays, the block that was
// cut is measured again, and another kernel or command line is refused.
func TestReboot(t *testing.T) {
	sc := perBoot(t, "[{name: placement, levels: [floating, lane]}]", "floating")
	made := func() results.Session {
		s := results.Session{Scenario: results.Scenario{Blocks: 2, Seed: 3}, Environment: ordinary("1"), Cells: sc.AllCells()}
		if _, err := begin(t, sc, &s, ordinary("1"), false); err != nil {
			t.Fatal(err)
		}
		s.Runs = s.Runs[:3]
		return s
	}
	s := made()
	again := ordinary("2")
	again.Cmdline = "BOOT_IMAGE=(hd1)/a quiet"
	for range 2 { // and once more, after a second interruption
		s.Runs = s.Runs[:3]
		todo, err := begin(t, sc, &s, again, true)
		if err != nil || len(todo) != 6 || s.Runs[2].Dropped != schedule.Cut || s.Runs[1].Dropped == schedule.Cut || len(s.Boots) != 2 || s.Runs[3].Boot != 1 {
			t.Errorf("%v, %v, %+v", todo, err, s)
		}
		if len(s.Notes) != 1 {
			t.Errorf("notes %q", s.Notes)
		}
	}
	for name, change := range map[string]func(*results.Environment){
		"another kernel, command line":  func(e *results.Environment) { e.Kernel = realTime("").Kernel },
		"command line or CPUs: boot":    func(e *results.Environment) { e.Cmdline += " isolcpus=2" },
		"and CPUs 0-3 to go on":         func(e *results.Environment) { e.Online = cpuset.MustParse("0-1") },
		"measured on another machine (": func(e *results.Environment) { e.CPUModel = "two" },
	} {
		s, now := made(), ordinary("2")
		change(&now)
		if _, err := begin(t, sc, &s, now, true); err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
