package journal

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// Where steps are is known after any of them come and go, as a search of all of them would find it.
func TestList(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var l list
	var plain []Step
	for n := range 20000 {
		s := Step{Kind: []string{"a", "b"}[r.IntN(2)], Target: fmt.Sprint(r.IntN(40)), After: fmt.Sprint(n)}
		at := slices.IndexFunc(plain, s.Same)
		switch found, is := l.find(s); {
		case is != (at >= 0), is && found != plain[at]:
			t.Fatalf("found %v, %v of %v", found, is, plain)
		case r.IntN(2) == 0 && is:
			l.drop(s)
			plain = slices.Delete(plain, at, at+1)
		case is:
			l.put(s)
			plain[at] = s
		default:
			l.drop(s) // is not there
			l.put(s)
			plain = append(plain, s)
		}
		if !slices.Equal(l.open(), plain) || len(l.at) != len(plain) {
			t.Fatalf("%v, expected %v", l.open(), plain)
		}
	}
}
