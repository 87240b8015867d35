package solver

import (
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"testing"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/host/snapshot"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
)

// truth is what a referee knows of a machine: sets of CPUs, straight from the host. It shares nothing
// with the planner.
type truth struct {
	usable, boot      cpuset.Set
	nodes, l3s, cores []cpuset.Set
}

func truthOf(h host.Host) truth {
	group := func(of func(host.CPU) *int) []cpuset.Set {
		by := map[int][]int{}
		for id := range h.Usable().All() {
			c, _ := h.CPU(id)
			key := -1
			if n := of(c); n != nil {
				key = *n
			}
			by[key] = append(by[key], id)
		}
		var sets []cpuset.Set
		for _, ids := range by {
			sets = append(sets, cpuset.Of(ids...))
		}
		sort.Slice(sets, func(i, j int) bool { return sets[i].First() < sets[j].First() })
		return sets
	}
	t := truth{usable: h.Usable(), cores: h.Cores(), nodes: group(func(c host.CPU) *int { return c.NUMANode })}
	t.boot = t.cores[0]
	for _, node := range t.nodes { // where no L3 is known, a node counts as one
		for _, l3 := range group(func(c host.CPU) *int { return c.L3 }) {
			if c, _ := h.CPU(l3.First()); c.L3 == nil {
				l3 = l3.Intersection(node)
			}
			if !l3.IsEmpty() && !slices.Contains(t.l3s, l3) {
				t.l3s = append(t.l3s, l3)
			}
		}
	}
	return t
}

func touched(sets []cpuset.Set, cpus cpuset.Set) int {
	n := 0
	for _, s := range sets {
		if s.Intersects(cpus) {
			n++
		}
	}
	return n
}

// fewest is how few of the sets hold so many CPUs of free; 0 where all together do not.
func fewest(sets []cpuset.Set, free cpuset.Set, count int) int {
	var sizes []int
	for _, s := range sets {
		sizes = append(sizes, s.Intersection(free).Len())
	}
	sort.Sort(sort.Reverse(sort.IntSlice(sizes)))
	for i, size := range sizes {
		if count -= size; count <= 0 {
			return i + 1
		}
	}
	return 0
}

// whole are the CPUs of free cores that nobody has a thread of.
func (t truth) whole(free cpuset.Set) cpuset.Set {
	var whole cpuset.Set
	for _, c := range t.cores {
		if c.IsSubsetOf(free) {
			whole = whole.Union(c)
		}
	}
	return whole
}

// leastL3s is how few L3 caches do on so few nodes, and whether that goes without sharing a core.
func (t truth) leastL3s(free cpuset.Set, count int) (nodes, l3s int, unshared bool) {
	nodes = fewest(t.nodes, free, count)
	whole := t.whole(free)
	var with []cpuset.Set
	choose(t.nodes, nodes, func(on cpuset.Set) {
		if on.Intersection(free).Len() >= count {
			with = append(with, on)
			if n := fewest(t.l3s, free.Intersection(on), count); l3s == 0 || n < l3s {
				l3s = n
			}
		}
	})
	for _, on := range with {
		if n := fewest(t.l3s, whole.Intersection(on), count); n > 0 && n <= l3s {
			unshared = true
		}
	}
	return nodes, l3s, unshared
}

// choose calls use with all unions of k of the sets.
func choose(sets []cpuset.Set, k int, use func(cpuset.Set)) {
	if k == 0 {
		use(cpuset.Set{})
		return
	}
	for i := range sets {
		choose(sets[i+1:], k-1, func(u cpuset.Set) { use(u.Union(sets[i])) })
	}
}

// fits says whether first-fit-decreasing puts lanes of these sizes onto nodes without dividing one.
func (t truth) fits(sizes []int) bool {
	var room []int
	for _, n := range t.nodes {
		room = append(room, n.Difference(t.boot).Len())
	}
	sizes = slices.Clone(sizes)
	sort.Sort(sort.Reverse(sort.IntSlice(sizes)))
	for _, size := range sizes {
		at := slices.IndexFunc(room, func(r int) bool { return r >= size })
		if at < 0 {
			return false
		}
		room[at] -= size
	}
	return true
}

// score is what the referee counts.
type tally struct {
	requests, overlap, badSize, refused, node, l3, core, fragmented, repackable, repacked int
}

func (t tally) faults() int {
	return t.overlap + t.badSize + t.refused + t.node + t.l3 + t.core + t.repackable - t.repacked
}

// replay allocates and frees at random and lets the referee look at each answer.
func replay(tb testing.TB, h host.Host, seed uint64, steps int, sum *tally) {
	tb.Helper()
	t := truthOf(h)
	rng := rand.New(rand.NewPCG(seed, 0))
	var p plan.Placement
	free := t.usable.Difference(t.boot)
	for step := range steps {
		if rng.Float64() >= 0.6 {
			if len(p.Lanes) > 0 {
				at := rng.IntN(len(p.Lanes))
				free = free.Union(p.Lanes[at].Owned())
				p.Lanes = slices.Delete(slices.Clone(p.Lanes), at, at+1)
			}
			continue
		}
		sizes := []int{1, 2, 2, 3, 4, 4, 6, 8, 8, 12, 16}
		n := min(sizes[rng.IntN(len(sizes))], max(1, t.usable.Len()/4))
		if n > free.Len() {
			continue
		}
		sum.requests++
		l := askFor(fmt.Sprint("l", step), n, "")
		nodes, l3s, unshared := t.leastL3s(free, n)
		if nodes > 1 && slices.ContainsFunc(t.nodes, func(s cpuset.Set) bool { return s.Difference(t.boot).Len() >= n }) {
			sum.fragmented++
			live := []int{n}
			for _, l := range p.Lanes {
				live = append(live, l.CPUs.Len())
			}
			if t.fits(live) {
				sum.repackable++
				if t.repacks(tb, h, p, l) {
					sum.repacked++
				}
			}
		}
		next, err := Solve(h, p, []lane.Lane{l})
		if err != nil {
			tb.Logf("seed %d, step %d: %v", seed, step, err)
			sum.refused++
			continue
		}
		cpus := next.Lanes[len(next.Lanes)-1].Owned()
		var shares bool
		for _, c := range t.cores {
			shares = shares || c.Intersects(cpus) && !c.Difference(cpus).IsSubsetOf(free)
		}
		switch {
		case !cpus.IsSubsetOf(free):
			sum.overlap++
			continue
		case cpus.Len() != n:
			sum.badSize++
		case touched(t.nodes, cpus) > nodes:
			sum.node++
		case touched(t.l3s, cpus) > l3s:
			sum.l3++
		case shares && unshared:
			sum.core++
		}
		free, p = free.Difference(cpus), next
	}
}

// repacks says whether moves make room on one node: each step to CPUs that are free by then, and at
// the end the new lane and all that were moved on one node each.
func (t truth) repacks(tb testing.TB, h host.Host, p plan.Placement, l lane.Lane) bool {
	tb.Helper()
	after, err := Repack(h, p, []lane.Lane{l})
	if err != nil {
		tb.Logf("%s of %d CPUs: %v", l.Metadata.Name, l.Spec.CPUs.Count, err)
		return false
	}
	at := map[string]cpuset.Set{}
	free := t.usable.Difference(t.boot)
	crossed := 0
	for _, has := range p.Lanes {
		at[has.Name] = has.Owned()
		free = free.Difference(has.Owned())
		crossed += touched(t.nodes, has.Owned()) - 1
	}
	for _, m := range after.Moves {
		if at[m.Lane] != m.From || m.To.Len() != m.From.Len() || !m.To.IsSubsetOf(free.Union(m.From)) {
			tb.Logf("%s cannot move from %s to %s: it is at %s, free are %s", m.Lane, m.From, m.To, at[m.Lane], free)
			return false
		}
		at[m.Lane], free = m.To, free.Union(m.From).Difference(m.To)
	}
	for _, has := range after.Lanes {
		if has.Name == l.Metadata.Name {
			if touched(t.nodes, has.Owned()) != 1 || !has.Owned().IsSubsetOf(free) || has.CPUs.Len() != l.Spec.CPUs.Count {
				tb.Logf("%s wants %d CPUs and gets %s; free are %s", has.Name, l.Spec.CPUs.Count, has.Owned(), free)
				return false
			}
			continue
		}
		if at[has.Name] != has.Owned() {
			tb.Logf("%s is at %s after the moves, and not %s", has.Name, at[has.Name], has.Owned())
			return false
		}
		crossed -= touched(t.nodes, has.Owned()) - 1
	}
	return crossed >= 0
}

// machines are the snapshots and some that are made up: hybrid, half offline, sparse, with eight nodes.
func machines(tb testing.TB) map[string]host.Host {
	tb.Helper()
	all := map[string]host.Host{}
	for name, m := range map[string]hosttest.Machine{
		"made up: hybrid":       {Packages: 1, CoresPerPackage: 8, ThreadsPerCore: 2, EfficiencyCores: 12},
		"made up: two hybrids":  {Packages: 2, CoresPerPackage: 6, ThreadsPerCore: 2, EfficiencyCores: 8, CoresPerL3: 7},
		"made up: half offline": {Packages: 2, CoresPerPackage: 16, ThreadsPerCore: 2, Offline: cpuset.MustParse("33-63:1/2")},
		"made up: sparse":       {Packages: 2, CoresPerPackage: 12, ThreadsPerCore: 2, CoresPerL3: 4, Offline: cpuset.MustParse("1-3,9,17-20,30,41-44")},
		"made up: 8 nodes":      {Packages: 2, CoresPerPackage: 32, ThreadsPerCore: 2, NodesPerPackage: 4, CoresPerL3: 4, MemoryOnlyNodes: 1},
		"made up: SMT4":         {Packages: 2, CoresPerPackage: 8, ThreadsPerCore: 4, CoresPerL3: 4},
	} {
		all[name] = m.Host(tb)
	}
	add := func(name string, root fs.FS, err error) {
		if err != nil {
			return // a folder of several machines
		}
		if h, err := host.Read(root); err == nil && h.Usable().Len() > 1 && len(h.Cores()) > 1 {
			all[name] = h
		}
	}
	err := filepath.WalkDir(hosttest.Machines(tb), func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		root, oerr := snapshot.Open(file, "")
		add(filepath.Base(file), root, oerr)
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	for _, s := range []string{
		"nri-plugins/pkg_cpuallocator_testdata_sysfs.tar.bz2:sysfs/2-socket-4-node-40-core",
		"nri-plugins/cmd_plugins_topology-aware_policy_testdata_sysfs.tar.bz2:sysfs/server",
		"nri-plugins/cmd_plugins_topology-aware_policy_testdata_sysfs.tar.bz2:sysfs/4-socket-server-nosnc",
	} {
		add(s, hosttest.Snapshot(tb, s), nil)
	}
	if len(all) < 18 {
		tb.Fatalf("%d machines: some are missing", len(all))
	}
	return all
}

// Random lanes come and go on every machine, and a referee looks at each answer. REPLAY_STEPS makes it
// longer: 1000000 is the long run of docs/placement.md.
func TestReplay(t *testing.T) {
	seeds, steps := 20, 200
	if text := os.Getenv("REPLAY_STEPS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		steps = n / seeds / len(machines(t))
	}
	all := machines(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) {
			var sum tally
			for seed := range seeds {
				replay(t, all[name], uint64(seed+1), steps, &sum)
			}
			t.Logf("%+v", sum)
			if sum.faults() > 0 || sum.requests == 0 {
				t.Errorf("%+v", sum)
			}
		})
	}
}
