package solver_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/quantity"
)

// bruteProblem is a machine, the lanes on it and a file of more.
type bruteProblem struct {
	m      *bruteMachine
	before []*bruteLane
	lanes  []*bruteLane
}

func randomProblem(r *rand.Rand) *bruteProblem {
	p := &bruteProblem{m: randomMachine(r)}
	f := newReferee(p.m)
	names := []string{"a", "b", "c", "d"}[:1+r.IntN(4)]
	if r.IntN(100) < 35 {
		for i := range 1 + r.IntN(2) {
			p.randomBefore(r, f, fmt.Sprintf("p%d", i), names)
		}
	}
	known := append([]string{}, names...)
	for _, l := range p.before {
		known = append(known, l.name)
	}
	for _, name := range names {
		for {
			l := &bruteLane{name: name, spec: p.randomSpec(r, name, known), device: -1}
			if declare(l).Validate() == nil {
				p.lanes = append(p.lanes, l)
				break
			}
		}
	}
	return p
}

// randomBefore puts a lane somewhere it may be, not where it is best.
func (p *bruteProblem) randomBefore(r *rand.Rand, f *referee, name string, coming []string) {
	l := &bruteLane{name: name, device: -1, spec: lane.Spec{CPUs: lane.CPUs{Count: 1 + r.IntN(3)}}}
	switch r.IntN(4) {
	case 0:
		l.spec.CPUs.SMT = lane.Isolate
	case 1:
		l.spec.CPUs.Share = 1 + r.IntN(3)
	}
	l.spec.CPUs.Boot = r.IntN(5) == 0
	if r.IntN(3) == 0 {
		l.spec.Apart = lane.Apart{Lanes: []string{coming[r.IntN(len(coming))]}, Level: randomLevel(r)}
		for _, o := range p.before {
			if r.IntN(2) == 0 {
				l.spec.Apart.Lanes = append(l.spec.Apart.Lanes, o.name)
			}
		}
		if r.IntN(2) == 0 {
			l.spec.Preferred = map[string]int{"apart": 1 + r.IntN(3)}
		}
	}
	switch pages := slices.Sorted(maps.Keys(p.m.nodes[0].pool)); {
	case r.IntN(3) == 0:
		l.spec.Memory.Size = bruteGiB
	case len(pages) > 0 && r.IntN(2) == 0:
		l.spec.Memory.Hugepages = map[string]quantity.Bytes{pageName(pages[0]): bruteGiB}
	}
	if len(p.m.devices) > 0 && r.IntN(4) == 0 {
		l.spec.Network = lane.Network{Path: "sriov", VFs: 1, Device: p.m.devices[r.IntN(len(p.m.devices))].netdev}
	}
	s := newBruteSearch(f, p.before, []*bruteLane{l})
	l = s.lanes[s.first]
	var found []bruteLane
	s.places1(s.first, s.lanes[:s.first], func(with []*bruteLane) {
		if why, _ := f.judge(with, false); why == "" && l.memory.len() < 2 && s.fits(s.first) && s.stock.pooled(l) {
			found = append(found, *l)
		}
	})
	if len(found) > 0 {
		*l = found[r.IntN(len(found))]
		l.before = true
		p.before = append(p.before, l)
	}
}

func randomLevel(r *rand.Rand) string {
	return []string{"", "core", "l3", "node", "package"}[r.IntN(5)]
}

func (p *bruteProblem) randomSpec(r *rand.Rand, name string, known []string) lane.Spec {
	chance := func(percent int) bool { return r.IntN(100) < percent }
	s := lane.Spec{CPUs: lane.CPUs{Count: 1 + r.IntN(min(3, 1+len(p.m.cpus)/2/len(known)))}}
	if chance(7) {
		s.CPUs.Count = 4 + r.IntN(5)
	}
	if chance(30) {
		s.CPUs.SMT = []string{lane.Isolate, lane.Pack, lane.Any}[r.IntN(3)]
	}
	if p.m.hybrid && chance(40) || chance(5) {
		s.CPUs.Kind = []string{"performance", "efficiency"}[r.IntN(2)]
	}
	if chance(15) {
		s.CPUs.L3 = lane.One
	}
	if chance(20) {
		s.CPUs.NUMA = lane.One
	}
	if chance(15) {
		s.CPUs.Share = 1 + r.IntN(3)
	}
	s.CPUs.Boot = chance(15)
	p.randomNear(r, name, known, &s)
	if others := without(known, name); len(others) > 0 && chance(25) {
		s.Apart.Lanes = []string{others[r.IntN(len(others))]}
		if o := others[r.IntN(len(others))]; o != s.Apart.Lanes[0] && chance(30) {
			s.Apart.Lanes = append(s.Apart.Lanes, o)
		}
		s.Apart.Level = randomLevel(r)
	}
	p.randomMemory(r, &s)
	p.randomNetwork(r, &s)
	for _, wish := range s.Wishes() {
		if chance(50) {
			if s.Preferred == nil {
				s.Preferred = map[string]int{}
			}
			s.Preferred[wish] = 1 + r.IntN(3)
		}
	}
	if chance(10) {
		s.Roles = map[string]int{"main": 1}
	}
	return s
}

func without(names []string, name string) []string {
	var rest []string
	for _, n := range names {
		if n != name {
			rest = append(rest, n)
		}
	}
	return rest
}

func (p *bruteProblem) randomNear(r *rand.Rand, name string, known []string, s *lane.Spec) {
	switch others := without(known, name); r.IntN(8) {
	case 0:
		n := r.IntN(len(p.m.nodes))
		s.Near.NUMANode = &n
	case 1:
		if len(p.m.devices) > 0 {
			s.Near.Device = p.m.devices[r.IntN(len(p.m.devices))].netdev
		}
	case 2:
		if len(others) > 0 {
			s.Near.Lane = others[r.IntN(len(others))]
		}
	}
}

func (p *bruteProblem) randomMemory(r *rand.Rand, s *lane.Spec) {
	if r.IntN(100) < 30 {
		s.Memory.Size = quantity.Bytes((1 + r.IntN(3)) * bruteGiB)
	}
	for _, page := range slices.Sorted(maps.Keys(p.m.nodes[0].pool)) {
		if r.IntN(100) < 20 {
			s.Memory.Hugepages = map[string]quantity.Bytes{pageName(page): quantity.Bytes((1 + r.IntN(2)) * bruteGiB)}
		}
	}
}

func pageName(page int) string { return map[int]string{brutePage2Mi: "2Mi", brutePage1Gi: "1Gi"}[page] }

func (p *bruteProblem) randomNetwork(r *rand.Rand, s *lane.Spec) {
	if len(p.m.devices) == 0 || r.IntN(100) < 70 {
		return
	}
	s.Network.Device = p.m.devices[r.IntN(len(p.m.devices))].netdev
	switch r.IntN(4) {
	case 0:
		s.Network.Queues = 1 + r.IntN(3)
	case 1, 2:
		s.Network.Path = "sriov"
		s.Network.VFs = 1 + r.IntN(2)
		if r.IntN(3) == 0 {
			s.Network.Device = ""
		}
	}
}

func declare(l *bruteLane) lane.Lane {
	return lane.Lane{APIVersion: lane.APIVersion, Kind: lane.Kind, Metadata: lane.Metadata{Name: l.name}, Spec: l.spec}
}

func (p *bruteProblem) declared() []lane.Lane {
	var lanes []lane.Lane
	for _, l := range p.lanes {
		lanes = append(lanes, declare(l))
	}
	return lanes
}

// placed is what the planner is told of the lanes before.
func (p *bruteProblem) placed() plan.Placement {
	if len(p.before) == 0 {
		return plan.Placement{}
	}
	was := plan.Placement{APIVersion: plan.APIVersion, Kind: plan.Kind, Optimal: true,
		Host: plan.Machine{Hostname: "brute", CPUs: p.m.where(func(bruteCPU) bool { return true })}}
	rest, used := newReferee(p.m).usable, map[int]int{}
	for _, l := range p.before {
		nodes := l.memory
		if nodes == 0 {
			nodes = p.m.defaultMemory(in(newReferee(p.m).nodes, l.cpus))
		}
		placed := plan.Lane{Name: l.name, CPUs: setOf(l.cpus), Idle: setOf(l.idle), MemoryNodes: setOf(nodes), Reasons: []string{},
			Spec: l.spec}
		if l.spec.Memory.Size > 0 {
			placed.Memory = []plan.Memory{{Node: setOf(l.memory).First(), Bytes: uint64(l.spec.Memory.Size)}}
		}
		for size, total := range l.spec.Memory.Hugepages {
			page := uint64(pageMiB(size)) << 20
			placed.Hugepages = []plan.Hugepages{{Node: setOf(l.memory).First(), PageBytes: page, Pages: uint64(total) / page}}
		}
		if l.device >= 0 {
			placed.Devices = []plan.Device{{Address: p.m.devices[l.device].address, VFs: []int{used[l.device]}}}
			used[l.device]++
		}
		was.Lanes = append(was.Lanes, placed)
		rest &^= l.owned()
	}
	was.Housekeeping = setOf(rest)
	return was
}

// defaultMemory is where a lane without sizes has memory: on its nodes, else on the nearest of them all.
func (m *bruteMachine) defaultMemory(nodes mask) mask {
	var own, nearest mask
	least := 1 << 30
	for id, n := range m.nodes {
		if n.memory == 0 || !n.allowed {
			continue
		}
		if nodes.has(id) {
			own |= 1 << id
		}
		away := 1 << 30
		for from := range m.nodes {
			if nodes.has(from) {
				away = min(away, m.nodes[from].distances[id])
			}
		}
		if away < least {
			least, nearest = away, 0
		}
		if away == least {
			nearest |= 1 << id
		}
	}
	if own != 0 {
		return own
	}
	return nearest
}

func setOf(s mask) cpuset.Set {
	var ids []int
	for i := range 32 {
		if s.has(i) {
			ids = append(ids, i)
		}
	}
	return cpuset.Of(ids...)
}

func maskOf(s cpuset.Set) mask {
	var m mask
	for id := range s.All() {
		m |= 1 << id
	}
	return m
}

// String is the problem as a person would repeat it.
func (p *bruteProblem) String() string {
	var b strings.Builder
	b.WriteString(p.m.String())
	for _, l := range p.before {
		fmt.Fprintf(&b, "  placed: CPUs %s idle %s memory of nodes %s: %s\n", setOf(l.cpus), setOf(l.idle), setOf(l.memory), brief(l))
	}
	for _, l := range p.lanes {
		fmt.Fprintf(&b, "  file: %s\n", brief(l))
	}
	return b.String()
}

// brief is a lane in one line.
func brief(l *bruteLane) string {
	data, err := yaml.Marshal(l.spec)
	if err != nil {
		return err.Error()
	}
	json, err := yaml.YAMLToJSON(data)
	if err != nil {
		return err.Error()
	}
	return l.name + ": " + strings.ReplaceAll(string(json), `"`, "")
}
