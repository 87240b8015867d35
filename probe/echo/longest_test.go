package echo

import (
	"math/rand/v2"
	"slices"
	"testing"

	"isolane.dev/isolane/results"
)

// What is kept is what sorting everything keeps, for few and many, and for many equal ones.
func TestLongest(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 63, 64, 65, 5000} {
		for _, values := range []int64{1_000_000, 3} {
			var l longest
			var all []int64
			for i := range int64(n) {
				took := 1 + r.Int64N(values)
				all = append(all, took)
				if took > l.least {
					l.add(i, i+took)
				}
			}
			slices.Sort(all)
			slices.Reverse(all)
			var got []int64
			for _, s := range l.samples() {
				got = append(got, int64(s.End-s.Begin))
			}
			if want := all[:min(n, len(l.heap))]; !slices.Equal(got, want) {
				t.Errorf("%d of %d values: %v, want %v", n, values, got, want)
			}
		}
	}
}

func BenchmarkLongest(b *testing.B) {
	var l longest
	r := rand.New(rand.NewPCG(1, 2))
	b.ReportAllocs()
	for i := range int64(b.N) {
		if took := int64(4000 + r.ExpFloat64()*200); took > l.least {
			l.add(i, i+took)
		}
	}
	if results.Nanoseconds(l.least) < 0 {
		b.Fail()
	}
}
