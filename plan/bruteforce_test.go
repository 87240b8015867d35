package plan_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"testing"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/quantity"
)

// TestBruteForce holds the planner against a search of all places, by code of its own: random machines of up to 16
// CPUs, and random files of up to four lanes beside up to two that are placed.
//
//	BRUTE_FILES=100000 go test ./plan -run TestBruteForce -timeout 0     # more of them
//	BRUTE_SEED=7 BRUTE_FILE=123 go test ./plan -run TestBruteForce       # one again
func TestBruteForce(t *testing.T) {
	files, seed := number(t, "BRUTE_FILES", 2000), number(t, "BRUTE_SEED", 1)
	first := number(t, "BRUTE_FILE", 0)
	if os.Getenv("BRUTE_FILE") != "" {
		files = 1
	}
	t.Logf("seed %d, %d files", seed, files)
	var count bruteCount
	faults := map[string]int{}
	for i := first; i < first+files; i++ {
		p := randomProblem(rand.New(rand.NewPCG(uint64(seed), uint64(i))))
		fault := p.check(&count)
		if fault.kind == "" {
			continue
		}
		if faults[fault.kind]++; faults[fault.kind] > bruteShown {
			continue
		}
		p = p.shrink(fault.kind)
		fault = p.check(&bruteCount{})
		t.Errorf("BRUTE_SEED=%d BRUTE_FILE=%d: %s: %s\n%s", seed, i, fault.kind, fault.text, p)
	}
	t.Logf("%+v", count)
	if len(faults) > 0 {
		t.Errorf("faults: %v", faults)
	}
}

// bruteShown is how many faults of a kind are printed.
const bruteShown = 3

// TestBruteForceLeavesNothingOut holds the search that leaves out what is alike against one that does not.
func TestBruteForceLeavesNothingOut(t *testing.T) {
	compared := 0
	for i := range 400 {
		p := randomProblem(rand.New(rand.NewPCG(2, uint64(i))))
		if len(p.m.cpus) > 7 {
			continue
		}
		f := newReferee(p.m)
		quick, slow := bruteSolve(f, p.before, p.lanes, false), newBruteSearch(f, p.before, p.lanes)
		slow.everything = true
		slow.run()
		if slow.aborted || quick.found != slow.found || quick.best != slow.best {
			t.Errorf("file %d: %v %v, not %v %v: %s\n%s", i, quick.found, quick.best, slow.found, slow.best, slow.text, p)
		}
		compared++
	}
	t.Logf("%d files", compared)
}

func number(t *testing.T, name string, otherwise int) int {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		t.Fatalf("%s=%s: expected a number", name, text)
	}
	return n
}

// bruteCount is how much was compared.
type bruteCount struct{ placed, optimal, refused, changes, tooMany int }

// bruteFault is what is wrong; kind "" is nothing.
type bruteFault struct{ kind, text string }

// check runs the planner and the referee.
func (p *bruteProblem) check(count *bruteCount) (fault bruteFault) {
	defer func() {
		if r := recover(); r != nil {
			fault = bruteFault{"panic", fmt.Sprintf("%v\n%s", r, debug.Stack())}
		}
	}()
	h, err := host.Read(p.m.fs())
	if err != nil || len(h.Warnings) > 0 {
		return bruteFault{"machine", fmt.Sprint(err, h.Warnings)}
	}
	f := newReferee(p.m)
	got, err := plan.Solve(h, p.placed(), p.declared())
	var refusal *plan.Refusal
	if err != nil && !errors.As(err, &refusal) {
		return bruteFault{"error", err.Error()}
	}
	if err != nil {
		return p.checkRefusal(f, h, refusal, count)
	}
	count.placed++
	least := p.least(f)
	if fault := p.checkPlacement(f, got, least); fault.kind != "" {
		return fault
	}
	switch {
	case least.tooMany:
		count.tooMany++
	case got.Optimal:
		count.optimal++
	}
	again, err := plan.Repack(h, p.placed(), p.declared())
	if err != nil {
		return bruteFault{"repack refuses", err.Error()}
	}
	if fault := p.checkRepacked(f, again, got, least); fault.kind != "" {
		return bruteFault{"repack: " + fault.kind, fault.text}
	}
	return p.checkOrder(h, got)
}

// checkPlacement holds an answer without moves against the rules, its own cost and the least cost.
func (p *bruteProblem) checkPlacement(f *referee, got plan.Placement, least bruteLeast) bruteFault {
	lanes, fault := p.read(f, got)
	if fault.kind != "" {
		return fault
	}
	for i, l := range p.before {
		if l.cpus != lanes[i].cpus || l.idle != lanes[i].idle {
			return bruteFault{"moved", l.name}
		}
	}
	why, cost := f.judge(lanes, false)
	text := fmt.Sprintf("got %s", describe(got))
	switch {
	case why != "":
		return bruteFault{"not valid", why + "\n  " + text}
	case cost != costOf(got.Cost):
		return bruteFault{"cost", fmt.Sprintf("it costs %v\n  %s", cost, text)}
	case least.tooMany:
		return bruteFault{}
	case !least.found || cost.compare(least.cost) < 0:
		return bruteFault{"referee", fmt.Sprintf("finds %v at best: %s\n  %s", least.cost, least.text, text)}
	case got.Optimal && cost != least.cost:
		return bruteFault{"not optimal", fmt.Sprintf("%v is possible: %s\n  %s", least.cost, least.text, text)}
	case !got.Optimal && (got.Bound == nil || costOf(*got.Bound).compare(least.cost) > 0):
		return bruteFault{"bound", fmt.Sprintf("%v is possible: %s, bound %+v\n  %s", least.cost, least.text, got.Bound, text)}
	}
	return bruteFault{}
}

// bruteLeast is the least cost of a file and where its lanes are then.
type bruteLeast struct {
	found, tooMany bool // tooMany: there are more places than are tried
	cost           bruteCost
	text           string
}

func (p *bruteProblem) least(f *referee) bruteLeast {
	s := bruteSolve(f, p.before, p.lanes, false)
	return bruteLeast{s.found, s.aborted, s.best, s.text}
}

// costOf reads the fields by their names, as a user does.
func costOf(c plan.Cost) bruteCost {
	data, err := json.Marshal(c)
	fields := map[string]int{}
	if err != nil || json.Unmarshal(data, &fields) != nil {
		panic(fmt.Sprintf("%s: %v", data, err))
	}
	var cost bruteCost
	for i, name := range []string{"brokenWishes", "numaCrossings", "l3Crossings", "unpreparedCPUs", "sharedCores", "memoryDistance",
		"deviceDistance", "mixedKinds", "efficiencyCPUs", "lanesMoved", "blockLost"} {
		cost[i] = fields[name]
	}
	return cost
}

func describe(p plan.Placement) string {
	text := fmt.Sprintf("cost %v optimal %v housekeeping %s", costOf(p.Cost), p.Optimal, p.Housekeeping)
	for _, l := range p.Lanes {
		text += fmt.Sprintf("; %s: CPUs %s idle %q memory %v %v of nodes %s", l.Name, l.CPUs, l.Idle, l.Memory, l.Hugepages, l.MemoryNodes)
		for _, d := range l.Devices {
			text += fmt.Sprintf(" device %s %v", d.Address, d.VFs)
		}
	}
	return text
}

// checkRefusal sees that there is no place, and that the cheapest change makes one.
func (p *bruteProblem) checkRefusal(f *referee, h host.Host, r *plan.Refusal, count *bruteCount) bruteFault {
	count.refused++
	all := bruteSolve(f, p.before, p.lanes, true)
	if all.aborted && !all.found {
		count.tooMany++
	} else if all.found {
		return bruteFault{"refused", fmt.Sprintf("%s\n  though this is possible: %s", r, all.text)}
	}
	if r.Cheapest == nil {
		return bruteFault{}
	}
	count.changes++
	if len(r.Cheapest.Moves) > 0 {
		again, err := plan.Repack(h, p.placed(), p.declared())
		if err != nil {
			return bruteFault{"moves", fmt.Sprintf("%s\n  with --repack: %v", r, err)}
		}
		if fault := p.checkRepacked(f, again, plan.Placement{}, bruteLeast{}); fault.kind != "" {
			return bruteFault{"repack: " + fault.kind, fault.text}
		}
		return bruteFault{}
	}
	changed, err := p.apply(r)
	if err != nil {
		return bruteFault{"change", fmt.Sprintf("%s\n  %v", r, err)}
	}
	if _, err := plan.Solve(h, changed.placed(), changed.declared()); err != nil {
		return bruteFault{"change", fmt.Sprintf("%s\n  so changed: %v", r, err)}
	}
	return bruteFault{}
}

var (
	countChange  = regexp.MustCompile(`^spec\.cpus\.count: (\d+)$`)
	memoryChange = regexp.MustCompile(`^spec\.memory\.size: (\w+)$`)
	preferChange = regexp.MustCompile(`^spec\.preferred: \{(\w+): (\d+)\}$`)
)

// apply does what a refusal proposes.
func (p *bruteProblem) apply(r *plan.Refusal) (*bruteProblem, error) {
	q := p.clone()
	l := find(q.lanes, r.Cheapest.Lane)
	if l == nil {
		return nil, fmt.Errorf("no lane %q in the file", r.Cheapest.Lane)
	}
	if r.Cheapest.Change == "leave it out" {
		q.lanes = slices.DeleteFunc(q.lanes, func(o *bruteLane) bool { return o.name == r.Cheapest.Lane })
		return q, nil
	}
	if m := memoryChange.FindStringSubmatch(r.Cheapest.Change); m != nil {
		size, err := quantity.ParseBytes(m[1])
		l.spec.Memory.Size = size
		return q, err
	}
	if r.Cheapest.Change == "spec.cpus.share: 2" {
		l.spec.CPUs.Share = 2
		return q, nil
	}
	if m := countChange.FindStringSubmatch(r.Cheapest.Change); m != nil {
		n, err := strconv.Atoi(m[1])
		l.spec.CPUs.Count = n
		return q, err
	}
	if r.Cheapest.Change == "spec.cpus.boot: true" {
		l.spec.CPUs.Boot = true
		return q, nil
	}
	if m := preferChange.FindStringSubmatch(r.Cheapest.Change); m != nil {
		n, err := strconv.Atoi(m[2])
		preferred := map[string]int{m[1]: n}
		for wish, weight := range l.spec.Preferred {
			preferred[wish] = weight
		}
		l.spec.Preferred = preferred
		return q, err
	}
	return nil, fmt.Errorf("%q is no change that a person can make", r.Cheapest.Change)
}

// checkRepacked sees that the rules hold, that what is elsewhere now was moved, step by step to free CPUs, and that nothing is
// worse than without moves.
func (p *bruteProblem) checkRepacked(f *referee, got, plain plan.Placement, least bruteLeast) bruteFault {
	if len(got.Moves) == 0 {
		fault := p.checkPlacement(f, got, least)
		if fault.kind == "" && plain.Host.Hostname != "" && costOf(got.Cost).compare(costOf(plain.Cost)) > 0 {
			fault = bruteFault{"worse", fmt.Sprintf("%s\n  without: %s", describe(got), describe(plain))}
		}
		return fault
	}
	lanes, fault := p.read(f, got)
	if fault.kind != "" {
		return fault
	}
	for _, l := range lanes {
		l.before = false
	}
	if why, _ := f.judge(lanes, false); why != "" {
		return bruteFault{"not valid", why + "\n  " + describe(got)}
	}
	return p.checkMoves(lanes, got)
}

func (p *bruteProblem) checkMoves(lanes []*bruteLane, got plan.Placement) bruteFault {
	now := map[string]mask{}
	for _, l := range p.before {
		now[l.name] = l.owned()
	}
	for _, m := range got.Moves {
		l := find(p.before, m.Lane)
		if l == nil {
			return bruteFault{"moves", fmt.Sprintf("%s is not placed\n  %v", m.Lane, got.Moves)}
		}
		for _, o := range p.before {
			if o != l && now[o.name]&maskOf(m.To) != 0 && (o.spec.CPUs.Share < 2 || l.spec.CPUs.Share < 2) {
				return bruteFault{"moves", fmt.Sprintf("%s to CPUs of %s\n  %v", m.Lane, o.name, got.Moves)}
			}
		}
		now[l.name] = maskOf(m.To)
	}
	for _, l := range lanes {
		before := find(p.before, l.name)
		if before != nil && l.cpus&^now[l.name] != 0 {
			return bruteFault{"moves", fmt.Sprintf("%s comes elsewhere\n  %v\n  %s", l.name, got.Moves, describe(got))}
		}
	}
	return bruteFault{}
}

// checkOrder turns the file round: that changes nothing but ties.
func (p *bruteProblem) checkOrder(h host.Host, got plan.Placement) bruteFault {
	if len(p.lanes) < 2 {
		return bruteFault{}
	}
	lanes := p.declared()
	slices.Reverse(lanes)
	turned, err := plan.Solve(h, p.placed(), lanes)
	if err != nil {
		return bruteFault{"order", fmt.Sprintf("the other way round: %v", err)}
	}
	if turned.Optimal && got.Optimal && turned.Cost != got.Cost {
		return bruteFault{"order", fmt.Sprintf("%s\n  the other way round: %s", describe(got), describe(turned))}
	}
	return bruteFault{}
}

// read takes an answer apart and checks what is not a matter of cost: sums, stock, housekeeping, interrupts.
func (p *bruteProblem) read(f *referee, got plan.Placement) ([]*bruteLane, bruteFault) {
	var lanes []*bruteLane
	var owned mask
	for _, asked := range slices.Concat(p.before, p.lanes) {
		at := slices.IndexFunc(got.Lanes, func(l plan.Lane) bool { return l.Name == asked.name })
		if at < 0 || len(got.Lanes) != len(p.before)+len(p.lanes) {
			return nil, bruteFault{"lanes", describe(got)}
		}
		l, why := p.readLane(asked, got.Lanes[at])
		if why != "" {
			return nil, bruteFault{"lane", asked.name + ": " + why + "\n  " + describe(got)}
		}
		lanes = append(lanes, l)
		owned |= l.owned()
	}
	keeps := maskOf(got.Housekeeping)
	rest := f.usable &^ owned
	if keeps == 0 || keeps&^rest != 0 || rest&^f.isolated != 0 && keeps != rest&^f.isolated || rest&^f.isolated == 0 && keeps != rest {
		return nil, bruteFault{"housekeeping", describe(got)}
	}
	if why := p.checkStock(got); why != "" {
		return nil, bruteFault{"stock", why + "\n  " + describe(got)}
	}
	return lanes, bruteFault{}
}

func (p *bruteProblem) readLane(asked *bruteLane, got plan.Lane) (*bruteLane, string) {
	l := *asked
	l.cpus, l.idle, l.memory = maskOf(got.CPUs), maskOf(got.Idle), 0
	var size uint64
	for _, m := range got.Memory {
		size += m.Bytes
		l.memory |= 1 << m.Node
	}
	if size != uint64(l.spec.Memory.Size) {
		return nil, fmt.Sprintf("has %d bytes of memory", size)
	}
	for text, total := range l.spec.Memory.Hugepages {
		size := uint64(total)
		for _, pages := range got.Hugepages {
			if pages.PageBytes == uint64(pageMiB(text))<<20 {
				size -= pages.Pages * pages.PageBytes
				l.memory |= 1 << pages.Node
			}
		}
		if size != 0 {
			return nil, fmt.Sprintf("has not its %s of hugepages", total)
		}
	}
	nodes := maskOf(got.MemoryNodes)
	if !asked.before && (l.memory&^nodes != 0 || nodes&^p.m.defaultMemory(1<<len(p.m.nodes)-1) != 0) {
		return nil, fmt.Sprintf("memory of nodes %s", got.MemoryNodes)
	}
	for role, count := range l.spec.Roles {
		if got.Roles[role].Len() != count || !got.Roles[role].IsSubsetOf(got.CPUs) {
			return nil, "roles"
		}
	}
	if !asked.before {
		return &l, p.readDevices(&l, got)
	}
	return &l, ""
}

func (p *bruteProblem) readDevices(l *bruteLane, got plan.Lane) string {
	wanted := functions(l.spec)
	for _, d := range got.Devices {
		at := p.m.device(d.Address)
		if at < 0 || len(d.VFs) != wanted || l.device >= 0 {
			return "devices"
		}
		l.device = at
		if name := l.spec.Network.Device; name != "" && p.m.device(name) != at {
			return "another device than " + name
		}
	}
	if wanted > 0 && l.device < 0 {
		return "no virtual functions"
	}
	var own []int
	if l.device >= 0 {
		own = p.m.devices[l.device].interrupts
	}
	for _, i := range got.Interrupts {
		if !slices.Contains(own, i.IRQ) || !got.CPUs.Contains(i.CPU) {
			return "interrupts"
		}
	}
	if most := min(l.spec.Network.Queues, len(own)); len(got.Interrupts) > most {
		return "more interrupts than asked"
	}
	return ""
}

// checkStock sees that no node and no device gives more than it has.
func (p *bruteProblem) checkStock(got plan.Placement) string {
	type key struct {
		node int
		page uint64
	}
	memory, pool, vfs := map[int]uint64{}, map[key]uint64{}, map[string]cpuset.Set{}
	takes := false
	for _, l := range got.Lanes {
		comes := find(p.lanes, l.Name) != nil
		for _, m := range l.Memory {
			memory[m.Node] += m.Bytes
			takes = takes || comes && m.Bytes > 0
		}
		for _, pages := range l.Hugepages {
			memory[pages.Node] += pages.Reserve * pages.PageBytes
			takes = takes || comes && pages.Reserve > 0
			pool[key{pages.Node, pages.PageBytes}] += pages.Pages - pages.Reserve
		}
		for _, d := range l.Devices {
			for _, vf := range d.VFs {
				if total := p.m.devices[p.m.device(d.Address)].totalVFs; vf < 0 || vf >= total || vfs[d.Address].Contains(vf) {
					return fmt.Sprintf("virtual function %d of %s", vf, d.Address)
				}
				vfs[d.Address] = vfs[d.Address].Union(cpuset.Of(vf))
			}
		}
	}
	var left, all uint64
	for id, n := range p.m.nodes {
		has := uint64(n.memory)
		for page, gib := range n.pool {
			has -= uint64(gib)
			if asked := pool[key{id, uint64(page) << 20}]; asked*uint64(page)<<20 > uint64(gib)*bruteGiB || !n.allowed && asked > 0 {
				return fmt.Sprintf("%d pages of %d MiB of node %d", asked, page, id)
			}
		}
		if memory[id] > has*bruteGiB || !n.allowed && memory[id] > 0 {
			return fmt.Sprintf("%d bytes of node %d", memory[id], id)
		}
		if n.allowed {
			left += has*bruteGiB - memory[id]
			all += uint64(n.memory) * bruteGiB
		}
	}
	if takes && left < min(bruteGiB/2, all/8) {
		return fmt.Sprintf("housekeeping has %d bytes", left)
	}
	return ""
}

// shrink leaves out lanes and wishes as long as the fault is of the same kind.
func (p *bruteProblem) shrink(kind string) *bruteProblem {
	for again := true; again; {
		again = false
		for _, q := range p.smaller() {
			if q.valid() && q.check(&bruteCount{}).kind == kind {
				p, again = q, true
				break
			}
		}
	}
	return p
}

func (p *bruteProblem) valid() bool {
	names := map[string]bool{}
	for _, l := range slices.Concat(p.before, p.lanes) {
		names[l.name] = true
	}
	for _, l := range p.lanes {
		if n := l.spec.Near.NUMANode; n != nil && *n >= len(p.m.nodes) {
			return false
		}
		if declare(l).Validate() != nil || l.spec.Near.Lane != "" && !names[l.spec.Near.Lane] {
			return false
		}
		for _, o := range l.spec.Apart.Lanes {
			if !names[o] {
				return false
			}
		}
	}
	return len(p.lanes) > 0
}

func (p *bruteProblem) clone() *bruteProblem {
	q := &bruteProblem{m: p.m, before: p.before}
	for _, l := range p.lanes {
		c := *l
		q.lanes = append(q.lanes, &c)
	}
	return q
}

// smaller are the problems with one thing less.
func (p *bruteProblem) smaller() []*bruteProblem {
	var all []*bruteProblem
	for i := range p.lanes {
		q := p.clone()
		q.lanes = slices.Delete(q.lanes, i, i+1)
		all = append(all, q)
	}
	for i := range p.before {
		q := p.clone()
		q.before = slices.Delete(slices.Clone(q.before), i, i+1)
		all = append(all, q)
	}
	for i := range p.lanes {
		edit := func(change func(*lane.Spec)) {
			q := p.clone()
			s := &q.lanes[i].spec
			change(s)
			preferred := map[string]int{}
			for _, wish := range s.Wishes() {
				if weight, ok := s.Preferred[wish]; ok {
					preferred[wish] = weight
				}
			}
			s.Preferred = preferred
			if brief(q.lanes[i]) != brief(p.lanes[i]) {
				all = append(all, q)
			}
		}
		edit(func(s *lane.Spec) { s.Network = lane.Network{} })
		edit(func(s *lane.Spec) { s.Network.Queues = 0 })
		edit(func(s *lane.Spec) { s.Memory.Hugepages = nil })
		edit(func(s *lane.Spec) { s.Memory.Size = 0 })
		edit(func(s *lane.Spec) { s.Near = lane.Near{} })
		edit(func(s *lane.Spec) { s.Apart = lane.Apart{} })
		edit(func(s *lane.Spec) { s.Roles = nil })
		edit(func(s *lane.Spec) { s.Preferred = nil })
		edit(func(s *lane.Spec) { s.CPUs = lane.CPUs{Count: s.CPUs.Count} })
		edit(func(s *lane.Spec) { s.CPUs.SMT = "" })
		edit(func(s *lane.Spec) { s.CPUs.Kind = "" })
		edit(func(s *lane.Spec) { s.CPUs.L3 = "" })
		edit(func(s *lane.Spec) { s.CPUs.NUMA = "" })
		edit(func(s *lane.Spec) { s.CPUs.Share = 0 })
		edit(func(s *lane.Spec) { s.CPUs.Boot = false })
		edit(func(s *lane.Spec) { s.CPUs.Count = max(1, s.CPUs.Count-1) })
		edit(func(s *lane.Spec) { s.Memory.Size -= min(s.Memory.Size, bruteGiB) })
		if len(p.lanes[i].spec.Apart.Lanes) > 1 {
			edit(func(s *lane.Spec) { s.Apart.Lanes = s.Apart.Lanes[:1] })
		}
		if all := p.lanes[i].spec.Preferred; len(all) > 1 {
			for wish := range all {
				edit(func(s *lane.Spec) {
					kept := map[string]int{}
					for w, weight := range all {
						if w != wish {
							kept[w] = weight
						}
					}
					s.Preferred = kept
				})
			}
		}
	}
	return append(all, p.smallerMachines()...)
}

// smallerMachines are those with one thing less that the lanes do not stand on.
func (p *bruteProblem) smallerMachines() []*bruteProblem {
	var all []*bruteProblem
	edit := func(change func(*bruteMachine)) {
		q := p.clone()
		m := *p.m
		m.cpus, m.nodes, m.devices = slices.Clone(m.cpus), slices.Clone(m.nodes), slices.Clone(m.devices)
		change(&m)
		q.m = &m
		if m.String() != p.m.String() {
			all = append(all, q)
		}
	}
	edit(func(m *bruteMachine) {
		m.cmdline = ""
		for i := range m.cpus {
			m.cpus[i].isolated, m.cpus[i].nohz, m.cpus[i].managed = false, false, false
		}
	})
	edit(func(m *bruteMachine) {
		m.cpusetV = false
		for i := range m.cpus {
			m.cpus[i].allowed = true
		}
		for i := range m.nodes {
			m.nodes[i].allowed = true
		}
	})
	edit(func(m *bruteMachine) {
		for i := range m.cpus {
			m.cpus[i].online = true
		}
	})
	edit(func(m *bruteMachine) { m.hybrid, m.noL3 = false, false })
	edit(func(m *bruteMachine) {
		for i := range m.nodes {
			none := map[int]int{}
			for page := range m.nodes[i].pool {
				none[page] = 0
			}
			m.nodes[i].pool = none
		}
	})
	edit(func(m *bruteMachine) {
		for i := range m.nodes {
			m.nodes[i].memory = max(m.nodes[i].memory, 8)
		}
	})
	if last := len(p.m.nodes) - 1; last > 0 && p.m.where(func(c bruteCPU) bool { return c.node == last }).IsEmpty() {
		edit(func(m *bruteMachine) {
			m.nodes = m.nodes[:last]
			for i := range m.nodes {
				m.nodes[i].distances = m.nodes[i].distances[:last]
			}
			for i := range m.devices {
				if m.devices[i].node == last {
					m.devices[i].node = 0
				}
			}
		})
	}
	used := slices.ContainsFunc(p.lanes, func(l *bruteLane) bool { return l.spec.Network.Device != "" || l.spec.Near.Device != "" })
	if !used {
		edit(func(m *bruteMachine) { m.devices = nil })
	}
	return all
}
