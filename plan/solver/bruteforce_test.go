package solver_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"testing"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/solver"
)

// TestBruteForce holds the planner against a search of all places, by code of its own: random machines of up
// to 16 CPUs, and random files of up to four lanes beside up to two that are placed.
//
//	BRUTE_FILES=100000 go test ./plan/solver -run TestBruteForce -timeout 0     # more of them
//	BRUTE_SEED=7 BRUTE_FILE=123 go test ./plan/solver -run TestBruteForce       # one again
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
	t.Helper()
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
	got, err := solver.Solve(h, p.placed(), p.declared())
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
	again, err := solver.Repack(h, p.placed(), p.declared())
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

// checkRepacked sees that the rules hold, that what is elsewhere now was moved, step by step to free CPUs,
// and that nothing is worse than without moves.
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

// checkOrder turns the file round, or takes its last lane first: that changes nothing but ties.
func (p *bruteProblem) checkOrder(h host.Host, got plan.Placement) bruteFault {
	if len(p.lanes) < 2 {
		return bruteFault{}
	}
	lanes := p.declared()
	if n := len(lanes); p.lanes[0].spec.CPUs.Count%2 == 0 {
		lanes = append(lanes[n-1:n:n], lanes[:n-1]...)
	} else {
		slices.Reverse(lanes)
	}
	turned, err := solver.Solve(h, p.placed(), lanes)
	if err != nil {
		return bruteFault{"order", fmt.Sprintf("in another order: %v", err)}
	}
	if turned.Optimal && got.Optimal && turned.Cost != got.Cost {
		return bruteFault{"order", fmt.Sprintf("%s\n  in another order: %s", describe(got), describe(turned))}
	}
	return bruteFault{}
}
