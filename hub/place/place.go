// Package place chooses a host for a lane among many. It narrows the choice by what is free, runs the real
// planner on its copies of the best hosts, and asks the first of those: only the host knows its true state,
// and says yes or no. The package reads and writes nothing; it asks hosts through an interface.
package place

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/solver"
)

// Host is the hub's copy of a host.
type Host struct {
	Name, Site, Zone string
	Labels           map[string]string
	Root             []string // tenants whose commands may be root there
	Machine          host.Host
	Placed           plan.Placement
}

// Where says which hosts may be chosen. An empty field does not restrict them.
type Where struct {
	Tenant []string           // one of these sites; the tenant learns nothing about others
	Sites  []string           // one of these
	Zones  []string           // one of these
	Hosts  []string           // one of these
	Labels map[string]string  // all of these
	Said   map[string]Verdict // not asked, or not again yet, with their verdict
	Mute   map[string]string  // hosts at these sites are not asked yet, with the reason
	Root   string             // only hosts that let this tenant's commands be root
}

// Asker asks hosts.
type Asker interface {
	// Reserve asks a host to reserve a lane. It returns what the host has placed after its answer. The error is
	// a *plan.Refusal or a Declined if the answer is no, and another error if there is none.
	Reserve(ctx context.Context, name string, l lane.Lane) (plan.Placement, error)
}

// Batch is how many hosts are planned on before the first is asked. MaxRefusals is how many may refuse before
// a lane is pending.
const (
	Batch       = 16
	MaxRefusals = 3
)

// Decision is the outcome for a lane.
type Decision struct {
	Lane      string
	Host      string         // the one that has reserved it; "": none
	Placement plan.Placement // of all lanes of that host
	Pending   bool           // hosts that seemed to fit have refused: asking again may help
	Verdicts  []Verdict      // for each host, in the order of Why

	full []*entry // hosts on which the lane would fit if they had less on them, the one with most free first
}

// Verdict is what speaks for or against a host.
type Verdict struct {
	Host, Site string
	Kind       Kind
	Why        string     // in words
	Change     string     // the cheapest that would admit the lane there; "": unknown
	Own        bool       // the change is to the lane itself
	Before     bool       // it is an earlier answer; the host was not asked again
	price      plan.Price // of Change
}

// Index has the hub's copies of all hosts, and what is free on each. A list suffices: looking through a
// thousand hosts takes as long as one plan.
type Index struct{ hosts map[string]*entry }

type entry struct {
	Host
	shapes []solver.Shape
	cost   plan.Cost         // of the placed lanes
	memory uint64            // free bytes on all nodes
	pages  map[uint64]uint64 // free hugepages by page size in bytes
}

// Put sets the copy of a host. It rejects an invalid machine. The error is a *plan.Mismatch if the placement
// is not for that machine.
func (x *Index) Put(h Host) error {
	if err := h.Placed.Validate(); err != nil { // a host may report anything
		return fmt.Errorf("host %s: %w", h.Name, err)
	}
	if err := plannable(h.Machine); err != nil {
		return fmt.Errorf("host %s: %w", h.Name, err)
	}
	room, err := solver.Free(h.Machine, h.Placed)
	if err != nil {
		return fmt.Errorf("host %s: %w", h.Name, err)
	}
	if x.hosts == nil {
		x.hosts = map[string]*entry{}
	}
	now, err := solver.Try(h.Machine, h.Placed, nil)
	if err != nil {
		return fmt.Errorf("host %s: %w", h.Name, err)
	}
	e := &entry{Host: h, shapes: room.Shapes, cost: now.Cost}
	e.keep(room.Nodes)
	x.hosts[h.Name] = e
	return nil
}

// plannable rejects machines that are too large for the planner, which tries all combinations of the NUMA
// nodes that have CPUs or memory: one host must not hold up the Apps of all others.
func plannable(h host.Host) error {
	useful := map[int]bool{}
	for _, n := range h.NUMANodes {
		pages := slices.ContainsFunc(n.Hugepages, func(p host.Hugepages) bool {
			return p.Total != nil && *p.Total > 0
		})
		if n.HasMemory == nil || *n.HasMemory || pages {
			useful[n.ID] = true
		}
	}
	for _, c := range h.CPUs {
		if c.NUMANode != nil {
			useful[*c.NUMANode] = true
		}
	}
	if len(useful) <= 16 && len(h.NUMANodes) <= 63 {
		return nil
	}
	return fmt.Errorf("status.machine: expected at most 63 NUMA nodes, and 16 with CPUs or memory, found %d, "+
		"and %d with them", len(h.NUMANodes), len(useful))
}

// Remove forgets a host.
func (x *Index) Remove(name string) { delete(x.hosts, name) }

// Place chooses a host for a lane, and has it reserve the lane. The error is only that of the context: what
// hosts say is in the decision.
func (x *Index) Place(ctx context.Context, l lane.Lane, w Where, ask Asker) (Decision, error) {
	d := Decision{Lane: l.Metadata.Name}
	fitting, full := x.narrow(l, w, &d)
	noes := 0
	for len(fitting) > 0 && d.Host == "" && noes < MaxRefusals {
		n := min(Batch, len(fitting))
		for _, c := range x.plan(fitting[:n], l, &d) {
			if d.Host != "" || noes == MaxRefusals {
				d.against(c.entry, Later, "not asked: others came first")
				continue
			}
			no, err := x.ask(ctx, c, l, ask, &d)
			if err != nil {
				return d, err
			}
			if no {
				noes++
			}
		}
		fitting = fitting[n:]
	}
	for _, e := range fitting {
		d.against(e, Later, "not planned on: others came first")
	}
	for _, e := range full {
		d.against(e, Full, lacks(e, l))
	}
	d.full = append(d.full, full...)
	d.Pending = d.Host == "" && noes > 0
	d.sort()
	return d, nil
}

func (d *Decision) sort() {
	slices.SortStableFunc(d.Verdicts, func(a, b Verdict) int {
		by := cmp.Or(a.rank()-b.rank(), cmp.Compare(b.Change, "")-cmp.Compare(a.Change, ""),
			a.price.Compare(b.price))
		if by != 0 || a.Change != "" { // the host with most free first
			return by
		}
		return cmp.Compare(a.Why, b.Why)
	})
}

// Explain says, for the full hosts that lack least, what keeps the lane out and the cheapest change that
// would admit it. It takes longer than the decision itself.
func (d *Decision) Explain(l lane.Lane) {
	var first []Verdict
	for _, e := range nearest(d.full, l) {
		_, err := solver.Solve(e.Machine, e.Placed, []lane.Lane{l})
		i := slices.IndexFunc(d.Verdicts, func(v Verdict) bool { return v.Host == e.Name })
		if err == nil || i < 0 {
			continue
		}
		d.Verdicts[i].explain(err)
		first = append(first, d.Verdicts[i])
		d.Verdicts = slices.Delete(d.Verdicts, i, i+1)
	}
	d.Verdicts = append(first, d.Verdicts...)
	d.sort()
}

func (d *Decision) against(e *entry, kind Kind, why string) {
	d.Verdicts = append(d.Verdicts, Verdict{Host: e.Name, Site: e.Site, Kind: kind, Why: why})
}

// narrow returns the hosts on which a lane may fit, the one with least room left first, and those that are
// too full, the one with most free first. It leaves out hosts that do not match.
func (x *Index) narrow(l lane.Lane, w Where, d *Decision) (fitting, full []*entry) {
	for _, name := range slices.Sorted(maps.Keys(x.hosts)) {
		e := x.hosts[name]
		if len(w.Tenant) > 0 && !slices.Contains(w.Tenant, e.Site) {
			d.against(e, Foreign, "its site is not among "+strings.Join(w.Tenant, ", "))
			continue
		}
		if why := w.excludes(e.Host); why != "" {
			d.against(e, Excluded, why)
			continue
		}
		if said, is := w.Said[name]; is {
			d.Verdicts = append(d.Verdicts, Verdict{Host: e.Name, Site: e.Site, Kind: said.Kind, Why: said.Why,
				Before: true})
			continue
		}
		if why, is := w.Mute[e.Site]; is {
			d.Verdicts = append(d.Verdicts, Verdict{Host: e.Name, Site: e.Site, Kind: Silent, Why: why, Before: true})
			continue
		}
		if w.Root != "" && !slices.Contains(e.Root, w.Root) {
			d.against(e, Barred, "expected no spec.root, or isolane-hub agent --root "+w.Root+" on it")
			continue
		}
		if left(e, l) >= 0 || !bounded(l) {
			fitting = append(fitting, e)
		} else {
			full = append(full, e)
		}
	}
	slices.SortStableFunc(fitting, func(a, b *entry) int { return left(a, l) - left(b, l) })
	slices.SortStableFunc(full, func(a, b *entry) int { return left(b, l) - left(a, l) })
	return fitting, full
}

// excludes says why a host may not be chosen; "": it may.
func (w Where) excludes(h Host) string {
	for _, among := range []struct {
		what, has string
		want      []string
	}{{"site", h.Site, w.Sites}, {"zone", h.Zone, w.Zones}, {"name", h.Name, w.Hosts}} {
		if len(among.want) > 0 && !slices.Contains(among.want, among.has) {
			return "its " + among.what + " is not among " + strings.Join(among.want, ", ")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(w.Labels)) {
		if h.Labels[key] != w.Labels[key] {
			return fmt.Sprintf("its label %s is %q, not %q", key, h.Labels[key], w.Labels[key])
		}
	}
	return ""
}

// bounded reports whether the free shapes limit a lane. They count CPUs that nobody shares, without the boot
// core.
func bounded(l lane.Lane) bool {
	c := l.Spec.CPUs
	return !c.Boot && c.Share <= 1 && c.List.IsEmpty()
}

// shape returns the largest free lane on a host that meets the wishes on which l insists.
func shape(e *entry, l lane.Lane) solver.Shape {
	insists := func(wish string) bool { _, soft := l.Spec.Preferred[wish]; return !soft }
	want := solver.Shape{SMT: lane.Any}
	if smt := l.Spec.CPUs.SMT; smt != "" && insists("smt") {
		want.SMT = smt
	}
	switch {
	case l.Spec.CPUs.L3 == lane.One && insists("l3"):
		want.Within = "l3"
	case l.Spec.CPUs.NUMA == lane.One && insists("numa"):
		want.Within = "node"
	}
	i := slices.IndexFunc(e.shapes, func(s solver.Shape) bool {
		return s.SMT == want.SMT && s.Within == want.Within
	})
	return e.shapes[i]
}

// left returns how many CPUs l leaves of the largest lane of its kind. If it is negative, l does not fit.
func left(e *entry, l lane.Lane) int { return shape(e, l).CPUs - l.Spec.CPUs.Count }

func lacks(e *entry, l lane.Lane) string {
	s := shape(e, l)
	within := map[string]string{"l3": " below one L3", "node": " on one NUMA node"}[s.Within]
	return fmt.Sprintf("the largest free lane with smt %s%s has %d CPUs, this one asks for %d",
		s.SMT, within, s.CPUs, l.Spec.CPUs.Count)
}

// candidate is a host whose copy admits the lane.
type candidate struct {
	*entry
	would plan.Placement
}

// plan runs the planner on copies of hosts, and returns those that admit the lane: the one with the better
// place first, and among equals the one with least room left.
func (x *Index) plan(entries []*entry, l lane.Lane, d *Decision) (able []candidate) {
	for _, e := range entries {
		would, err := solver.Try(e.Machine, e.Placed, []lane.Lane{l})
		if err != nil {
			d.against(e, Full, err.Error())
			d.full = append(d.full, e)
			continue
		}
		able = append(able, candidate{e, would})
	}
	slices.SortStableFunc(able, func(a, b candidate) int {
		now, other := a.adds(), b.adds()
		blocks := now.BlockLost - other.BlockLost
		now.BlockLost, other.BlockLost = 0, 0
		return cmp.Or(now.Compare(other), left(a.entry, l)-left(b.entry, l), blocks)
	})
	return able
}

// adds returns the cost of the lane beyond that of the lanes already on the host: they make no host worse.
func (c candidate) adds() plan.Cost { return c.would.Cost.Minus(c.cost) }

// explain takes the reasons and the cheapest change from a refusal.
func (v *Verdict) explain(err error) {
	r, is := errors.AsType[*plan.Refusal](err)
	if !is {
		v.Why = err.Error()
		return
	}
	v.Why = strings.Join(r.Blocking, "; ")
	_, v.Change, _ = strings.Cut(r.Error(), "; cheapest change: ")
	if r.Cheapest != nil {
		v.price, v.Own = r.Cheapest.Price, len(r.Cheapest.Moves) == 0
	}
}

// ask asks a host, and updates the copy of it by the answer. It reports whether the answer was no.
func (x *Index) ask(ctx context.Context, c candidate, l lane.Lane, ask Asker, d *Decision) (
	no bool, err error,
) {
	now, err := ask.Reserve(ctx, c.Name, l)
	v := Verdict{Host: c.Name, Site: c.Site, Kind: Silent}
	defer func() { d.Verdicts = append(d.Verdicts, v) }()
	_, refused := errors.AsType[*plan.Refusal](err)
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case err != nil && !refused:
		if _, declined := errors.AsType[Declined](err); declined {
			v.Kind = Refused
		}
		v.Why = err.Error()
		return true, nil
	}
	corrected := c.Host
	corrected.Placed = now
	if wrong := x.Put(corrected); wrong != nil {
		x.Remove(c.Name) // until it reports again
	}
	if err != nil {
		v.Kind = Refused
		v.explain(err)
		return true, nil
	}
	v.Kind, d.Host, d.Placement = Chosen, c.Name, now
	placed, _ := now.Lane(l.Metadata.Name)
	v.Why = strings.Join(append([]string{"CPUs " + placed.CPUs.String()}, placed.Reasons...), "; ")
	return false, nil
}
