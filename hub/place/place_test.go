package place_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/hub/place"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/solver"
	"isolane.dev/isolane/quantity"
)

var requests = flag.Int("requests", 400, "requests of TestReferee")

// fleet has the hosts as they really are. They change without the hub's knowledge.
type fleet struct {
	hosts map[string]*place.Host
	names []string
	asked int
}

// Reserve uses the planner on the host's real state.
func (f *fleet) Reserve(_ context.Context, name string, l lane.Lane) (plan.Placement, error) {
	f.asked++
	h := f.hosts[name]
	p, err := solver.Solve(h.Machine, h.Placed, []lane.Lane{l})
	if err != nil {
		return h.Placed, err
	}
	h.Placed = p
	return p, nil
}

func (f *fleet) release(name string, i int) {
	h := f.hosts[name]
	h.Placed.Lanes = slices.Delete(slices.Clone(h.Placed.Lanes), i, i+1)
}

func newFleet(tb testing.TB, n int) *fleet {
	tb.Helper()
	f := &fleet{hosts: map[string]*place.Host{}}
	var machines []host.Host
	for _, m := range []hosttest.Machine{
		{Packages: 1, CoresPerPackage: 4, ThreadsPerCore: 2},
		{Packages: 2, CoresPerPackage: 4, ThreadsPerCore: 2, CoresPerL3: 2},
		{Packages: 1, CoresPerPackage: 8, ThreadsPerCore: 1, CoresPerL3: 4},
		{Packages: 2, CoresPerPackage: 8, ThreadsPerCore: 2, NodesPerPackage: 2, CoresPerL3: 4},
	} {
		machines = append(machines, m.Host(tb))
	}
	for i := range n {
		name := fmt.Sprintf("h%04d", i)
		f.names = append(f.names, name)
		f.hosts[name] = &place.Host{Name: name, Site: fmt.Sprint("site", i%3), Machine: machines[i%len(machines)],
			Labels: map[string]string{"rack": fmt.Sprint(i % 2), "name": name}}
	}
	return f
}

func (f *fleet) index(tb testing.TB) *place.Index {
	tb.Helper()
	var x place.Index
	for _, name := range f.names {
		if err := x.Put(*f.hosts[name]); err != nil {
			tb.Fatal(err)
		}
	}
	return &x
}

func ask(name string, n int, smt, within string) lane.Lane {
	l := lane.Lane{Metadata: lane.Metadata{Name: name}, Spec: lane.Spec{CPUs: lane.CPUs{Count: n, SMT: smt}}}
	switch within {
	case "node":
		l.Spec.CPUs.NUMA = lane.One
	case "l3":
		l.Spec.CPUs.L3 = lane.One
	}
	return l
}

// fits is the referee. It counts cores, and shares no code with the planner. A lane's CPUs are threads of
// free cores: one of each with isolate, all of each with pack. The core of CPU 0 is not used.
func fits(h place.Host, n int, smt, within string) bool {
	taken := map[int]bool{}
	for _, l := range h.Placed.Lanes {
		for id := range l.CPUs.All() {
			taken[id] = true
		}
		for id := range l.Idle.All() {
			taken[id] = true
		}
	}
	type core struct{ free, all, domain int }
	cores := map[int]*core{}
	boot := -1
	for _, c := range h.Machine.CPUs {
		id := *c.Core
		if cores[id] == nil {
			domain := 0
			switch within {
			case "node":
				domain = *c.NUMANode
			case "l3":
				domain = *c.L3
			}
			cores[id] = &core{domain: domain}
		}
		cores[id].all++
		if !taken[c.ID] {
			cores[id].free++
		}
		if c.ID == 0 {
			boot = id
		}
	}
	delete(cores, boot)
	most := map[int]int{} // CPUs by domain
	for _, c := range cores {
		switch {
		case smt == lane.Isolate && c.free == c.all:
			most[c.domain]++
		case smt == lane.Pack && c.free == c.all, smt == lane.Any:
			most[c.domain] += c.free
		}
	}
	for _, free := range most {
		threads := len(h.Machine.CPUs) / (len(cores) + 1)
		if free >= n && (smt != lane.Pack || n%threads == 0) {
			return true
		}
	}
	return false
}

// witnessed is a fleet for which the referee records what the hub can know: what hosts have reported and
// answered.
type witnessed struct {
	*fleet
	known map[string]place.Host
}

func (w witnessed) Reserve(ctx context.Context, name string, l lane.Lane) (plan.Placement, error) {
	p, err := w.fleet.Reserve(ctx, name, l)
	w.known[name] = *w.hosts[name]
	return p, err
}

// A referee tries every host: an accepted lane can run there, nothing is reserved twice, and what is refused
// everywhere fits nowhere. Hosts change without the hub's knowledge.
func TestReferee(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	f := newFleet(t, 24)
	x := f.index(t)
	hub := witnessed{f, map[string]place.Host{}}
	for name, h := range f.hosts {
		hub.known[name] = *h
	}
	placed, pending, refused, unknown := 0, 0, 0, 0
	for i := range *requests {
		if rng.IntN(3) > 0 { // without the hub's knowledge
			name := f.names[rng.IntN(len(f.names))]
			if h := f.hosts[name]; len(h.Placed.Lanes) > 0 && rng.IntN(2) == 0 {
				f.release(name, rng.IntN(len(h.Placed.Lanes)))
			} else {
				_, _ = f.Reserve(t.Context(), name, ask(fmt.Sprint("own", i), 1+rng.IntN(6), lane.Any, "")) // fails if there is no room
			}
		}
		if rng.IntN(4) == 0 { // a host reports
			name := f.names[rng.IntN(len(f.names))]
			if err := x.Put(*f.hosts[name]); err != nil {
				t.Fatal(err)
			}
			hub.known[name] = *f.hosts[name]
		}
		n, smt := 1+rng.IntN(12), []string{lane.Any, lane.Isolate, lane.Pack}[rng.IntN(3)]
		within := []string{"", "node", "l3"}[rng.IntN(3)]
		l, w := ask(fmt.Sprint("l", i), n, smt, within), place.Where{}
		if rng.IntN(2) == 0 {
			w = place.Where{Sites: []string{"site1", "site2"}, Labels: map[string]string{"rack": "1"}}
		}
		able := map[string]bool{}
		for name, h := range f.hosts {
			allowed := len(w.Sites) == 0 || h.Site != "site0" && h.Labels["rack"] == "1"
			able[name] = allowed && fits(*h, n, smt, within)
		}
		before := maps.Clone(hub.known)
		d, err := x.Place(t.Context(), l, w, hub)
		if err != nil {
			t.Fatal(err)
		}
		request := fmt.Sprintf("request %d: %d CPUs, smt %s, within %q", i, n, smt, within)
		switch {
		case d.Host != "" && !able[d.Host]:
			t.Fatalf("%s: accepted on %s, which cannot", request, d.Host)
		case d.Host != "":
			placed++
			once(t, f.hosts[d.Host].Placed)
		case d.Pending:
			pending++
		default:
			refused++
			late := false
			for name, can := range able {
				if can && fits(before[name], n, smt, within) {
					t.Fatalf("%s: refused, and fits on %s\n%s", request, name, d.Why())
				}
				late = late || can // there is room of which the hub was not told yet
			}
			if late {
				unknown++
			}
		}
		if len(d.Verdicts) != len(f.names) {
			t.Fatalf("%s: %d verdicts of %d hosts", request, len(d.Verdicts), len(f.names))
		}
	}
	t.Logf("%d placed, %d pending, %d refused, of these %d by what hosts had not reported yet; %d questions",
		placed, pending, refused, unknown, f.asked)
	if *requests >= 400 && (placed == 0 || pending == 0 || refused == 0) {
		t.Error("expected some of each")
	}
}

// once checks that no two lanes have the same CPU.
func once(t *testing.T, p plan.Placement) {
	t.Helper()
	var all cpuset.Set
	for _, l := range p.Lanes {
		if both := all.Intersection(l.Owned()); !both.IsEmpty() {
			t.Fatalf("CPUs %s are reserved twice", both)
		}
		all = all.Union(l.Owned())
	}
}

// Among hosts with an equally good place, the one with the least room left is chosen, and not an empty one.
func TestTightest(t *testing.T) {
	f := newFleet(t, 8)
	for _, name := range f.names[4:] { // one of each kind of machine
		if _, err := f.Reserve(t.Context(), name, ask("own", 4, lane.Any, "")); err != nil {
			t.Fatal(err)
		}
	}
	x := f.index(t)
	for i, want := range []struct {
		cpus int
		host string
	}{{2, "h0004"}, {3, "h0006"}, {6, "h0000"}} { // 6 less 4 leave 2; 7 less 4 leave 3; an empty one of 6
		d, err := x.Place(t.Context(), ask(fmt.Sprint("new", i), want.cpus, lane.Any, "node"), place.Where{}, f)
		if err != nil || d.Host != want.host {
			t.Errorf("%d CPUs: expected host %s, %v\n%s", want.cpus, want.host, err, d.Why())
		}
	}
}

// A lane whose command is to be root goes only where that is allowed, and says what would allow it elsewhere.
func TestRoot(t *testing.T) {
	f := newFleet(t, 2)
	f.hosts["h0001"].Root = []string{"acme"}
	x := f.index(t)
	d, err := x.Place(t.Context(), ask("new", 1, lane.Any, ""), place.Where{Root: "acme"}, f)
	if err != nil || d.Host != "h0001" {
		t.Errorf("%v\n%s", err, d.Why())
	}
	d, err = x.Place(t.Context(), ask("newer", 1, lane.Any, ""), place.Where{Root: "other"}, f)
	if err != nil || d.Host != "" || !strings.Contains(d.Why(), "isolane-hub agent --root other") ||
		d.Brief() != "no host takes it: not letting it be root (spec.root)" {
		t.Errorf("%v\n%s\n%s", err, d.Brief(), d.Why())
	}
}

// After three refusals a lane is pending with all reasons, and the copies are corrected.
func TestPending(t *testing.T) {
	f := newFleet(t, 8)
	x := f.index(t)
	for _, name := range f.names {
		for i := 0; ; i++ { // one CPU is free on each, without the hub's knowledge
			if _, err := f.Reserve(t.Context(), name, ask(fmt.Sprint("own", i), 1, lane.Any, "")); err != nil {
				break
			}
		}
		f.release(name, 0)
	}
	f.asked = 0
	l := ask("late", 2, lane.Any, "")
	d, err := x.Place(t.Context(), l, place.Where{}, f)
	if err != nil || !d.Pending || f.asked != place.MaxRefusals {
		t.Fatalf("asked %d hosts, %v\n%s", f.asked, err, d.Why())
	}
	if change := d.Verdicts[0].Change; change != "spec.cpus.boot: true" {
		t.Errorf("expected the cheapest change of a host that was asked, found %q", change)
	}
	if said := strings.Count(d.Why(), ": refused: asks for 2 CPUs"); said != place.MaxRefusals {
		t.Errorf("expected the reasons of %d hosts in\n%s", place.MaxRefusals, d.Why())
	}
	for range f.names { // each time three copies are corrected, until no host is worth asking
		if d, err = x.Place(t.Context(), l, place.Where{}, f); err != nil {
			t.Fatal(err)
		}
	}
	if d.Pending || f.asked != len(f.names) || !strings.Contains(d.Why(), "late: no host takes it") {
		t.Errorf("asked %d hosts\n%s", f.asked, d.Why())
	}
}

// If a lane fits nowhere, the decision does not look for a change. Explain does, on the hosts with most free,
// and what the owner of the lane reads names no other lane.
func TestExplain(t *testing.T) {
	f := newFleet(t, 8)
	for _, name := range f.names[:7] {
		if _, err := f.Reserve(t.Context(), name, ask("secret", 2, lane.Any, "")); err != nil {
			t.Fatal(err)
		}
	}
	x := f.index(t)
	l := ask("large", 40, lane.Any, "")
	d, err := x.Place(t.Context(), l, place.Where{}, f)
	if err != nil || d.Host != "" || strings.Contains(d.Brief(), "cheapest") {
		t.Fatalf("%v, found %s", err, d.Why())
	}
	d.Explain(l)
	if want := "no host takes it: too full; cheapest change: spec.cpus.count: 30 (then host h0007 takes it)"; d.Brief() != want {
		t.Errorf("found %s\nexpected %s", d.Brief(), want)
	}
	if why := d.Why(); !strings.Contains(why, "secret") || strings.Count(why, "; cheapest change: ") != 3 {
		t.Errorf("expected the lanes that are there, and three changes in\n%s", why)
	}
	if strings.Contains(d.Brief(), "secret") {
		t.Errorf("%s names another lane", d.Brief())
	}
}

// If something other than CPUs keeps a lane out, Explain looks on hosts for each kind of thing, and names the
// cheapest change of all, wherever it was found.
func TestExplainLacks(t *testing.T) {
	const gib = 1 << 30
	machine := hosttest.Machine{Packages: 1, CoresPerPackage: 8, ThreadsPerCore: 1}.Host(t)
	with := func(memory uint64, cpus int, pages uint64, functions int) place.Host {
		h := machine
		h.MemoryBytes, h.CPUs = memory, slices.Clone(h.CPUs[:cpus])
		h.NUMANodes = []host.NUMANode{h.NUMANodes[0]}
		h.NUMANodes[0].MemoryBytes, h.NUMANodes[0].Hugepages = memory, []host.Hugepages{{PageBytes: gib, Total: &pages, Free: &pages}}
		h.PCIDevices = []host.PCIDevice{{Address: "0000:3b:00.0", Kind: "network", SRIOV: &host.SRIOV{TotalVFs: functions}}}
		return place.Host{Machine: h}
	}
	large := lane.Spec{CPUs: lane.CPUs{Count: 6}, Memory: lane.Memory{Size: 8 * gib}}
	paged, carded := large, large
	paged.Memory.Hugepages = map[string]quantity.Bytes{"1Gi": 4 * gib}
	carded.Network = lane.Network{Path: "sriov", Device: "0000:3b:00.0", VFs: 4, Driver: lane.VFIO}
	wide := large
	wide.CPUs.Count = 9
	const whole = 64 * gib
	for _, row := range []struct {
		name       string
		spec       lane.Spec
		some, last place.Host // all hosts but the last are alike
		change     string     // with which the last takes it
	}{
		{"less memory costs more than fewer CPUs", large, with(2*gib, 8, 0, 0), with(whole, 6, 0, 0), "spec.cpus.count: 5"},
		{"most memory", large, with(2*gib, 8, 0, 0), with(6*gib, 8, 0, 0), "spec.memory.size: 5632Mi"},
		{"most CPUs", wide, with(whole, 5, 0, 0), with(whole, 7, 0, 0), "spec.cpus.count: 6"},
		{"pages", paged, with(10*gib, 8, 0, 0), with(14*gib, 4, 4, 0), "spec.cpus.count: 3"},
		{"a card", carded, with(whole, 8, 0, 0), with(whole, 4, 0, 8), "spec.cpus.count: 3"},
	} {
		var x place.Index
		for _, name := range []string{"h0", "h1", "h2", "h3", "h4", "last"} {
			h := row.some
			if name == "last" {
				h = row.last
			}
			h.Name = name
			if err := x.Put(h); err != nil {
				t.Fatal(row.name, err)
			}
		}
		l := lane.Lane{Metadata: lane.Metadata{Name: "new"}, Spec: row.spec}
		d, err := x.Place(t.Context(), l, place.Where{}, newFleet(t, 0))
		if err != nil || d.Host != "" {
			t.Fatalf("%s: %v\n%s", row.name, err, d.Why())
		}
		d.Explain(l)
		if says := "; cheapest change: " + row.change + " (then host last takes it)"; !strings.HasSuffix(d.Brief(), says) {
			t.Errorf("%s: expected %q\n%s\n%s", row.name, says, d.Brief(), d.Why())
		}
	}
}

// BenchmarkPlace places one lane among a thousand hosts that all have lanes.
func BenchmarkPlace(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 0))
	f := newFleet(b, 1000)
	for _, name := range f.names {
		for i := range rng.IntN(6) {
			_, _ = f.Reserve(b.Context(), name, ask(fmt.Sprint("own", i), 1+rng.IntN(4), lane.Any, "")) // fails if the host is full
		}
	}
	x := f.index(b)
	for _, bench := range []struct {
		name string
		most int
	}{{"fits", 8}, {"nowhere", 0}} {
		b.Run(bench.name, func(b *testing.B) {
			var took []time.Duration
			for i := 0; b.Loop(); i++ {
				n := 200
				if bench.most > 0 {
					n = 1 + i%bench.most
				}
				l := ask(fmt.Sprint("new", i), n, []string{lane.Any, lane.Isolate}[i%2], "")
				from := time.Now()
				d, err := x.Place(b.Context(), l, place.Where{}, f)
				took = append(took, time.Since(from))
				if err != nil || (d.Host == "") != (bench.most == 0) {
					b.Fatal(err, d.Why())
				}
				if h := f.hosts[d.Host]; h != nil { // as full as before
					f.release(d.Host, len(h.Placed.Lanes)-1)
					if err = x.Put(*h); err != nil {
						b.Fatal(err)
					}
				}
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "P99-ms")
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "P50-ms")
		})
	}
}

// Nodes with CPUs or memory are tried in all combinations, so they must be few, even for a lane that needs
// the memory of most of them. Further nodes may exist, for cards.
func TestPlannable(t *testing.T) {
	for _, row := range []struct {
		nodes, own, memory int
		pages              uint64 // of each node
		takes              bool
	}{{8, 8, 8, 0, true}, {16, 16, 16, 0, true}, {34, 2, 16, 0, true}, {34, 2, 16, 1, false}, {17, 17, 1, 0, false}, {40, 1, 17, 0, false},
		{64, 1, 1, 0, false}, {1024, 1024, 1024, 0, false}} {
		h := host.Host{Hostname: "one"}
		for i := range 2 * row.own {
			h.CPUs = append(h.CPUs, host.CPU{ID: i, Online: true, NUMANode: new(i / 2), Core: new(i), L3: new(i / 2)})
		}
		for i := range row.nodes {
			h.NUMANodes = append(h.NUMANodes, host.NUMANode{ID: i, MemoryBytes: 1 << 32, HasMemory: new(i < row.memory),
				Hugepages: []host.Hugepages{{PageBytes: 2 << 20, Total: new(row.pages)}}})
		}
		placed := plan.Placement{APIVersion: plan.APIVersion, Kind: plan.Kind, Host: plan.MachineOf(h)}
		x := place.Index{}
		err := x.Put(place.Host{Name: "one", Machine: h, Placed: placed})
		if (err == nil) != row.takes || err != nil && !strings.Contains(err.Error(), "expected at most 63 NUMA nodes, and 16 with CPUs or memory, found") {
			t.Errorf("%+v: %v", row, err)
		}
		if err != nil {
			continue
		}
		l := lane.Lane{Spec: lane.Spec{CPUs: lane.CPUs{Count: 2}}}
		l.Metadata.Name = "large"
		l.Spec.Memory.Size = quantity.Bytes(row.memory) << 31
		if p, terr := solver.Try(h, placed, []lane.Lane{l}); terr != nil || len(p.Lanes) != 1 {
			t.Errorf("%+v: half of the memory: %v", row, terr)
		}
	}
}
