package witness

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"isolane.dev/isolane/results"
)

func TestInterval(t *testing.T) {
	var before sourceValue
	for _, ns := range []uint64{1000, 5_000_000} {
		before.add(ns)
	}
	now := before
	for _, ns := range []uint64{700, 3000} {
		now.add(ns)
	}
	// 3000 ns are in the bucket that ends at 3072.
	if d := now.since(&before); d.Count != 2 || d.NS != 3700 || d.Longest != 3072 {
		t.Errorf("%d times, %d ns, the longest %d", d.Count, d.NS, d.Longest)
	}
	longest := now
	longest.add(9_000_000)
	if d := longest.since(&now); d.Count != 1 || d.Longest != 9_000_000 {
		t.Errorf("the longest of all: %d times, the longest %d", d.Count, d.Longest)
	}
	if d := now.since(&now); d.Count != 0 || d.NS != 0 {
		t.Errorf("nothing since: %d times, %d ns", d.Count, d.NS)
	}
	var first, later sourceValue // a run that goes on
	first.add(1_000_000_000)
	later.add(2_000_000_000)
	if d := later.since(&first); d.Count != 1 || d.NS != 1_000_000_000 || d.Longest != 2_000_000_000 {
		t.Errorf("a run that goes on: %d times, %d ns, the longest %d", d.Count, d.NS, d.Longest)
	}
}

func TestAdded(t *testing.T) {
	count := func(n uint64) *uint64 { return &n }
	took := func(n results.Nanoseconds) *results.Nanoseconds { return &n }
	before := []Source{{CPU: 1, Kind: results.Softirq, Name: "RCU", Count: count(5)}, {CPU: 1, Kind: results.Steal, Total: took(30)}}
	now := []Source{{CPU: 1, Kind: results.Softirq, Name: "RCU", Count: count(7)}, {CPU: 2, Kind: results.Softirq, Name: "RCU", Count: count(1)},
		{CPU: 1, Kind: results.Steal, Total: took(30)}}
	want := []Source{{CPU: 1, Kind: results.Softirq, Name: "RCU", Count: count(2)}, {CPU: 2, Kind: results.Softirq, Name: "RCU", Count: count(1)}}
	if diff := cmp.Diff(want, added(now, before)); diff != "" {
		t.Error(diff)
	}
}
