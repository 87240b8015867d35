package solver_test

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"

	"isolane.dev/isolane/lane"
)

// bruteSearch tries all places of all lanes. What it leaves out is no better than what it tries: places that
// are alike but for the names of equal cores and threads, and what costs more already than the best.
type bruteSearch struct {
	f          *referee
	lanes      []*bruteLane // those placed before, then those to place
	first      int          // of those to place
	stock      bruteStock
	alone      []bruteCost // the least that this lane and those after it cost by themselves; the last field apart
	best       bruteCost
	found      bool
	text       string // where the lanes are at the least cost
	steps      int
	most       int             // steps
	any        bool            // the first will do
	everything bool            // also what is alike: slow, for a test
	places     map[string]bool // memory of node sets: whether all sizes fit
	aborted    bool

	nodeSets map[string][]mask // by lane
}

// bruteMostSteps is how many places are tried for a file, and bruteFewSteps for each of its simpler variants.
const (
	bruteMostSteps = 3_000_000
	bruteFewSteps  = 10_000
)

// bruteSolve returns the least cost of placing lanes beside those before.
func bruteSolve(f *referee, before, lanes []*bruteLane, any bool) *bruteSearch {
	s := newBruteSearch(f, before, lanes)
	s.any = any
	s.run()
	return s
}

func newBruteSearch(f *referee, before, lanes []*bruteLane) *bruteSearch {
	s := &bruteSearch{f: f, most: bruteMostSteps, first: len(before), stock: newStock(f.m, before), places: map[string]bool{}, nodeSets: map[string][]mask{}}
	s.lanes = append(s.lanes, before...)
	for _, l := range lanes {
		c := *l
		c.cpus, c.idle, c.memory, c.before = 0, 0, 0, false
		s.lanes = append(s.lanes, &c)
	}
	return s
}

func (s *bruteSearch) run() {
	if s.enough() && s.leastAlone() {
		s.place(s.first)
	}
}

// enough sees at once where all lanes together want more memory, functions or CPUs than there are.
func (s *bruteSearch) enough() bool {
	var all []*bruteLane
	for _, l := range s.lanes[s.first:] {
		if n := l.spec.Network; n.Queues > 0 && slices.ContainsFunc(s.f.m.devices, func(d bruteDevice) bool {
			return (d.netdev == n.Device || d.address == n.Device) && len(d.interrupts) > 0 && n.Queues > len(d.interrupts)
		}) {
			return false
		}
		anywhere := *l
		anywhere.memory = 1<<len(s.f.m.nodes) - 1
		all = append(all, &anywhere)
	}
	return s.stock.holds(all) && s.room(s.first) && s.functions(all, slices.Clone(s.stock.vfs))
}

// room says whether lanes from i on, without those that share, have CPUs enough, one of which is
// housekeeping's.
func (s *bruteSearch) room(i int) bool {
	free := s.f.usable
	for _, l := range s.lanes[:i] {
		free &^= l.owned()
	}
	left := free.len() - 1
	for _, l := range s.lanes[i:] {
		if l.spec.CPUs.Share < 2 {
			left -= l.spec.CPUs.Count
		}
	}
	return left >= 0
}

func (s *bruteSearch) functions(lanes []*bruteLane, left []int) bool {
	if len(lanes) == 0 {
		return true
	}
	for _, d := range s.devices(lanes[0]) {
		if d < 0 {
			return s.functions(lanes[1:], left)
		}
		left[d] -= functions(lanes[0].spec)
		if left[d] >= 0 && s.functions(lanes[1:], left) {
			return true
		}
		left[d] += functions(lanes[0].spec)
	}
	return false
}

// leastAlone puts the lanes with the fewest places first and fills in the bound; false where a lane does not
// fit even by itself.
func (s *bruteSearch) leastAlone() bool {
	least, places := map[*bruteLane]bruteCost{}, map[*bruteLane]int{}
	for i := s.first; i < len(s.lanes); i++ {
		l := s.lanes[i]
		s.places1(i, s.lanes[:s.first], func(with []*bruteLane) {
			if why, cost := s.f.judge(with, true); why == "" {
				cost[blockLost] = 0
				if places[l] == 0 || cost.compare(least[l]) < 0 {
					least[l] = cost
				}
				places[l]++
			}
		})
		if places[l] == 0 {
			return false
		}
	}
	slices.SortStableFunc(s.lanes[s.first:], func(a, b *bruteLane) int { return places[a] - places[b] })
	s.alone = make([]bruteCost, len(s.lanes)+1)
	for i := len(s.lanes) - 1; i >= s.first; i-- {
		s.alone[i] = s.alone[i+1].plus(least[s.lanes[i]])
	}
	return true
}

type bruteOption struct {
	cpus, idle, memory mask
	device             int
	cost               bruteCost
}

func (s *bruteSearch) place(i int) {
	if i == len(s.lanes) {
		_, cost := s.f.judge(s.lanes, false)
		if !s.found || cost.compare(s.best) < 0 {
			s.best, s.found, s.text = cost, true, ""
			for _, l := range s.lanes[s.first:] {
				s.text += fmt.Sprintf("%s on %s idle %q memory %q; ", l.name, setOf(l.cpus), setOf(l.idle), setOf(l.memory))
			}
		}
		return
	}
	l := s.lanes[i]
	var options []bruteOption
	s.places1(i, s.lanes[:i], func(with []*bruteLane) {
		s.steps++
		if why, cost := s.f.judge(with, i+1 < len(s.lanes)); why == "" {
			options = append(options, bruteOption{l.cpus, l.idle, l.memory, l.device, cost})
		}
	})
	slices.SortFunc(options, func(a, b bruteOption) int {
		return cmp.Or(a.cost.compare(b.cost), cmp.Compare(a.cpus, b.cpus), cmp.Compare(a.memory, b.memory))
	})
	for _, o := range options {
		if s.steps > s.most {
			s.aborted = true
			return
		}
		if s.any && s.found {
			return
		}
		bound := o.cost.plus(s.alone[i+1])
		if s.found && bound.compare(s.best) >= 0 && !s.everything {
			return // those behind cost no less
		}
		l.cpus, l.idle, l.memory, l.device = o.cpus, o.idle, o.memory, o.device
		if !s.fits(i) || !s.room(i+1) {
			continue
		}
		s.place(i + 1)
	}
	l.cpus, l.idle, l.memory = 0, 0, 0
}

// places1 tries the places of lane i beside the others, with it as the last of what try gets.
func (s *bruteSearch) places1(i int, others []*bruteLane, try func([]*bruteLane)) {
	l := s.lanes[i]
	with := append(slices.Clone(others), l)
	device := l.device
	for _, d := range s.devices(l) {
		s.cpuSets(l, others, func(cpus, idle mask) {
			l.cpus, l.idle, l.device = cpus, idle, d
			for _, l.memory = range s.memories(l) {
				try(with)
			}
		})
	}
	l.cpus, l.idle, l.memory, l.device = 0, 0, 0, device
}

// memories are the sets of nodes that have what a lane asks for, if it were alone; none where it asks for
// none.
func (s *bruteSearch) memories(l *bruteLane) []mask {
	if !asksForMemory(l.spec) {
		return []mask{0}
	}
	if sets, known := s.nodeSets[l.name]; known {
		return sets
	}
	var sets []mask
	alone := *l
	for alone.memory = 1; alone.memory < 1<<len(s.f.m.nodes); alone.memory++ {
		if s.stock.holds([]*bruteLane{&alone}) {
			sets = append(sets, alone.memory)
		}
	}
	s.nodeSets[l.name] = sets
	return sets
}

func asksForMemory(s lane.Spec) bool { return s.Memory.Size > 0 || len(s.Memory.Hugepages) > 0 }

// devices that a lane may use: the one it names, any for its virtual functions, or none (-1).
func (s *bruteSearch) devices(l *bruteLane) []int {
	switch n := l.spec.Network; {
	case n.Device != "":
		return []int{s.f.m.device(n.Device)}
	case n.VFs > 0:
		var all []int
		for d := range s.f.m.devices {
			all = append(all, d)
		}
		return all
	}
	return []int{-1}
}

func functions(s lane.Spec) int { return s.Network.VFs }

// cpuSets gives the sets of CPUs for a lane, one of each kind of those that are alike.
func (s *bruteSearch) cpuSets(l *bruteLane, others []*bruteLane, use func(cpus, idle mask)) {
	free := s.f.usable
	if !l.spec.CPUs.Boot {
		free &^= s.f.boot
	}
	free &= s.open(l, others)
	_, mayBreak := l.spec.Preferred["smt"]
	whole := l.spec.CPUs.SMT == lane.Isolate || l.spec.CPUs.SMT == lane.Pack
	cores := s.coresOf(free, others)
	if whole {
		s.choose(cores, nil, l.spec.CPUs.Count, func(core bruteCore, take mask) (mask, mask, bool) {
			if len(core.threads) != s.f.cores[core.id].len() {
				return 0, 0, false
			}
			all := s.f.cores[core.id]
			if l.spec.CPUs.SMT == lane.Pack {
				return all, 0, take == all
			}
			return take, all &^ take, take.len() == 1
		}, 0, 0, use)
	}
	if !whole || mayBreak {
		any := func(_ bruteCore, take mask) (mask, mask, bool) { return take, 0, true }
		s.choose(cores, nil, l.spec.CPUs.Count, any, 0, 0, use)
	}
}

// open are the CPUs that have nobody, or whose lanes take one more beside them.
func (s *bruteSearch) open(l *bruteLane, others []*bruteLane) mask {
	var free mask
	for id := range s.f.m.cpus {
		count, allowed := 1, max(1, l.spec.CPUs.Share)
		for _, o := range others {
			if o.idle.has(id) {
				allowed = 0
			}
			if o.cpus.has(id) {
				count++
				allowed = min(allowed, max(1, o.spec.CPUs.Share))
			}
		}
		if count <= allowed {
			free |= 1 << id
		}
	}
	return free
}

// bruteCore is a core with threads to take, those that are alike beside each other, and a signature: cores of
// one L3 with the same are alike. L3s of which all cores are alike are alike.
type bruteCore struct {
	id      int
	threads []int
	keys    []uint64 // of the threads
	sign    [8]uint64
	start   int // place of the first core of its L3
	twin    int // of the first core of an L3 before it that is alike; -1 is none
}

func (s *bruteSearch) coresOf(free mask, others []*bruteLane) []bruteCore {
	byL3 := map[int][]bruteCore{}
	for id, all := range s.f.cores {
		if all == 0 {
			continue
		}
		c := s.f.m.cpus[bits.TrailingZeros32(uint32(all))]
		byL3[c.l3] = append(byL3[c.l3], s.core(id, free, others))
	}
	var groups [][]bruteCore
	for _, cores := range byL3 {
		slices.SortFunc(cores, func(a, b bruteCore) int { return cmp.Or(slices.Compare(a.sign[:], b.sign[:]), a.id-b.id) })
		groups = append(groups, cores)
	}
	compare := func(a, b []bruteCore) int {
		return slices.CompareFunc(a, b, func(a, b bruteCore) int { return slices.Compare(a.sign[:], b.sign[:]) })
	}
	slices.SortFunc(groups, func(a, b []bruteCore) int { return cmp.Or(compare(a, b), a[0].id-b[0].id) })
	var all []bruteCore
	for i, cores := range groups {
		start, twin := len(all), -1
		if i > 0 && compare(groups[i-1], cores) == 0 {
			twin = start - len(cores)
		}
		for _, c := range cores {
			c.start, c.twin = start, twin
			all = append(all, c)
		}
	}
	return all
}

func (s *bruteSearch) core(id int, free mask, others []*bruteLane) bruteCore {
	core := bruteCore{id: id}
	type thread struct {
		id  int
		key uint64
	}
	var threads []thread
	var taken []uint64
	all := s.f.cores[id]
	for cpu := range s.f.m.cpus {
		if !all.has(cpu) {
			continue
		}
		var key uint64
		for i, o := range others {
			if o.cpus.has(cpu) {
				key |= 1 << (2 * i)
			}
			if o.idle.has(cpu) {
				key |= 2 << (2 * i)
			}
		}
		for i, list := range s.f.lists {
			if list.has(cpu) {
				key |= 1 << (40 + i)
			}
		}
		if free.has(cpu) {
			threads = append(threads, thread{cpu, key})
		} else {
			taken = append(taken, key)
		}
	}
	slices.SortFunc(threads, func(a, b thread) int { return cmp.Or(cmp.Compare(a.key, b.key), a.id-b.id) })
	slices.Sort(taken)
	c := s.f.m.cpus[bits.TrailingZeros32(uint32(all))]
	kind := uint64(c.node)<<8 | uint64(c.pkg)<<24 | uint64(len(threads))<<32 | uint64(all.len())<<40
	if c.efficient {
		kind |= 1
	}
	if all == s.f.boot {
		kind |= 2
	}
	core.sign[0] = kind
	for i, t := range threads {
		core.threads, core.keys = append(core.threads, t.id), append(core.keys, t.key)
		core.sign[1+i] = t.key
	}
	for i, key := range taken {
		core.sign[1+len(threads)+i] = key | 1<<50
	}
	return core
}

// bruteForm says which CPUs of a core a lane has, and which it keeps idle, if it takes these; false where it
// cannot.
type bruteForm func(core bruteCore, take mask) (cpus, idle mask, ok bool)

// choose takes so many threads of the cores from the last of patterns on. Of cores that are alike the earlier
// gets at least what the later gets, and so of L3s; of threads that are alike the earlier goes first.
func (s *bruteSearch) choose(cores []bruteCore, patterns []int, left int, form bruteForm, cpus, idle mask, use func(cpus, idle mask)) {
	at := len(patterns)
	if left == 0 {
		use(cpus, idle)
		return
	}
	if at == len(cores) {
		return
	}
	core := cores[at]
	most := 1<<len(core.threads) - 1
	if s.everything {
		core.start, core.twin = at, -1
	}
	if at > core.start && cores[at-1].sign == core.sign {
		most = patterns[at-1]
	}
	if t := core.twin; t >= 0 && slices.Equal(patterns[core.start:at], patterns[t:t+at-core.start]) {
		most = min(most, patterns[t+at-core.start])
	}
	for pattern := 0; pattern <= most; pattern++ {
		if !s.everything && !core.canonical(pattern) {
			continue
		}
		var take, rest mask
		for i, t := range core.threads {
			if pattern>>i&1 == 1 {
				take |= 1 << t
			}
		}
		if take != 0 {
			var ok bool
			if take, rest, ok = form(core, take); !ok || take.len() > left {
				continue
			}
		}
		s.choose(cores, append(patterns[:at:at], pattern), left-take.len(), form, cpus|take, idle|rest, use)
	}
}

func (c bruteCore) canonical(pattern int) bool {
	for i := 1; i < len(c.threads); i++ {
		if c.keys[i] == c.keys[i-1] && pattern>>i&1 == 1 && pattern>>(i-1)&1 == 0 {
			return false
		}
	}
	return true
}
