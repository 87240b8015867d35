package simulate

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
)

func lanesOf(sets ...string) (p plan.Placement) {
	for _, s := range sets {
		all, err := cpuset.Parse(s)
		if err != nil {
			panic(err)
		}
		p.Lanes = append(p.Lanes, plan.Lane{Name: s, CPUs: all})
	}
	return p
}

// A referee that finds nothing wrong must have found the wrong that there is.
func TestRefereeFinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := hosttest.Machine{Packages: 1, CoresPerPackage: 4, ThreadsPerCore: 2}.Host(t) // CPUs 0-3, siblings 4-7
		f := &Referee{Margin: time.Second}
		wrong := func(want string) {
			t.Helper()
			all := strings.Join(f.Verdict(), "; ")
			if f.wrong = nil; want == "" && all != "" || !strings.Contains(all, want) {
				t.Errorf("%q is wrong, expected %q", all, want)
			}
		}
		f.Placed("a", h, lanesOf("1"))
		f.Placed("b", h, lanesOf("1,5", "2,6"))
		f.Uses("t", 2, 2, 8)
		<-time.After(time.Minute)
		asks := func(cpus int, smt string) Request {
			return Request{Name: "r", Tenant: "t", CPUs: cpus, SMT: smt, Since: time.Now()}
		}
		f.Full(asks(6, lane.Any), time.Now())
		f.Full(asks(3, lane.Isolate), time.Now())
		wrong("")
		f.Full(asks(5, lane.Any), time.Now())
		wrong("fits on a, which had 5 free all the time")
		f.Full(asks(2, lane.Isolate), time.Now())
		wrong("fits on a, which had 2 free")
		f.OverQuota(asks(7, lane.Any), time.Now(), 8)
		wrong("")
		f.OverQuota(asks(6, lane.Any), time.Now(), 8)
		wrong("6 were left all the time")
		early := asks(5, lane.Any)
		f.Placed("a", h, lanesOf("1", "2"))
		f.Placed("a", h, lanesOf("1"))
		f.Full(early, time.Now())
		f.Uses("t", 3, 3, 8)
		f.Uses("t", 2, 2, 8)
		f.OverQuota(asks(6, lane.Any), time.Now(), 8)
		wrong("") // there was less for a moment
		f.Placed("a", h, lanesOf("1-2", "2"))
		wrong("host a: CPUs 2 belong to two lanes")
		f.Uses("t", 9, 9, 8)
		wrong("tenant t has 9 CPUs, and a quota of 8")
		f.Accepted(asks(1, lane.Any), []string{"a", "b"})
		wrong("is on hosts [a b], expected one")
	})
}
