package plan

import (
	"fmt"
	"slices"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
)

// Refusal is why a lane does not fit. It is an error, and a document of its own.
type Refusal struct {
	Lane     string   `json:"lane"`
	Blocking []string `json:"blocking"`
	Cheapest string   `json:"cheapest,omitempty"` // change that would admit it
}

// Error is the refusal in one line.
func (r *Refusal) Error() string {
	text := fmt.Sprintf("lane %s refused: %s", r.Lane, strings.Join(r.Blocking, "; "))
	if r.Cheapest != "" {
		text += "; cheapest change: " + r.Cheapest
	}
	return text
}

// Solve adds lanes to what is placed on h already: all of them or none. What is placed stays where
// it is. The error is a *Refusal where a lane does not fit.
//
// This version places CPUs and memory nodes one lane after the other, each as near together as the
// machine allows; it calls the answer optimal only where nothing had to be given up. What a lane
// asks for and this version does not plan is refused, never left out.
func Solve(h host.Host, placed Placement, lanes []lane.Lane) (Placement, error) {
	p := Placement{Lanes: slices.Clone(placed.Lanes), Optimal: true}
	for _, l := range lanes {
		if err := supported(l); err != nil {
			return Placement{}, err
		}
		got, optimal, err := place(h, p, l)
		if err != nil {
			return Placement{}, err
		}
		p.Lanes = append(p.Lanes, got)
		p.Optimal = p.Optimal && optimal
	}
	p.Housekeeping = h.Usable().Difference(p.CPUs())
	return p, nil
}

func supported(l lane.Lane) error {
	for _, wish := range []struct {
		asked bool
		field string
	}{
		{l.Spec.Memory.Size > 0 || len(l.Spec.Memory.Hugepages) > 0, "spec.memory"},
		{l.Spec.Network != lane.Network{}, "spec.network"},
		{l.Spec.Near.Device != "", "spec.near.device"},
		{l.Spec.Near.Lane != "", "spec.near.lane"},
		{len(l.Spec.Roles) > 0, "spec.roles"},
		{l.Spec.CPUs.Kind != "", "spec.cpus.kind"},
	} {
		if wish.asked {
			return &Refusal{Lane: l.Metadata.Name, Blocking: []string{wish.field + ": not planned yet by this version"}}
		}
	}
	return nil
}

// core is a physical core with the threads that are still free.
type core struct {
	free  cpuset.Set
	whole bool // all of its usable threads are free
	l3    int
	node  int
}

// place finds the CPUs of one lane.
func place(h host.Host, p Placement, l lane.Lane) (Lane, bool, error) {
	cores, boot := freeCores(h, p, l)
	need := l.Spec.CPUs.Count
	best := Lane{}
	found, crosses := false, 0
	// One node that has room, the fullest first, so that large blocks stay whole; then all nodes.
	for _, group := range groups(cores) {
		cpus, idle, ok := take(group.cores, need, l.Spec.CPUs.SMT)
		if ok {
			best = Lane{Name: l.Metadata.Name, CPUs: cpus, Idle: idle, MemoryNodes: nodesOf(h, cpus)}
			found, crosses = true, group.crossings
			break
		}
	}
	if !found {
		return Lane{}, false, refuse(h, p, l, cores, boot)
	}
	shared := sharesCore(h, best)
	best.BusyPoll = l.Spec.Scheduling.BusyPoll
	best.Reasons = reasons(h, best, boot, shared)
	return best, crosses == 0 && !shared, nil
}

// freeCores returns the cores with free threads, and the boot core, which stays housekeeping.
func freeCores(h host.Host, p Placement, l lane.Lane) ([]core, cpuset.Set) {
	taken := p.CPUs()
	var cores []core
	var boot cpuset.Set
	for i, threads := range h.Cores() {
		if i == 0 {
			boot = threads
			continue
		}
		free := threads.Difference(taken)
		if free.IsEmpty() {
			continue
		}
		c := core{free: free, whole: free == threads, l3: -1, node: -1}
		if cpu, ok := h.CPU(threads.First()); ok {
			if cpu.L3 != nil {
				c.l3 = *cpu.L3
			}
			if cpu.NUMANode != nil {
				c.node = *cpu.NUMANode
			}
		}
		if n := l.Spec.Near.NUMANode; n != nil && *n != c.node {
			continue
		}
		cores = append(cores, c)
	}
	return cores, boot
}

// group is a set of cores to take a lane from.
type group struct {
	cores     []core
	crossings int // 0 within one L3, 1 within one node, 2 across nodes
}

// groups lists where a lane may lie, the best first: within one L3, within one node, anywhere.
// Within a level those with the fewest free threads come first.
func groups(cores []core) []group {
	by := func(key func(core) int, crossings int) []group {
		at := map[int]int{}
		var gs []group
		for _, c := range cores {
			k := key(c)
			if _, ok := at[k]; !ok {
				at[k] = len(gs)
				gs = append(gs, group{crossings: crossings})
			}
			gs[at[k]].cores = append(gs[at[k]].cores, c)
		}
		slices.SortStableFunc(gs, func(a, b group) int { return threads(a.cores) - threads(b.cores) })
		return gs
	}
	all := by(func(c core) int { return c.node<<16 + c.l3 }, 0)
	all = append(all, by(func(c core) int { return c.node }, 1)...)
	return append(all, group{cores, 2})
}

func threads(cores []core) int {
	n := 0
	for _, c := range cores {
		n += c.free.Len()
	}
	return n
}

// take picks count CPUs: whole cores as far as they go, and a single thread where the rest is odd.
// With isolate each CPU has a whole core, whose other threads stay idle.
func take(cores []core, count int, smt string) (cpus, idle cpuset.Set, ok bool) {
	ordered := slices.Clone(cores)
	slices.SortStableFunc(ordered, func(a, b core) int { // whole cores first, half-used ones at the end
		if a.whole != b.whole {
			if a.whole {
				return -1
			}
			return 1
		}
		return 0
	})
	if smt != lane.Isolate && smt != lane.Pack && count == 1 { // a single thread completes a half-used core
		slices.SortStableFunc(ordered, func(a, b core) int { return a.free.Len() - b.free.Len() })
	}
	for _, c := range ordered {
		left := count - cpus.Len()
		if left == 0 {
			break
		}
		switch smt {
		case lane.Isolate:
			if c.whole {
				first := cpuset.Of(c.free.First())
				cpus, idle = cpus.Union(first), idle.Union(c.free.Difference(first))
			}
		case lane.Pack:
			if c.whole && c.free.Len() <= left {
				cpus = cpus.Union(c.free)
			}
		default:
			cpus = cpus.Union(cpuset.Of(c.free.Slice()[:min(left, c.free.Len())]...))
		}
	}
	return cpus, idle, cpus.Len() == count
}

func nodesOf(h host.Host, cpus cpuset.Set) cpuset.Set {
	var nodes []int
	for id := range cpus.All() {
		if c, ok := h.CPU(id); ok && c.NUMANode != nil {
			nodes = append(nodes, *c.NUMANode)
		}
	}
	near := cpuset.Of(nodes...).Intersection(h.MemoryNodes())
	if near.IsEmpty() { // nodes without memory
		return h.MemoryNodes()
	}
	return near
}

// sharesCore says whether a thread of the lane's cores belongs to somebody else.
func sharesCore(h host.Host, l Lane) bool {
	own := l.CPUs.Union(l.Idle)
	for _, threads := range h.Cores() {
		if threads.Intersects(own) && !threads.IsSubsetOf(own) {
			return true
		}
	}
	return false
}

func reasons(h host.Host, l Lane, boot cpuset.Set, shared bool) []string {
	why := []string{fmt.Sprintf("CPU %s: free, on NUMA node %s", l.CPUs, l.MemoryNodes),
		fmt.Sprintf("not CPU %s: the boot core stays housekeeping", boot)}
	if !l.Idle.IsEmpty() {
		why = append(why, fmt.Sprintf("CPU %s idle: siblings of the lane's CPUs", l.Idle))
	}
	if shared {
		why = append(why, "shares a core with others: the count does not fill whole cores")
	}
	if h.Kernel.Isolated != nil && h.Kernel.Isolated.Intersects(l.CPUs) {
		why = append(why, fmt.Sprintf("CPU %s: isolated by the kernel", l.CPUs.Intersection(*h.Kernel.Isolated)))
	}
	return why
}

func refuse(h host.Host, p Placement, l lane.Lane, cores []core, boot cpuset.Set) error {
	whole := 0
	for _, c := range cores {
		if c.whole {
			whole++
		}
	}
	r := &Refusal{Lane: l.Metadata.Name, Blocking: []string{
		fmt.Sprintf("asks for %d CPUs (smt: %s), free are %d on %d cores, of them %d whole", l.Spec.CPUs.Count, smtName(l), threads(cores), len(cores), whole),
		fmt.Sprintf("of CPUs %s, %s stay housekeeping with the boot CPU, %s belong to other lanes", h.Usable(), boot, orNone(p.CPUs())),
	}}
	if n := l.Spec.Near.NUMANode; n != nil {
		r.Blocking = append(r.Blocking, fmt.Sprintf("spec.near.numaNode: %d", *n))
	}
	if most := largest(cores, l.Spec.CPUs.SMT); most > 0 && most < l.Spec.CPUs.Count {
		r.Cheapest = fmt.Sprintf("spec.cpus.count: %d", most)
	}
	return r
}

// largest is how many CPUs would fit.
func largest(cores []core, smt string) int {
	for n := threads(cores); n > 0; n-- {
		if _, _, ok := take(cores, n, smt); ok {
			return n
		}
	}
	return 0
}

func smtName(l lane.Lane) string {
	if l.Spec.CPUs.SMT == "" {
		return lane.Any
	}
	return l.Spec.CPUs.SMT
}

func orNone(s cpuset.Set) string {
	if s.IsEmpty() {
		return "none"
	}
	return s.String()
}
