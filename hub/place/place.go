// Package place chooses a host for a lane among many. The hub narrows by what is free, plans on its copy of
// the best hosts with the real planner, and asks the first: only the host itself knows what is true there,
// and says yes or no. It reads and writes nothing; the host is asked by an interface.
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

// Where says which hosts may be chosen. What is empty leaves all.
type Where struct {
	Tenant []string           // one of these sites: of hosts at others the tenant learns nothing
	Sites  []string           // one of these
	Zones  []string           // one of these
	Hosts  []string           // one of these
	Labels map[string]string  // all of these
	Except map[string]string  // not these hosts, and why
	Said   map[string]Verdict // these are not asked again yet, by what they have said
	Mute   map[string]string  // those at these sites are not asked yet, and why
	Root   string             // one that lets this tenant's commands be root
}

// Asker asks hosts.
type Asker interface {
	// Reserve asks a host to reserve a lane. It returns what the host has placed after its answer; the error is
	// a *plan.Refusal where the answer is no, and another one where there is none.
	Reserve(ctx context.Context, name string, l lane.Lane) (plan.Placement, error)
}

// Batch is how many hosts are planned on before the first is asked, and Noes how many may refuse before a
// lane is pending.
const (
	Batch = 16
	Noes  = 3
)

// Decision is what came of a lane.
type Decision struct {
	Lane      string
	Host      string         // that has reserved it; "": none has
	Placement plan.Placement // of all lanes of that host
	Pending   bool           // hosts that should have taken it have refused: asking again may help
	Verdicts  []Verdict      // of each host, as in Why

	full []*entry // on which the lane would fit if less were there, where most is free first
}

// Verdict is what speaks for or against a host.
type Verdict struct {
	Host, Site string
	Kind       Kind
	Why        string     // in words
	Change     string     // the cheapest that would admit the lane there; "": none is known
	Own        bool       // the change is one of the lane itself
	Before     bool       // it said so before, and was not asked again
	price      plan.Price // of Change
}

// Kind is what a verdict is, in a word that says nothing of what else is on a host.
type Kind string

// The kinds, in the order in which Why has them.
const (
	Chosen   Kind = "chosen"
	Refused  Kind = "refused"        // the host itself says no
	Silent   Kind = "without answer" // it was asked
	Full     Kind = "too full"
	Later    Kind = "not needed" // others came first
	Excluded Kind = "excluded"   // by where the lane may be
	Foreign  Kind = "not the tenant's"
	Barred   Kind = "not letting it be root (spec.root)"
)

func (v Verdict) rank() int {
	return slices.Index([]Kind{Chosen, Refused, Silent, Full, Later, Barred, Excluded, Foreign}, v.Kind)
}

// Index is the hub's copy of all hosts, and what is free on each. It is no more than a list: a thousand
// hosts are looked through in the time of one plan.
type Index struct{ hosts map[string]*entry }

type entry struct {
	Host
	shapes []solver.Shape
	cost   plan.Cost         // of what is placed
	memory uint64            // bytes that are free, of all nodes
	pages  map[uint64]uint64 // so too, by their size in bytes
}

// Put sets the copy of a host, whose machine is valid. The error is a *plan.Mismatch where what is placed is
// not for its machine.
func (x *Index) Put(h Host) error {
	if err := h.Placed.Validate(); err != nil { // a host may say anything
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

// plannable says what machine is too large for the planner, which tries the NUMA nodes that have CPUs or
// memory in all combinations: one host must not keep the Apps of all others waiting.
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

// Place chooses a host for a lane, and has it reserve the lane. The error is of the context only: what hosts
// say is in the decision.
func (x *Index) Place(ctx context.Context, l lane.Lane, w Where, ask Asker) (Decision, error) {
	d := Decision{Lane: l.Metadata.Name}
	fitting, full := x.narrow(l, w, &d)
	noes := 0
	for len(fitting) > 0 && d.Host == "" && noes < Noes {
		n := min(Batch, len(fitting))
		for _, c := range x.plan(fitting[:n], l, &d) {
			if d.Host != "" || noes == Noes {
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
		if by != 0 || a.Change != "" { // where most is free first
			return by
		}
		return cmp.Compare(a.Why, b.Why)
	})
}

// Explain says for hosts that are too full, those that lack least, what keeps the lane out there, and the
// cheapest change that would admit it. It takes longer than the decision.
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

// narrow returns the hosts on which a lane may fit, where it leaves least first, and those that are too full,
// where most is free first. The others do not match.
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

// excludes says why a host may not be chosen, "" where it may.
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
	return w.Except[h.Name]
}

// bounded says whether the free shapes are a limit for a lane. They are of CPUs that nobody shares, without
// the boot core.
func bounded(l lane.Lane) bool {
	c := l.Spec.CPUs
	return !c.Boot && c.Share <= 1 && c.List.IsEmpty()
}

// shape is the largest lane on a host that is like l where l insists on it.
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

// left is how many CPUs of the largest lane of its kind a lane leaves; below zero it does not fit.
func left(e *entry, l lane.Lane) int { return shape(e, l).CPUs - l.Spec.CPUs.Count }

func lacks(e *entry, l lane.Lane) string {
	s := shape(e, l)
	within := map[string]string{"l3": " below one L3", "node": " on one NUMA node"}[s.Within]
	return fmt.Sprintf("the largest free lane with smt %s%s has %d CPUs, this one asks for %d",
		s.SMT, within, s.CPUs, l.Spec.CPUs.Count)
}

// candidate is a host whose copy takes the lane.
type candidate struct {
	*entry
	would plan.Placement
}

// plan runs the planner on copies of hosts, and returns those that take the lane: where it gets the
// better place first, and among equals where it leaves least.
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

// adds is what a lane costs beside those that are on the host: a host is no worse for what it has.
func (c candidate) adds() plan.Cost { return c.would.Cost.Minus(c.cost) }

// explain has a refusal's reasons and its cheapest change.
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

// ask asks a host, and corrects the copy of it by what it answers. It says whether the answer was no.
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
		v.Why = err.Error()
		return true, nil
	}
	corrected := c.Host
	corrected.Placed = now
	if wrong := x.Put(corrected); wrong != nil {
		x.Remove(c.Name) // until it says anew what it is like
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
