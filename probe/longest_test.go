package probe

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Longest keeps what sorting everything would keep, for few and many samples, for many equal ones, and after
// a merge of two parts.
func TestLongest(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 63, 64, 65, 5000} {
		for _, values := range []int64{1_000_000, 3} {
			var whole, odd, even Longest
			var all []int64
			for i := range int64(n) {
				took := 1 + r.Int64N(values)
				all = append(all, took)
				whole.Add(i, i+took)
				if i%2 == 0 {
					even.Add(i, i+took)
				} else {
					odd.Add(i, i+took)
				}
			}
			even.Merge(&odd)
			slices.Sort(all)
			slices.Reverse(all)
			want := all[:min(n, len(whole.heap))]
			for name, l := range map[string]*Longest{"whole": &whole, "merged": &even} {
				var got []int64
				for _, s := range l.Samples() {
					got = append(got, int64(s.End-s.Begin))
				}
				if !slices.Equal(got, want) {
					t.Errorf("%d of %d values, %s: %v, want %v", n, values, name, got, want)
				}
			}
		}
	}
}

func BenchmarkLongest(b *testing.B) {
	var l Longest
	r := rand.New(rand.NewPCG(1, 2))
	b.ReportAllocs()
	for i := range int64(b.N) {
		l.Add(i, i+int64(4000+r.ExpFloat64()*200))
	}
	if l.least < 0 {
		b.Fail()
	}
}
