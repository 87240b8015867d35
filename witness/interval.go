package witness

import "isolane.dev/isolane/results"

// added returns the sources that have grown since an earlier reading, with the difference. The longest time
// within the interval is unknown.
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

// identity distinguishes sources.
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
