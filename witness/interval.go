package witness

import "isolane.dev/isolane/results"

// since is what was added to v after an earlier reading. A run that went on all the while is one in each
// reading. How long the longest was is known exactly only where it is the longest of all; else the upper end
// of its bucket is given, an eighth wide at most.
func (v *sourceValue) since(before *sourceValue) sourceValue {
	d := *v
	d.Count = less(v.Count, before.Count)
	d.NS = less(v.NS, before.NS)
	if d.Count == 0 && d.NS > 0 {
		d.Count = 1
	}
	highest := -1
	for i := range d.Buckets {
		d.Buckets[i] = less(v.Buckets[i], before.Buckets[i])
		if d.Buckets[i] > 0 {
			highest = i
		}
	}
	if v.Longest == before.Longest && highest >= 0 && highest < len(d.Buckets)-1 {
		d.Longest = min(v.Longest, upper(highest))
	}
	return d
}

func less[T uint32 | uint64](now, before T) T {
	if now < before { // a run that went on had been counted in
		return 0
	}
	return now - before
}

// added returns the sources that have more than in an earlier reading, with the difference. How long the
// longest was is not known.
func added(now, before []Source) []Source {
	was := map[identity]Source{}
	for _, s := range before {
		was[identityOf(s)] = s
	}
	var more []Source
	for _, s := range now {
		b := was[identityOf(s)]
		s.Count, s.Total = difference(s.Count, b.Count), difference(s.Total, b.Total)
		s.Longest, s.P99 = nil, nil
		if value(s.Count) > 0 || value(s.Total) > 0 {
			more = append(more, s)
		}
	}
	return more
}

func difference[T uint64 | results.Nanoseconds](now, before *T) *T {
	if now == nil {
		return nil
	}
	d := *now - min(*now, value(before))
	return &d
}

// identity tells sources apart.
type identity struct {
	cpu, tid, irq    int
	kind, name, work string
}

func identityOf(s Source) identity {
	id := identity{cpu: s.CPU, tid: s.TID, irq: -1, kind: s.Kind, name: s.Name, work: s.Work}
	if s.IRQ != nil {
		id.irq = *s.IRQ
	}
	return id
}
