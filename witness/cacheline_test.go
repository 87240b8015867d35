package witness

import (
	"fmt"
	"testing"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/results"
)

// A cache line is seen to come from the client's CPU to the application's and back, where they are two, and not
// more often than a thousand times a second on each.
func TestCacheLine(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.CPUs(2), collecting)
	children := []*burner{start(t, "burn", 0), start(t, "burn", 1)} // so that both have ticks
	for name, c := range map[string]struct {
		application, client cpuset.Set
		seen                bool
	}{
		"two ends":      {cpuset.Of(1), cpuset.Of(0), true},
		"one in common": {cpuset.Of(0, 1), cpuset.Of(0), true},
		"no client":     {cpuset.Of(0, 1), cpuset.Set{}, false},
		"the same":      {cpuset.Of(0, 1), cpuset.Of(0, 1), false},
	} {
		s := begin(t, Watch{Measured: c.application, Client: c.client})
		if _, err := fmt.Fprintln(children[0].in, 300); err != nil {
			t.Fatal(err)
		}
		children[1].burn(300)
		if _, err := children[0].out.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		found, again := s.CacheLine(), s.CacheLine()
		window := end(t, s).Window
		switch {
		case !c.seen && found != nil:
			t.Errorf("%s: %+v", name, found)
		case !c.seen:
		case found == nil || found.P10 > found.Median || found.Median > found.P90 || found.Looks > 2+2*uint64(window)/1e6:
			t.Errorf("%s in %d ns: %+v", name, window, found)
		case again != nil && again.Looks >= found.Looks:
			t.Errorf("%s: %d looks since the %d before", name, again.Looks, found.Looks)
		}
	}
}

func TestRanks(t *testing.T) {
	f := fetches{0: 9, 1: 50, 6: 30, 63: 11}
	if got, want := *f.cacheLine(), (results.CacheLine{Looks: 100, P10: 24, Median: 24, P90: 1016}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := (fetches{3: leastLooks - 1}).cacheLine(); got != nil {
		t.Errorf("of too few looks: %+v", got)
	}
}
