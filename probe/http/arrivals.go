package http

import (
	"math"
	"math/rand/v2"
)

// arrivals say when each request should leave, whatever happened to those before it.
type arrivals struct {
	due      int64 // of the next request, on CLOCK_MONOTONIC
	first    int64
	interval float64 // mean, nanoseconds
	at       float64 // after first; unrounded, so that the rate stays exact
	random   *rand.PCG
}

func newArrivals(p Probe, first int64) arrivals {
	a := arrivals{due: first, first: first, interval: 1e9 / float64(p.Rate)}
	if p.Arrivals == Poisson {
		a.random = rand.NewPCG(p.Seed, 0)
	}
	return a
}

// next advances to the next request.
func (a *arrivals) next() {
	if a.random != nil {
		share := float64(a.random.Uint64()>>11+1) / (1 << 53) // in (0, 1]
		a.at -= math.Log(share) * a.interval
	} else {
		a.at += a.interval
	}
	a.due = a.first + int64(a.at)
}
