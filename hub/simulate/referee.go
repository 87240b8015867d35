package simulate

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
)

// Referee judges how a hub answers requests for CPUs that come many at a time, while hosts change by
// themselves. It counts cores and keeps its own books; it shares no code with planner and hub.
type Referee struct {
	// Margin is how long the hub may not have heard of what a host has told it, and the referee of what the hub
	// has done. Within that time either state justifies an answer.
	Margin time.Duration

	lock  sync.Mutex
	rooms map[string][]moment[room] // of hosts
	used  map[string][]moment[int]  // CPUs of tenants
	wrong []string
}

// room is how many CPUs a host has free for one lane: of any cores, and with a core for each.
type room struct{ any, isolate int }

// moment is since when something has a value.
type moment[T any] struct {
	since time.Time
	value T
}

// Request is what a tenant has asked for.
type Request struct {
	Name, Tenant string
	CPUs         int
	SMT          string
	Since        time.Time
}

func (r Request) String() string {
	return fmt.Sprintf("%s of %s, %d CPUs with smt %s", r.Name, r.Tenant, r.CPUs, r.SMT)
}

// count counts free CPUs, without those of CPU 0's core.
func count(h host.Host, placed plan.Placement) (r room) {
	var taken cpuset.Set
	for _, l := range placed.Lanes {
		taken = taken.Union(l.CPUs).Union(l.Idle)
	}
	type core struct {
		free, all int
		boot      bool
	}
	cores := map[int]*core{}
	for _, c := range h.CPUs {
		if cores[*c.Core] == nil {
			cores[*c.Core] = &core{}
		}
		of := cores[*c.Core]
		of.all++
		of.boot = of.boot || c.ID == 0
		if !taken.Contains(c.ID) {
			of.free++
		}
	}
	for _, c := range cores {
		switch {
		case c.boot:
		case c.free == c.all:
			r.isolate++
			fallthrough
		default:
			r.any += c.free
		}
	}
	return r
}

// Placed records what a host has placed. A host says so at once if it has less room, and if it has more when
// the hub has taken its report. Two lanes with the same CPU are wrong.
func (f *Referee) Placed(name string, h host.Host, p plan.Placement) {
	f.lock.Lock()
	defer f.lock.Unlock()
	var all cpuset.Set
	for _, l := range p.Lanes {
		own := l.CPUs.Union(l.Idle)
		if both := all.Intersection(own); !both.IsEmpty() {
			f.wrong = append(f.wrong, fmt.Sprintf("host %s: CPUs %s belong to two lanes", name, both))
		}
		all = all.Union(own)
	}
	if f.rooms == nil {
		f.rooms = map[string][]moment[room]{}
	}
	f.rooms[name] = append(f.rooms[name], moment[room]{time.Now(), count(h, p)})
}

// Uses records how many CPUs a tenant has been given, and how many it has with those that are reserved only.
func (f *Referee) Uses(tenant string, given, reserved, quota int) {
	f.lock.Lock()
	defer f.lock.Unlock()
	if given > quota {
		f.wrong = append(f.wrong, fmt.Sprintf("tenant %s has %d CPUs, and a quota of %d", tenant, given, quota))
	}
	if f.used == nil {
		f.used = map[string][]moment[int]{}
	}
	f.used[tenant] = append(f.used[tenant], moment[int]{time.Now(), reserved})
}

// Wrong records something else that must not be.
func (f *Referee) Wrong(format string, args ...any) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.wrong = append(f.wrong, fmt.Sprintf(format, args...))
}

// Accepted judges a yes: one host has the lane.
func (f *Referee) Accepted(r Request, hosts []string) {
	if len(hosts) != 1 {
		f.Wrong("%s: is on hosts %v, expected one", r, hosts)
	}
}

// Full judges a no for want of room: it is wrong if a host had room all the time.
func (f *Referee) Full(r Request, until time.Time) {
	f.lock.Lock()
	defer f.lock.Unlock()
	for name, all := range f.rooms {
		has := least(all, r.Since.Add(-f.Margin), until, func(r room) int { return r.any })
		if r.SMT == lane.Isolate {
			has = least(all, r.Since.Add(-f.Margin), until, func(r room) int { return r.isolate })
		}
		if has >= r.CPUs {
			f.wrong = append(f.wrong, fmt.Sprintf("%s: refused, and fits on %s, which had %d free all the time", r,
				name, has))
			return
		}
	}
}

// OverQuota judges a no for want of quota: it is wrong if the tenant had enough left all the time.
func (f *Referee) OverQuota(r Request, until time.Time, quota int) {
	f.lock.Lock()
	defer f.lock.Unlock()
	left := least(f.used[r.Tenant], r.Since.Add(-f.Margin), until.Add(f.Margin), func(used int) int {
		return quota - used
	})
	if len(f.used[r.Tenant]) == 0 {
		left = quota
	}
	if left >= r.CPUs {
		f.wrong = append(f.wrong, fmt.Sprintf("%s: refused for its quota, of which %d were left all the time", r,
			left))
	}
}

// Verdict returns what was wrong.
func (f *Referee) Verdict() []string {
	f.lock.Lock()
	defer f.lock.Unlock()
	return slices.Clone(f.wrong)
}

// least returns the least value within a time, of those that hold in it; 0: nothing is known of its
// beginning.
func least[T any](all []moment[T], from, to time.Time, of func(T) int) int {
	first := len(all) - 1
	for first >= 0 && all[first].since.After(from) {
		first--
	}
	if first < 0 {
		return 0
	}
	low := of(all[first].value)
	for _, m := range all[first:] {
		if m.since.After(to) {
			break
		}
		low = min(low, of(m.value))
	}
	return low
}
