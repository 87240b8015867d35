package search

import (
	"cmp"
	"slices"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan/stock"
)

// tie decides among places of equal cost: first the fewest whole cores broken up, then the least fill. fill
// sums, over the CPUs, how many CPUs the lane could have in the same domain; it is least if the lane fills up
// an L3.
type tie struct{ broken, fill int32 }

func (t tie) compare(u tie) int {
	return cmp.Or(cmp.Compare(t.broken, u.broken), cmp.Compare(t.fill, u.fill))
}

// score is the part of a cost that adds up core by core, in the order of the cost's fields, with the tie.
type score struct {
	caches     int32 // L3s
	unprepared int32
	shared     int32
	far        int32 // L3s other than those of the lane to be near to
	efficiency int32
	block      int32 // CPUs of free whole cores, on the node where they count
	tie
}

func (s score) plus(t score) score {
	return score{s.caches + t.caches, s.unprepared + t.unprepared, s.shared + t.shared, s.far + t.far,
		s.efficiency + t.efficiency, s.block + t.block, tie{s.broken + t.broken, s.fill + t.fill}}
}

func (s *score) less(t *score) bool {
	switch {
	case s.caches != t.caches:
		return s.caches < t.caches
	case s.unprepared != t.unprepared:
		return s.unprepared < t.unprepared
	case s.shared != t.shared:
		return s.shared < t.shared
	case s.far != t.far:
		return s.far < t.far
	case s.efficiency != t.efficiency:
		return s.efficiency < t.efficiency
	case s.block != t.block:
		return s.block < t.block
	case s.broken != t.broken:
		return s.broken < t.broken
	}
	return s.fill < t.fill
}

// impossible in score.caches marks a number of CPUs that cannot be had.
const impossible = 1<<31 - 1

// sums returns the initial best scores by number of CPUs: only zero CPUs are possible.
func sums(count int) []score {
	s := make([]score, count+1)
	for i := range s[1:] {
		s[i+1].caches = impossible
	}
	return s
}

// join adds the scores of one more part. from[n] becomes how many of the best n CPUs are in that part.
func join(sum, more []score, from []int32) {
	for to := len(sum) - 1; to > 0; to-- { // downwards: smaller numbers do not include the part yet
		for n := 1; n < len(more) && n <= to; n++ {
			if sum[to-n].caches == impossible || more[n].caches == impossible {
				continue
			}
			if next := sum[to-n].plus(more[n]); next.less(&sum[to]) {
				sum[to], from[to] = next, int32(n)
			}
		}
	}
}

type tableKey struct {
	domain  int
	kind    host.CPUKind
	counted bool
}

// domainTable is the best way to take each number of CPUs from a domain: its score, and how many CPUs of each
// core.
type domainTable struct {
	scores []score
	taken  [][]int32 // by core, then by number of CPUs from it and earlier cores
}

// fill finds the best CPUs on a set of nodes by dynamic programming: over the cores of each domain, the
// domains of each L3, and the L3s. kind limits the cores. counted is the node whose free whole cores count.
func (s *search) fill(set stock.NodeSet, kind host.CPUKind, counted int) (Place, bool) {
	type part struct {
		domains []int
		taken   [][]int32 // by domain, then by number of CPUs from it and earlier domains
		all     []int32   // by L3: by number of CPUs from it and earlier ones
	}
	total := sums(s.count)
	var parts []part
	for first, c := range s.m.Domains {
		seen := slices.ContainsFunc(s.m.Domains[:first], func(b stock.Domain) bool {
			return b.Cache == c.Cache && set.Has(b.Node)
		})
		if seen || !set.Has(c.Node) {
			continue
		}
		sum, p := sums(s.count), part{all: make([]int32, s.count+1)}
		for j := first; j < len(s.m.Domains); j++ { // an L3 may span nodes
			d := s.m.Domains[j]
			if d.Cache != c.Cache || !set.Has(d.Node) || !s.allows(d) {
				continue
			}
			from := make([]int32, s.count+1)
			join(sum, s.tableOf(j, kind, counted == d.Node).scores, from)
			p.domains, p.taken = append(p.domains, j), append(p.taken, from)
		}
		for n := range sum[1:] {
			if sum[n+1].caches != impossible {
				sum[n+1].caches++
				if !s.a.caches.IsEmpty() && !s.a.caches.Contains(c.Cache) {
					sum[n+1].far++
				}
			}
		}
		join(total, sum, p.all)
		parts = append(parts, p)
	}
	if total[s.count].caches == impossible {
		return Place{}, false
	}
	p := Place{demand: s.a, tie: total[s.count].tie}
	var cpus, idle []int
	left := s.count
	for i := len(parts) - 1; i >= 0; i-- {
		n := int(parts[i].all[left])
		left -= n
		for j := len(parts[i].domains) - 1; j >= 0; j-- {
			k := int(parts[i].taken[j][n])
			n -= k
			domain := parts[i].domains[j]
			cpus, idle = s.take(cpus, idle, domain, s.tableOf(domain, kind, counted == s.m.Domains[domain].Node), k)
		}
	}
	p.CPUs, p.idle = cpuset.Of(cpus...), cpuset.Of(idle...)
	return p, true
}

// take adds count CPUs of a domain to cpus, and their siblings to idle if the lane keeps them idle.
func (s *search) take(cpus, idle []int, at int, t domainTable, count int) (with, withIdle []int) {
	c := s.m.Domains[at]
	for k := c.To - 1; k >= c.From && count > 0; k-- {
		n := int(t.taken[k-c.From][count])
		count -= n
		if cpus = append(cpus, s.taken(k, n)...); n > 0 && s.a.smt == lane.Isolate {
			idle = append(idle, s.takes[k].open[n:]...)
		}
	}
	return cpus, idle
}

// tableOf returns the table of a domain, which it computes when it is first needed.
func (s *search) tableOf(domain int, kind host.CPUKind, counted bool) domainTable {
	key := tableKey{domain, kind, counted}
	if t, ok := s.table[key]; ok {
		return t
	}
	c := s.m.Domains[domain]
	open := 0
	for k := c.From; k < c.To; k++ {
		open += s.takes[k].most
	}
	count := min(s.count, open)
	t := domainTable{scores: sums(count), taken: make([][]int32, c.To-c.From)}
	rows := make([]int32, (c.To-c.From)*(count+1))
	more := make([]score, 0, 9)
	for k := c.From; k < c.To; k++ {
		t.taken[k-c.From] = rows[(k-c.From)*(count+1) : (k-c.From+1)*(count+1)]
		if s.takes[k].most > 0 && (kind == anyKind || s.m.Cores[k].Kind == kind) {
			more = s.options(more[:0], k, open, counted)
			join(t.scores, more, t.taken[k-c.From])
		}
	}
	s.table[key] = t
	return t
}

// options returns the scores of taking 0, 1, … CPUs of a core. open is how many CPUs its domain has for the
// lane.
func (s *search) options(more []score, c, open int, counted bool) []score {
	core, t := &s.m.Cores[c], &s.takes[c]
	whole := s.m.IsWhole(c)
	slow := s.a.fast && core.Kind != host.Performance
	unprepared := 0
	for n := range t.most + 1 {
		if n > 0 {
			unprepared += s.m.Unprepared(t.open[n-1]) // the order of kept adds no more
		}
		taken, joined := s.taken(c, n), 0
		for _, id := range taken {
			if s.a.share > 1 && s.m.Owner(id) == stock.Several {
				joined++
			}
		}
		v := score{unprepared: int32(unprepared)}
		v.fill = int32((n - joined) * open)
		if n < len(core.CPUs) && s.a.smt != lane.Isolate && s.sharesCore(c, taken) {
			v.shared = 1
		}
		if slow {
			v.efficiency = int32(n)
		}
		if whole && counted {
			v.block = int32(len(core.CPUs))
		}
		if whole && n < len(core.CPUs) && s.a.smt == lane.Any {
			v.broken = 1
		}
		if n == 0 || s.a.smt == lane.Pack && n < len(core.CPUs) {
			v = score{caches: impossible}
		}
		more = append(more, v)
	}
	more[0] = score{}
	return more
}

// sharesCore reports whether somebody else has a thread of a core that the lane takes CPUs of.
func (s *search) sharesCore(c int, taken []int) bool {
	for _, id := range s.m.Cores[c].CPUs {
		if !slices.Contains(taken, id) && s.m.IsOthers(id, s.a.share, -1) {
			return true
		}
	}
	return false
}
