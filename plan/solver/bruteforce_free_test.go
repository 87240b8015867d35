package solver_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan/solver"
)

// TestBruteForceFree holds what is free against counts and a search of all places, by code of its own: random
// machines with up to four lanes, and lanes of each number of CPUs in each shape, which Solve is asked for too.
//
//	BRUTE_FREE=20000 go test ./plan/solver -run TestBruteForceFree -timeout 0     # more of them
//	BRUTE_SEED=7 BRUTE_FILE=123 go test ./plan/solver -run TestBruteForceFree     # one again
func TestBruteForceFree(t *testing.T) {
	files, seed, first := number(t, "BRUTE_FREE", 150), number(t, "BRUTE_SEED", 1), number(t, "BRUTE_FILE", 0)
	if first > 0 {
		files = 1
	}
	lanes, asked, shown := 0, 0, 0
	for i := first; i < first+files; i++ {
		r := rand.New(rand.NewPCG(uint64(seed), uint64(i)))
		p := &bruteProblem{m: randomMachine(r)}
		f := newReferee(p.m)
		for k := range r.IntN(5) {
			p.randomBefore(r, f, fmt.Sprintf("p%d", k), []string{"a", "b"})
		}
		lanes += len(p.before)
		if why := p.checkFree(f, &asked); why != "" {
			if shown++; shown > bruteShown {
				t.Fatal("and more")
			}
			t.Errorf("BRUTE_SEED=%d BRUTE_FILE=%d: %s\n%s", seed, i, why, p)
		}
	}
	t.Logf("seed %d: %d machines, %d lanes on them, %d shapes", seed, files, lanes, asked)
}

// checkFree says what is wrong with what the planner says is free.
func (p *bruteProblem) checkFree(f *referee, asked *int) string {
	h, err := host.Read(p.m.fs())
	if err != nil || len(h.Warnings) > 0 {
		return fmt.Sprint(err, h.Warnings)
	}
	room, err := solver.Free(h, p.placed())
	if err != nil {
		return err.Error()
	}
	free := f.usable &^ f.boot
	for _, l := range p.before {
		free &^= l.owned()
	}
	if maskOf(room.CPUs) != free {
		return fmt.Sprintf("CPUs %s are free, not %s", setOf(free), room.CPUs)
	}
	if got, want := nodesText(room), p.freeText(f, free); got != want {
		return fmt.Sprintf("nodes, expected\n%sgot\n%s", want, got)
	}
	nodes, err := solver.FreeNodes(h, p.placed())
	if err != nil || nodesText(solver.Room{Nodes: nodes}) != nodesText(room) {
		return fmt.Sprintf("without shapes: %v, %v", nodes, err)
	}
	for _, s := range room.Shapes {
		if *asked++; s.CPUs > free.len() {
			return fmt.Sprintf("%+v of %d free CPUs", s, free.len())
		}
		most := 0
		for n := 1; n <= f.usable.len()+1; n++ {
			l := &bruteLane{name: "new", device: -1, spec: lane.Spec{CPUs: lane.CPUs{Count: n, SMT: s.SMT}}}
			switch s.Within {
			case "node":
				l.spec.CPUs.NUMA = lane.One
			case "l3":
				l.spec.CPUs.L3 = lane.One
			}
			search := bruteSolve(f, p.before, []*bruteLane{l}, true)
			if search.aborted {
				return ""
			}
			if search.found {
				most = n
			}
			if _, err = solver.Solve(h, p.placed(), []lane.Lane{declare(l)}); (err == nil) != search.found {
				return fmt.Sprintf("%+v with %d CPUs: the referee has %v, Solve says %v", s, n, search.found, err)
			}
		}
		if s.CPUs != most {
			return fmt.Sprintf("%+v: %d CPUs fit, and no more", s, most)
		}
	}
	return ""
}

// freeText is what is free of each node, as the referee counts it: its CPUs, those of each L3 and kind, GiB of
// memory and of pools.
func (p *bruteProblem) freeText(f *referee, free mask) string {
	var b strings.Builder
	st := newStock(p.m, p.before)
	for n := range p.m.nodes {
		at, kinds := f.nodes[n], []string{"P", "E"}
		var l3s []string
		for _, l3 := range f.l3s {
			if l3&at != 0 {
				l3s = append(l3s, setOf(l3&at&free).String())
			}
		}
		slices.Sort(l3s)
		var parts []string
		for k, kind := range []mask{at &^ f.efficient(at), f.efficient(at)} {
			if kind != 0 {
				parts = append(parts, kinds[k]+setOf(kind&free).String())
			}
		}
		pools := ""
		for _, page := range slices.Sorted(maps.Keys(p.m.nodes[n].pool)) {
			if gib := st.pool[n][page]; gib > 0 {
				pools += fmt.Sprintf(" %d GiB of %d MiB", gib, page)
			}
		}
		fmt.Fprintf(&b, "  node %d: %s; L3 %q; kinds %v; %d GiB;%s\n", n, setOf(at&free), l3s, parts, st.memory[n], pools)
	}
	return b.String()
}

func nodesText(room solver.Room) string {
	var b strings.Builder
	for _, n := range room.Nodes {
		var l3s, parts []string
		for _, cpus := range n.L3 {
			l3s = append(l3s, cpus.String())
		}
		slices.Sort(l3s)
		for _, kind := range []host.CPUKind{host.Uniform, host.Performance, host.Efficiency} {
			if cpus, ok := n.Kinds[kind]; ok {
				name := "P"
				if kind == host.Efficiency {
					name = "E"
				}
				parts = append(parts, name+cpus.String())
			}
		}
		pools := ""
		for _, page := range slices.Sorted(maps.Keys(n.Hugepages)) {
			if pages := n.Hugepages[page]; pages > 0 {
				pools += fmt.Sprintf(" %d GiB of %d MiB", pages*page/bruteGiB, page>>20)
			}
		}
		fmt.Fprintf(&b, "  node %d: %s; L3 %q; kinds %v; %d GiB;%s\n", n.Node, n.CPUs, l3s, parts, n.Memory/bruteGiB, pools)
	}
	return b.String()
}
