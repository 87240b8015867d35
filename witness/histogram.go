package witness

import "isolane.dev/isolane/results"

// nanoseconds converts a time of a trace or since boot.
func nanoseconds(v uint64) results.Nanoseconds { return results.Nanoseconds(v) }

// measure sets the figures of a source.
func measure(s *Source, v *sourceValue) {
	count, total, longest := v.Count, nanoseconds(v.NS), nanoseconds(v.Longest) // v is reused
	s.Count, s.Total, s.Longest, s.P99 = &count, &total, &longest, v.p99()
}

// add counts one intrusion, as the function of that name in bpf/trace.c does.
func (v *sourceValue) add(ns uint64) {
	v.Count++
	v.NS += ns
	v.Longest = max(v.Longest, ns)
	at := len(v.Buckets) - 1
	for at > 0 && upper(at-1) > ns {
		at--
	}
	v.Buckets[at]++
}

// upper returns the upper bound of a bucket. Buckets below 8 are 64 ns wide, the others an eighth of a power
// of two.
func upper(bucket int) uint64 {
	if bucket < 8 {
		return uint64(bucket+1) * 64
	}
	e := bucket/8 - 1
	return uint64(8+bucket%8+1) << e * 64
}

// p99 returns the upper bound of the 99th percentile (nearest rank); nil for fewer than 100.
func (v *sourceValue) p99() *results.Nanoseconds {
	if v.Count < 100 {
		return nil
	}
	rank, seen := v.Count-v.Count/100, uint64(0)
	for at, n := range v.Buckets {
		seen += uint64(n)
		if seen >= rank && at < len(v.Buckets)-1 {
			bound := nanoseconds(min(upper(at), v.Longest))
			return &bound
		}
	}
	longest := nanoseconds(v.Longest)
	return &longest
}

// since returns what was added to v since an earlier reading. A run that continues counts as one in each
// reading. The longest time is exact only if it is the longest of all readings. Otherwise it is the upper
// bound of its bucket, at most an eighth wide.
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
	if now < before { // a run that continued had been counted
		return 0
	}
	return now - before
}
