package bench

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"testing"

	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/probe/echo"
)

// BenchmarkSockperf measures the round trip over one veth pair with our echo client and server and with sockperf, at the same
// rate, size and way of waiting, in pairs of random order. sockperf's client for a load at a given rate (under-load) has a
// thread that sends and spins and one that receives: with one CPU for both they cannot have real-time priority.
func BenchmarkSockperf(b *testing.B) {
	hosttest.Need(b, hosttest.Root, hosttest.CPUs(2), hosttest.Program("sockperf"), hosttest.Program("ip"))
	cpus, self := ends(b)
	for name, c := range map[string]struct {
		wait           string
		policy         []string
		ours           string
		theirs, serves []string
	}{
		"spin":  {echo.Spin, fifo(), "{wait: spin}", []string{"ping-pong", "--nonblocked"}, []string{"--nonblocked"}},
		"block": {echo.Block, fifo(), "{wait: block}", []string{"ping-pong"}, nil},
		"open-1000": {echo.Block, nil, "{mode: open, rate: 1000, wait: block}", []string{"under-load", "--mps=1000", "--reply-every=1"},
			nil},
	} {
		b.Run(name, func(b *testing.B) {
			network(b)
			figures := func(f floor) map[string]float64 {
				return map[string]float64{"min-ns": float64(f.Min), "P50-ns": float64(f.P50), "P99-ns": float64(f.P99), "P99.9-ns": float64(f.P999)}
			}
			ours := func() map[string]float64 {
				return figures(run(b, cpus, c.policy, []string{"env", "ISOLANE_BENCH=server", "ISOLANE_BENCH_WAIT=" + c.wait, self},
					[]string{"env", "ISOLANE_BENCH=client", "ISOLANE_BENCH_ECHO=" + c.ours, self}, readFloor))
			}
			to := []string{"-i", server, "-p", "7007"}
			theirs := func() map[string]float64 {
				return figures(run(b, cpus, c.policy, append(append([]string{"sockperf", "server"}, to...), c.serves...),
					append(append([]string{"sockperf"}, append(c.theirs, "--full-rtt", "-m", "64", "-t", "2")...), to...), readSockperf))
			}
			for b.Loop() {
				comparePairs(b, [2]string{"echo", "sockperf"}, ours, theirs)
			}
		})
	}
}

// readSockperf reads its statistics, which are in microseconds.
func readSockperf(out []byte) (f floor, err error) {
	for _, want := range []struct {
		line string
		into *int64
	}{{"<MIN> observation", &f.Min}, {`percentile 50\.000`, &f.P50}, {`percentile 99\.000`, &f.P99}, {`percentile 99\.900`, &f.P999},
		{"<MAX> observation", &f.Max}} {
		m := regexp.MustCompile(want.line + ` = +([0-9.]+)`).FindSubmatch(out)
		if m == nil {
			return f, fmt.Errorf("no %s", want.line)
		}
		us, err := strconv.ParseFloat(string(m[1]), 64)
		if err != nil {
			return f, err
		}
		*want.into = int64(math.Round(us * 1000))
	}
	return f, nil
}
