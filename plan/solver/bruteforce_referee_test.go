package solver_test

import (
	"fmt"
	"math/bits"
	"slices"

	"isolane.dev/isolane/lane"
)

// mask is a set of CPUs or of nodes.
type mask uint32

func (s mask) has(i int) bool { return s>>i&1 == 1 }
func (s mask) len() int       { return bits.OnesCount32(uint32(s)) }

// bruteCost has the fields of docs/placement.md in their order.
type bruteCost [11]int

// Their places.
const (
	brokenWishes = iota
	numaCrossings
	l3Crossings
	unpreparedCPUs
	sharedCores
	memoryDistance
	deviceDistance
	mixedKinds
	efficiencyCPUs
	lanesMoved
	blockLost
)

func (c bruteCost) compare(d bruteCost) int { return slices.Compare(c[:], d[:]) }

func (c bruteCost) plus(d bruteCost) bruteCost {
	for i := range c {
		c[i] += d[i]
	}
	return c
}

// bruteLane is a lane and where it is.
type bruteLane struct {
	name   string
	spec   lane.Spec
	cpus   mask
	idle   mask
	memory mask // nodes from which its sizes come; none where it asks for none
	device int  // of which it has virtual functions, or which is its network's; -1 is none
	before bool // it was placed before
}

func (l *bruteLane) owned() mask { return l.cpus | l.idle }

// referee knows a machine the way that docs/placement.md counts it. It shares no code with the planner.
type referee struct {
	m        *bruteMachine
	usable   mask
	boot     mask   // the core that boots
	lists    []mask // usable CPUs that boot made for lanes, of each list that has some
	isolated mask   // of isolcpus=
	cores    []mask // usable threads of each
	l3s      []mask
	nodes    []mask // usable CPUs of each
	packages []mask
}

func newReferee(m *bruteMachine) *referee {
	f := &referee{m: m}
	group := func(key func(bruteCPU) int) []mask {
		var groups []mask
		for id, c := range m.cpus {
			for len(groups) <= key(c) {
				groups = append(groups, 0)
			}
			if c.usable() {
				groups[key(c)] |= 1 << id
			}
		}
		return groups
	}
	f.cores = group(func(c bruteCPU) int { return c.core })
	if !m.noL3 {
		f.l3s = group(func(c bruteCPU) int { return c.l3 })
	}
	f.packages = group(func(c bruteCPU) int { return c.pkg })
	f.nodes = make([]mask, len(m.nodes))
	copy(f.nodes, group(func(c bruteCPU) int { return c.node }))
	for id, c := range m.cpus {
		if c.usable() {
			f.usable |= 1 << id
		}
	}
	for i, is := range []func(bruteCPU) bool{func(c bruteCPU) bool { return c.isolated }, func(c bruteCPU) bool { return c.managed },
		func(c bruteCPU) bool { return c.nohz }} {
		list := maskOf(m.where(is)) & f.usable
		if list != 0 {
			f.lists = append(f.lists, list)
		}
		if i == 0 {
			f.isolated = list
		}
	}
	if f.usable != 0 {
		f.boot = f.cores[m.cpus[bits.TrailingZeros32(uint32(f.usable))].core]
	}
	return f
}

// in are the numbers of the groups that have CPUs of the set.
func in(groups []mask, set mask) mask {
	var s mask
	for i, g := range groups {
		if g&set != 0 {
			s |= 1 << i
		}
	}
	return s
}

// judge says why lanes cannot be where they are ("" where they can), and what that costs beyond what stood
// there before. Where more lanes are to come, it is the least that it will cost.
func (f *referee) judge(lanes []*bruteLane, more bool) (string, bruteCost) {
	var cost bruteCost
	if why := f.overlap(lanes); why != "" {
		return why, cost
	}
	var before []*bruteLane
	for _, l := range lanes {
		if l.before {
			before = append(before, l)
			if why := f.binding(l, lanes, &cost); why != "" {
				return why, cost
			}
			continue
		}
		if why := f.holds(l, lanes, &cost); why != "" {
			return l.name + ": " + why, cost
		}
		cost[numaCrossings] += max(0, (in(f.nodes, l.cpus)|f.memoryOf(l)).len()-1)
		cost[l3Crossings] += max(0, in(f.oneL3(), l.cpus).len()-1)
		for _, list := range f.lists {
			cost[unpreparedCPUs] += (l.cpus &^ list).len()
		}
		cost[sharedCores] += f.shared(l, lanes, more)
		cost[memoryDistance] += f.memoryDistance(l)
		cost[deviceDistance] += f.distance(l, lanes)
		slow := f.efficient(l.cpus)
		if slow != 0 && slow != l.cpus {
			cost[mixedKinds]++
		}
		if l.spec.CPUs.Kind != "efficiency" && f.efficient(f.usable) != f.usable { // else nothing better can be had
			cost[efficiencyCPUs] += slow.len()
		}
	}
	cost[blockLost] = f.block(before) - f.block(lanes)
	return "", cost
}

// shared counts the cores of a lane of which another lane has a thread, but for the two that both share, or
// housekeeping for good. While more lanes are to come, a thread that is nobody's may become that of one who
// shares.
func (f *referee) shared(l *bruteLane, lanes []*bruteLane, more bool) int {
	var others, all mask
	for _, o := range lanes {
		all |= o.owned()
		if o != l && (o.spec.CPUs.Share < 2 || l.spec.CPUs.Share < 2) {
			others |= o.owned()
		}
	}
	prepared := ^mask(0)
	if len(f.lists) > 0 {
		prepared = 0
	}
	for _, list := range f.lists {
		prepared |= list
	}
	sum := 0
	for _, core := range f.cores {
		if core&l.owned() == 0 {
			continue
		}
		keeps := core &^ all &^ prepared
		if core == f.boot {
			keeps = core &^ all
		}
		if more && l.spec.CPUs.Share > 1 {
			keeps = 0
		}
		if core&others != 0 || keeps != 0 {
			sum++
		}
	}
	return sum
}

// memoryOf are the nodes that a lane needs for memory: of a lane without sizes one where
// its CPUs' nodes have none.
func (f *referee) memoryOf(l *bruteLane) mask {
	if asksForMemory(l.spec) {
		return l.memory
	}
	on := in(f.nodes, l.cpus)
	from := f.m.defaultMemory(on)
	if from&on != 0 {
		return 0
	}
	return from & -from
}

// memoryDistance adds up how far the nodes with memory of a lane are from the farthest of its CPUs.
func (f *referee) memoryDistance(l *bruteLane) int {
	sum, on, memory := 0, in(f.nodes, l.cpus), f.memoryOf(l)
	for n := range f.nodes {
		if !memory.has(n) {
			continue
		}
		farthest := 0
		for k := range f.nodes {
			if on.has(k) {
				farthest = max(farthest, f.m.nodes[k].distances[n]-10)
			}
		}
		sum += farthest
	}
	return sum
}

func (f *referee) efficient(set mask) mask {
	if !f.m.mixed() {
		return 0
	}
	var s mask
	for id, c := range f.m.cpus {
		if set.has(id) && c.efficient {
			s |= 1 << id
		}
	}
	return s
}

// holds checks what a lane asks for and adds the weights of what does not hold and need not.
func (f *referee) holds(l *bruteLane, lanes []*bruteLane, cost *bruteCost) string {
	if l.cpus.len() != l.spec.CPUs.Count || l.owned()&^f.usable != 0 || l.cpus&l.idle != 0 {
		return "not so many usable CPUs"
	}
	if l.owned()&f.boot != 0 && !l.spec.CPUs.Boot {
		return "the boot core"
	}
	for _, wish := range [...]struct {
		name string
		kept bool
	}{
		{"smt", f.smt(l)}, {"kind", f.kind(l)}, {"near", f.near(l, lanes)}, {"apart", f.apart(l, lanes)},
		{"l3", l.spec.CPUs.L3 == "" || in(f.oneL3(), l.cpus).len() == 1},
		{"numa", l.spec.CPUs.NUMA == "" || (in(f.nodes, l.cpus)|f.memoryOf(l)).len() == 1},
	} {
		weight, may := l.spec.Preferred[wish.name]
		if !wish.kept && !may {
			return "the wish " + wish.name
		}
		if !wish.kept {
			cost[brokenWishes] += weight
		}
	}
	return ""
}

// binding checks what a lane that was there before asks of those that come, if it had it until now.
func (f *referee) binding(l *bruteLane, lanes []*bruteLane, cost *bruteCost) string {
	var before []*bruteLane
	for _, o := range lanes {
		if o.before {
			before = append(before, o)
		}
	}
	if f.apart(l, lanes) || !f.apart(l, before) {
		return ""
	}
	weight, may := l.spec.Preferred["apart"]
	if !may {
		return l.name + ": the wish apart, of before"
	}
	cost[brokenWishes] += weight
	return ""
}

// oneL3 are the L3s: nodes, where the machine names none.
func (f *referee) oneL3() []mask {
	if len(f.l3s) == 0 {
		return f.nodes
	}
	return f.l3s
}

func (f *referee) smt(l *bruteLane) bool {
	for _, core := range f.cores {
		mine := l.cpus & core
		switch {
		case mine == 0:
		case l.spec.CPUs.SMT == lane.Isolate && (mine.len() != 1 || l.owned()&core != core):
			return false
		case l.spec.CPUs.SMT == lane.Pack && mine != core:
			return false
		}
	}
	return true
}

func (f *referee) kind(l *bruteLane) bool {
	switch l.spec.CPUs.Kind {
	case "performance":
		return f.efficient(l.cpus) == 0 && (f.m.hybrid || f.m.sameThreads())
	case "efficiency":
		return f.m.hybrid && f.efficient(l.cpus) == l.cpus
	}
	return true
}

// sameThreads says whether all cores have as many threads. Where the machine does not tell kinds of core
// apart, and they have not, of which kind one is is not known.
func (m *bruteMachine) sameThreads() bool {
	threads := map[int]int{}
	for _, c := range m.cpus {
		if !c.online {
			return true // its core may have lost a thread
		}
		threads[c.core]++
	}
	least, most := 1<<30, 0
	for _, n := range threads {
		least, most = min(least, n), max(most, n)
	}
	return least == most
}

// nearest are the nodes with usable CPUs that are nearest to a node: itself if it has some.
func (f *referee) nearest(node int) mask {
	var s mask
	best := 1 << 30
	for n, cpus := range f.nodes {
		switch d := f.m.nodes[node].distances[n]; {
		case cpus == 0:
		case d < best:
			s, best = 1<<n, d
		case d == best:
			s |= 1 << n
		}
	}
	return s
}

// target is the node to be near to by a device or by number; -1 is none or not known.
func (f *referee) target(l *bruteLane) int {
	near := l.spec.Near
	switch {
	case near.NUMANode != nil:
		return *near.NUMANode
	case near.Device != "":
		return f.m.devices[f.m.device(near.Device)].node
	case near.Lane == "" && l.device >= 0:
		return f.m.devices[l.device].node
	}
	return -1
}

func (f *referee) near(l *bruteLane, lanes []*bruteLane) bool {
	switch near := l.spec.Near; {
	case near == lane.Near{}:
	case near.Lane != "":
		if o := find(lanes, near.Lane); o != nil {
			return in(f.nodes, l.cpus)&^in(f.nodes, o.cpus) == 0
		}
	case f.target(l) >= 0:
		return in(f.nodes, l.cpus)&^f.nearest(f.target(l)) == 0
	}
	return true
}

func find(lanes []*bruteLane, name string) *bruteLane {
	for _, l := range lanes {
		if l.name == name {
			return l
		}
	}
	return nil
}

func (f *referee) distance(l *bruteLane, lanes []*bruteLane) int {
	if name := l.spec.Near.Lane; name != "" {
		o := find(lanes, name)
		if o == nil {
			return 0
		}
		farthest := 0
		for n := range f.nodes {
			if !in(f.nodes, l.cpus).has(n) {
				continue
			}
			nearest := 1 << 30
			for k := range f.nodes {
				if in(f.nodes, o.cpus).has(k) {
					nearest = min(nearest, f.m.nodes[n].distances[k])
				}
			}
			farthest = max(farthest, nearest-10)
		}
		return farthest + (in(f.oneL3(), l.cpus) &^ in(f.oneL3(), o.cpus)).len()
	}
	node, farthest := f.target(l), 0
	for n := range f.nodes {
		if node >= 0 && in(f.nodes, l.cpus).has(n) {
			farthest = max(farthest, f.m.nodes[node].distances[n]-10)
		}
	}
	return farthest
}

func (f *referee) apart(l *bruteLane, lanes []*bruteLane) bool {
	groups := f.l3s
	switch l.spec.Apart.Level {
	case "core":
		groups = f.cores
	case "node":
		groups = f.nodes
	case "package":
		groups = f.packages
	}
	if len(groups) == 0 {
		groups = []mask{f.usable} // not known: all CPUs count as sharing one
	}
	for _, o := range lanes {
		if slices.Contains(l.spec.Apart.Lanes, o.name) && in(groups, l.owned())&in(groups, o.owned()) != 0 {
			return false
		}
	}
	return true
}

// overlap checks that CPUs have one lane, or as many as each of them allows, and that one is left.
func (f *referee) overlap(lanes []*bruteLane) string {
	var all mask
	for id := range f.m.cpus {
		count, allowed, idle := 0, 1<<30, false
		for _, l := range lanes {
			if l.owned().has(id) {
				count++
				allowed = min(allowed, max(1, l.spec.CPUs.Share))
				idle = idle || l.idle.has(id)
				all |= 1 << id
			}
		}
		if count > 1 && (idle || count > allowed) {
			return fmt.Sprintf("CPU %d has %d lanes", id, count)
		}
	}
	if f.usable&^all == 0 {
		return "housekeeping has no CPU"
	}
	return ""
}

// block is the largest number of CPUs in free whole cores on one node, the boot core apart.
func (f *referee) block(lanes []*bruteLane) int {
	var all mask
	for _, l := range lanes {
		all |= l.owned()
	}
	most := 0
	for _, node := range f.nodes {
		sum := 0
		for _, core := range f.cores {
			if core&node != 0 && core&all == 0 && core != f.boot {
				sum += core.len()
			}
		}
		most = max(most, sum)
	}
	return most
}

func (m *bruteMachine) device(name string) int {
	return slices.IndexFunc(m.devices, func(d bruteDevice) bool { return d.address == name || d.netdev == name })
}
