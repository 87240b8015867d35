package plan

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
)

// place is where a lane could go.
type place struct {
	ask    ask
	cpus   cpuset.Set
	idle   cpuset.Set
	memory []Memory
	huge   []Hugepages
	cost   Cost
	tie    score // decides among equal costs
}

// compare orders places: by cost, then by how little they break up, then by their CPUs.
func (p place) compare(q place) int {
	return cmp.Or(p.cost.Compare(q.cost), p.tie.compare(q.tie), cmp.Compare(p.cpus.First(), q.cpus.First()))
}

// score is a sum that is compared from its first field on: what the search adds up core by core.
type score struct {
	crossings uint64 // L3 caches << 32 | shared cores
	far       uint64 // L3 caches other than those to be near to
	breaks    uint64 // free whole cores' CPUs used << 40, if they count | whole cores broken << 24
	fill      uint64 // CPUs times how many others are free beside them: low where they fill up a cell
}

func (s score) plus(t score) score {
	return score{s.crossings + t.crossings, s.far + t.far, s.breaks + t.breaks, s.fill + t.fill}
}

func (s score) compare(t score) int {
	return cmp.Or(cmp.Compare(s.crossings, t.crossings), cmp.Compare(s.far, t.far), cmp.Compare(s.breaks, t.breaks), cmp.Compare(s.fill, t.fill))
}

// best returns the place with the least cost for one lane; false where there is none. It is exact:
// nodes are tried in all combinations of the smallest number that does, and on each combination
// dynamic programming finds the CPUs.
func (m *machine) best(l lane.Lane, r relaxed) (place, bool, error) {
	var best place
	found := false
	for _, dropped := range droppable(l.Spec, r.wishes) {
		rest := r
		rest.wishes = dropped
		ways, err := m.asks(l, rest)
		if err != nil {
			return place{}, false, err
		}
		for _, a := range ways {
			if found && a.broken > best.cost.BrokenWishes {
				return best, true, nil
			}
			if p, ok := m.bestWay(a); ok && (!found || p.compare(best) < 0) {
				best, found = p, true
			}
		}
	}
	return best, found, nil
}

// droppable are the sets of preferred wishes that may be left out, those with the least weight first;
// always is left out of each.
func droppable(s lane.Spec, always []string) [][]string {
	names := slices.Sorted(maps.Keys(s.Preferred))
	weight := func(set int) int {
		sum := 0
		for i, n := range names {
			if set&(1<<i) != 0 {
				sum += s.Preferred[n]
			}
		}
		return sum
	}
	sets := make([]int, 1<<len(names))
	for i := range sets {
		sets[i] = i
	}
	slices.SortStableFunc(sets, func(a, b int) int { return cmp.Compare(weight(a), weight(b)) })
	all := make([][]string, len(sets))
	for i, set := range sets {
		all[i] = slices.Clone(always)
		for j, n := range names {
			if set&(1<<j) != 0 && !slices.Contains(always, n) {
				all[i] = append(all[i], n)
			}
		}
	}
	return all
}

// bestWay is best for one way to ask.
func (m *machine) bestWay(a ask) (place, bool) {
	if a.oneL3 {
		return m.bestL3(a)
	}
	return m.bestOn(a, func(cell) bool { return true })
}

// bestL3 tries each L3 by itself.
func (m *machine) bestL3(a ask) (place, bool) {
	var best place
	found := false
	for i, c := range m.cells {
		if slices.ContainsFunc(m.cells[:i], func(b cell) bool { return b.l3 == c.l3 }) {
			continue
		}
		if p, ok := m.bestOn(a, func(d cell) bool { return d.l3 == c.l3 }); ok && (!found || p.compare(best) < 0) {
			best, found = p, true
		}
	}
	return best, found
}

// bestOn is bestWay on some of the cells.
func (m *machine) bestOn(a ask, on func(cell) bool) (place, bool) {
	s := m.newSearch(a, on)
	most := len(m.nodes)
	if a.oneNode {
		most = min(1, most)
	}
	for k := 1; k <= most; k++ {
		var best place
		found := false
		subsets(len(m.nodes), k, func(set uint64) {
			if p, ok := s.bestIn(set, k); ok && (!found || p.compare(best) < 0) {
				best, found = p, true
			}
		})
		if found {
			return best, true
		}
	}
	return place{}, false
}

// subsets calls use with all sets of k of the first n bits, in ascending order (Gosper's hack). No
// machine that this is for has more than 64 nodes; of a larger one the rest is not considered.
func subsets(n, k int, use func(uint64)) {
	n = min(n, 63)
	if k == 0 {
		use(0)
		return
	}
	for set := uint64(1)<<k - 1; k <= n && set < 1<<n; {
		use(set)
		low := set & -set
		next := set + low
		set = next | (set^next)>>2/low
	}
}

// search is one lane on one machine.
type search struct {
	m     *machine
	a     ask
	on    func(cell) bool
	room  []int // CPUs that the lane could have, by node
	block int
	whole []int // CPUs of free whole cores, by node
	cache map[tableKey]cellTable
	count int
}

type tableKey struct {
	cell    int
	kind    host.CPUKind
	counted bool
}

func (m *machine) newSearch(a ask, on func(cell) bool) *search {
	s := &search{m: m, a: a, on: on, count: a.spec.CPUs.Count, room: make([]int, len(m.nodes)), cache: map[tableKey]cellTable{}}
	for n := range m.nodes {
		s.whole = append(s.whole, m.wholeOn(n))
		s.block = max(s.block, s.whole[n])
		for c := m.nodes[n].from; c < m.nodes[n].to; c++ {
			if s.allows(n) && on(m.cells[c]) {
				for k := m.cells[c].from; k < m.cells[c].to; k++ {
					s.room[n] += s.most(k)
				}
			}
		}
	}
	return s
}

func (s *search) allows(n int) bool { return s.a.near == nil || slices.Contains(s.a.near, n) }

// isOpen says whether the lane may have a CPU.
func (s *search) isOpen(id int) bool {
	if s.a.banned.Contains(id) || s.m.kept.Contains(id) || s.m.at[id] == s.m.boot && !s.a.boot {
		return false
	}
	return s.m.owner[id] == free || s.a.share > 1 && s.m.owner[id] == shared && s.m.room[id] > 0 && s.m.sharers(id) < s.a.share
}

// most is how many CPUs of a core the lane could have.
func (s *search) most(c int) int {
	k := s.m.cores[c]
	if s.a.kind != "" && k.kind != s.a.kind && (k.kind != host.Uniform || s.a.kind != host.Performance) {
		return 0
	}
	open := 0
	for _, id := range k.cpus {
		if s.isOpen(id) {
			open++
		}
	}
	if s.a.smt != lane.Any && (open < len(k.cpus) || s.isShared(c)) {
		return 0
	}
	if s.a.smt == lane.Isolate {
		return min(open, 1)
	}
	return open
}

// isShared says whether somebody else has a thread of the core. Lanes that share CPUs are one party,
// and what cannot be given away is housekeeping's.
func (s *search) isShared(c int) bool {
	for _, id := range s.m.cores[c].cpus {
		if o := s.m.owner[id]; o >= 0 || o == shared && s.a.share == 1 || s.m.kept.Contains(id) {
			return true
		}
	}
	return c == s.m.boot && !s.a.boot
}

// bestIn is the best place with CPUs and memory on just the nodes of a set, of which there are k.
func (s *search) bestIn(set uint64, k int) (place, bool) {
	room := 0
	for n := range s.m.nodes {
		if set&(1<<n) != 0 {
			room += s.room[n]
		}
	}
	if room < s.count {
		return place{}, false
	}
	var best place
	found := false
	try := func(cpuNodes uint64) {
		memory, huge, ok := s.setAside(set, cpuNodes)
		if !ok {
			return
		}
		for _, kind := range s.kinds() {
			for _, counted := range s.blocks(cpuNodes) {
				if p, ok := s.fill(cpuNodes, kind, counted); ok && s.leavesHousekeeping(p) {
					p.memory, p.huge = memory, huge
					s.price(&p, k)
					if !found || p.compare(best) < 0 {
						best, found = p, true
					}
				}
			}
		}
	}
	if k == 1 || s.a.memory == 0 && len(s.a.huge) == 0 {
		try(set)
		return best, found
	}
	for sub := set; sub > 0; sub = (sub - 1) & set { // some of the nodes may be there for their memory only
		try(sub)
	}
	return best, found
}

// leavesHousekeeping says whether a lane that may have the boot core leaves a CPU to housekeeping.
func (s *search) leavesHousekeeping(p place) bool {
	return !s.a.boot || !s.m.housekeeping().IsSubsetOf(p.cpus.Union(p.idle))
}

// kinds are the kinds of core to try alone, and all together.
func (s *search) kinds() []host.CPUKind {
	kinds := []host.CPUKind{""}
	for _, c := range s.m.cores {
		if s.a.kind == "" && c.kind != host.Uniform && c.kind != "" && !slices.Contains(kinds, c.kind) {
			kinds = append(kinds, c.kind)
		}
	}
	if len(kinds) == 2 {
		return kinds[:1] // there is just one
	}
	return kinds
}

// blocks are the nodes whose free whole cores may decide how much of the largest block is lost: -1
// is none. A node counts only while it alone has the largest block.
func (s *search) blocks(set uint64) []int {
	outside := 0
	for n := range s.m.nodes {
		if set&(1<<n) == 0 {
			outside = max(outside, s.whole[n])
		}
	}
	nodes := []int{-1}
	for n := range s.m.nodes {
		if set&(1<<n) != 0 && outside < s.block {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// price works out what a place costs.
func (s *search) price(p *place, nodes int) {
	p.ask = s.a
	l3s, kinds := map[int]bool{}, map[host.CPUKind]bool{}
	counted := map[int]bool{}
	used := make([]int, len(s.m.nodes))
	owned := p.cpus.Union(p.idle)
	distance := 0
	for id := range owned.All() {
		c := s.m.at[id]
		at := s.m.cells[s.m.cores[c].cell]
		l3s[at.l3], kinds[s.m.cores[c].kind] = true, true
		if !counted[c] {
			counted[c] = true
			if s.isShared(c) {
				p.cost.SharedCores++
			}
			if s.m.isWhole(c) {
				used[at.node] += len(s.m.cores[c].cpus)
			}
		}
		distance = max(distance, s.distance(at.node))
	}
	for l3 := range l3s {
		if s.isFar(l3) {
			distance++
		}
	}
	after := 0
	for n := range s.m.nodes {
		after = max(after, s.whole[n]-used[n])
	}
	p.cost.BrokenWishes, p.cost.NUMACrossings, p.cost.L3Crossings = s.a.broken, nodes-1, len(l3s)-1
	p.cost.DeviceDistance, p.cost.BlockLost = distance, s.block-after
	if len(kinds) > 1 {
		p.cost.MixedKinds = 1
	}
	p.tie.breaks &= 1<<40 - 1
}

// distance is how far a node is from what the lane wants to be near to.
func (s *search) distance(n int) int {
	if len(s.a.from) == 0 {
		return 0
	}
	d := s.m.nodes[s.a.from[0]].distances[n]
	for _, f := range s.a.from {
		d = min(d, s.m.nodes[f].distances[n])
	}
	return max(0, d-10)
}

// isFar says whether an L3 is none of those of the lane to be near to.
func (s *search) isFar(l3 int) bool { return s.a.l3s != nil && !slices.Contains(s.a.l3s, l3) }

// cellTable has the best way to take each number of CPUs from a cell: its score, and how many of
// each core.
type cellTable struct {
	scores []score // by number of CPUs; crossings is the largest number where there is no way
	taken  [][]int8
}

func impossible() score { return score{crossings: 1<<64 - 1} }

// fill finds the CPUs on a set of nodes by dynamic programming: over the cores of each cell, over the
// cells of each L3, and over these. kind limits the cores, counted is the node whose free whole cores
// count.
func (s *search) fill(set uint64, kind host.CPUKind, counted int) (place, bool) {
	type choice struct{ cell, cpus int }
	total := make([]score, s.count+1)
	ways := make([][]choice, s.count+1)
	for i := range total[1:] {
		total[i+1] = impossible()
	}
	var done []int
	for i, c := range s.m.cells {
		if slices.Contains(done, c.l3) || set&(1<<c.node) == 0 {
			continue
		}
		done = append(done, c.l3)
		sum, own := make([]score, s.count+1), make([][]choice, s.count+1)
		for i := range sum[1:] {
			sum[i+1] = impossible()
		}
		for j := i; j < len(s.m.cells); j++ { // the same L3 may span nodes
			d := s.m.cells[j]
			if d.l3 != c.l3 || set&(1<<d.node) == 0 || !s.allows(d.node) || !s.on(d) {
				continue
			}
			t := s.table(j, kind, counted == d.node)
			join(sum, t.scores, func(have, more int) { own[have+more] = append(slices.Clone(own[have]), choice{j, more}) })
		}
		for n := range sum[1:] {
			if sum[n+1] != impossible() {
				sum[n+1].crossings += 1 << 32
				if s.isFar(c.l3) {
					sum[n+1].far++
				}
			}
		}
		join(total, sum, func(have, more int) { ways[have+more] = append(slices.Clone(ways[have]), own[more]...) })
	}
	if total[s.count] == impossible() {
		return place{}, false
	}
	p := place{tie: total[s.count]}
	for _, w := range ways[s.count] {
		s.take(&p, w.cell, s.table(w.cell, kind, counted == s.m.cells[w.cell].node).taken[w.cpus])
	}
	return p, true
}

// join adds what one more part offers to what there is so far, and reports each improvement.
func join(sum, more []score, use func(have, more int)) {
	for have := len(sum) - 1; have >= 0; have-- { // downwards, so that sum[have] is still without the part
		if sum[have] == impossible() {
			continue
		}
		for n := 1; n < len(more) && have+n < len(sum); n++ {
			if more[n] == impossible() {
				continue
			}
			if next := sum[have].plus(more[n]); next.compare(sum[have+n]) < 0 {
				sum[have+n] = next
				use(have, n)
			}
		}
	}
}

// table works out a cell once.
func (s *search) table(cell int, kind host.CPUKind, counted bool) cellTable {
	key := tableKey{cell, kind, counted}
	if t, ok := s.cache[key]; ok {
		return t
	}
	c := s.m.cells[cell]
	t := cellTable{scores: make([]score, s.count+1), taken: make([][]int8, s.count+1)}
	for i := range t.scores[1:] {
		t.scores[i+1] = impossible()
	}
	open := 0
	for k := c.from; k < c.to; k++ {
		open += s.most(k)
	}
	more := make([]score, 0, 9)
	for k := c.from; k < c.to; k++ {
		if kind != "" && s.m.cores[k].kind != kind {
			continue
		}
		more = s.options(more[:0], k, open, counted)
		join(t.scores, more, func(have, n int) {
			taken := make([]int8, c.to-c.from)
			copy(taken, t.taken[have])
			taken[k-c.from] = int8(n) //nolint:gosec // G115: no core has more than 8 threads
			t.taken[have+n] = taken
		})
	}
	s.cache[key] = t
	return t
}

// options are the scores of taking 0, 1 … CPUs of a core; open is how many its cell has for the lane.
func (s *search) options(more []score, c, open int, counted bool) []score {
	k := s.m.cores[c]
	most := s.most(c)
	joinable := 0 // CPUs that are shared already, which are taken first
	for _, id := range k.cpus {
		if s.isOpen(id) && s.m.owner[id] == shared {
			joinable++
		}
	}
	for n := range most + 1 {
		v := score{fill: uint64((n - min(n, joinable)) * open)} //nolint:gosec // G115: never negative
		if s.isShared(c) {
			v.crossings = 1
		}
		if s.m.isWhole(c) {
			if counted {
				v.breaks += uint64(len(k.cpus)) << 40
			}
			if n < len(k.cpus) && s.a.smt == lane.Any {
				v.breaks += 1 << 24
			}
		}
		if n <= joinable {
			v.breaks = 0
		}
		if s.a.smt == lane.Pack && n > 0 && n < len(k.cpus) {
			v = impossible()
		}
		more = append(more, v)
	}
	return more
}

// take adds the CPUs of a cell to a place.
func (s *search) take(p *place, cell int, taken []int8) {
	var cpus, idle []int
	for i, n := range taken {
		var open []int
		for _, joined := range []bool{true, false} {
			for _, id := range s.m.cores[s.m.cells[cell].from+i].cpus {
				if s.isOpen(id) && joined == (s.m.owner[id] == shared) {
					open = append(open, id)
				}
			}
		}
		if n > 0 {
			cpus = append(cpus, open[:n]...)
			if s.a.smt == lane.Isolate {
				idle = append(idle, open[n:]...)
			}
		}
	}
	p.cpus, p.idle = p.cpus.Union(cpuset.Of(cpus...)), p.idle.Union(cpuset.Of(idle...))
}

// setAside finds memory and hugepages on a set of nodes, those with the lane's CPUs first; false
// where there is not enough.
func (s *search) setAside(set, cpuNodes uint64) ([]Memory, []Hugepages, bool) {
	if s.a.memory == 0 && len(s.a.huge) == 0 {
		return nil, nil, true
	}
	var order []int
	for _, first := range []bool{true, false} {
		for n := range s.m.nodes {
			if set&(1<<n) != 0 && (cpuNodes&(1<<n) != 0) == first {
				order = append(order, n)
			}
		}
	}
	left := make([]uint64, len(s.m.nodes))
	pools := make([]map[uint64]uint64, len(s.m.nodes))
	for _, n := range order {
		left[n], pools[n] = s.m.freeMemory(n)
	}
	var huge []Hugepages
	for _, h := range s.a.huge {
		page := uint64(h.Node) //nolint:gosec // G115: a size
		want := h.Bytes / page
		for _, n := range order {
			fit := min(want, pools[n][page]+left[n]/page)
			if _, ok := s.m.nodes[n].pool[page]; fit == 0 || !ok {
				continue
			}
			reserve := fit - min(fit, pools[n][page])
			left[n] -= reserve * page
			pools[n][page] -= fit - reserve
			huge = append(huge, Hugepages{Node: s.m.nodes[n].id, PageBytes: page, Pages: fit, Reserve: reserve})
			want -= fit
		}
		if want > 0 {
			return nil, nil, false
		}
	}
	var memory []Memory
	want := s.a.memory
	for _, n := range order {
		if fit := min(want, left[n]); fit > 0 {
			memory = append(memory, Memory{Node: s.m.nodes[n].id, Bytes: fit})
			want -= fit
		}
	}
	return memory, huge, want == 0
}

// freeMemory is what no lane has of a node's memory, less its pools of hugepages, and of these pools.
func (m *machine) freeMemory(n int) (bytes uint64, pool map[uint64]uint64) {
	at := m.nodes[n]
	pool = maps.Clone(at.pool)
	if !at.hasMemory {
		return 0, pool
	}
	used := uint64(0)
	for size, pages := range at.pool {
		used = plusCapped(used, timesCapped(size, pages))
	}
	for _, l := range m.lanes {
		for _, has := range l.Memory {
			if has.Node == at.id {
				used = plusCapped(used, has.Bytes)
			}
		}
		for _, has := range l.Hugepages {
			if has.Node == at.id {
				inPool := min(has.Pages, pool[has.PageBytes])
				if pool != nil {
					pool[has.PageBytes] -= inPool
				}
				used = plusCapped(used, timesCapped(has.Pages-inPool, has.PageBytes))
			}
		}
	}
	return at.memory - min(at.memory, used), pool
}

func plusCapped(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry > 0 {
		return 1<<64 - 1
	}
	return sum
}

func timesCapped(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	if high > 0 {
		return 1<<64 - 1
	}
	return low
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
