// Package http measures how long a web server's replies take: it is an open-loop HTTP/1.1 generator for the
// servers of package webserver.
//
// A request is sent at its intended time, whatever the replies do, on one of a pool of connections that were
// opened before. If none is free, the request waits in the client, and its time still counts from when it
// should have left: nothing is left out (no coordinated omission). As in probe/echo, the client is one locked
// thread without garbage collection, on plain sockets with epoll. The kernel discards the bodies.
package http

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/probe/webserver"
	"isolane.dev/isolane/results"
)

// Run measures against the server.
func (p Probe) Run(ctx context.Context, given probe.Conditions) (results.Measurement, error) {
	p.Seed = max(p.Seed, 1) // by hand; in a session Of has set it
	m := results.Measurement{Name: given.Name, Window: results.Nanoseconds(given.Window), Facts: p.facts()}
	if p.Share != 0 {
		return m, fmt.Errorf("share: %s: expected a rate: of what it is a share only a scenario measures", p.Share)
	}
	webserver.AddVersion(ctx, given.At(p.Port()), &m)
	c, err := newClient(p, given)
	if err != nil {
		return m, err
	}
	defer c.close()
	done, err := probe.HotLoop()
	if err != nil {
		return m, err
	}
	defer done()
	if err = c.open(ctx); err != nil {
		return m, fmt.Errorf("http %s: %w", c.to, err)
	}
	hits, err := p.WatchCache(ctx, given.Dir)
	if err != nil {
		return m, err
	}
	if err = c.run(ctx, given.Start, given.Warmup, given.Window); err != nil {
		return m, fmt.Errorf("http %s: %w", c.to, err)
	}
	m.Begin, m.Values = results.Nanoseconds(c.begin), c.values(given.Name, given.Window)
	c.close()
	if percent, ok, err := hits(ctx, c.replies()); err != nil {
		return m, err
	} else if ok {
		m.Values[given.Name+webserver.HitRate] = percent
	}
	return m, c.report(&m)
}

func (p Probe) facts() map[string]string {
	how := map[string]string{Poisson: fmt.Sprintf("poisson, seed %d", p.Seed), Paced: Paced}[p.Arrivals]
	return map[string]string{"arrivals": cmp.Or(how, "closed loop")}
}

// window adds up the counts of the window.
func (c *client) window() counts {
	a, b := c.count[firstHalf], c.count[secondHalf]
	return counts{due: a.due + b.due, done: a.done + b.done, failed: a.failed + b.failed}
}

// replies returns the number of complete replies, including those before and after the window.
func (c *client) replies() (all uint64) {
	for _, n := range c.count {
		all += n.done
	}
	return all
}

// values returns the single figures of the window.
func (c *client) values(name string, window time.Duration) map[string]float64 {
	w := c.window()
	rate := float64(w.done) / window.Seconds()
	return map[string]float64{
		name + webserver.Requests: rate, name + webserver.Goodput: rate * 8 * float64(c.Size),
		name + webserver.Errors: float64(w.failed), name + webserver.ClientCPU: c.clientCPU(),
	}
}

// clientCPU returns the percentage of one CPU that this thread used in the window, without vain polling.
func (c *client) clientCPU() float64 {
	from, to := c.usage[before], c.usage[secondHalf]
	if to.at <= from.at {
		return 0
	}
	worked := to.ran - from.ran - (to.unused - from.unused)
	return 100 * float64(max(worked, 0)) / float64(to.at-from.at)
}

// report stores the latencies, unless they mean nothing, and what is wrong with the measurement.
func (c *client) report(m *results.Measurement) error {
	w := c.window()
	probe.AddTrend(m, c.last, c.later)
	c.last.Merge(c.later)
	if c.queued > 0 {
		m.Facts["waitedForConnection"] = fmt.Sprintf("%d of %d requests found none of the %d connections free",
			c.queued, w.due, len(c.conns))
	}
	object := m.ClientLate
	if c.Rate == probe.Max { // latencies count from when they left
		object = func(why string) { m.Void = append(m.Void, why) }
	}
	if cpu := m.Values[m.Name+webserver.ClientCPU]; cpu > webserver.BusyClient {
		object(fmt.Sprintf("the client was at its limit: %.0f%% of a CPU", cpu))
	}
	if w.failed > 0 {
		m.Facts["firstFailure"] = fmt.Sprint(c.why)
	}
	switch {
	case w.due == 0: // few are, and this client's part may be none: Merge knows what all had
	case w.done == 0 && c.why == nil: // no reply, and no failure
		m.NotCarried(fmt.Sprintf("no replies to %d requests", w.due))
	case w.done == 0:
		m.NotCarried(fmt.Sprintf("no replies; the first failure: %v", c.why))
	case w.failed*100 > w.due:
		m.NotCarried(fmt.Sprintf("%d of %d requests failed, the first: %v", w.failed, w.due, c.why))
	}
	late, p99 := results.Percentile(c.lag, 0.999, 0), results.Percentile(c.last, 0.99, 0)
	if c.Rate != probe.Max && p99 > 0 && late*10 > p99 {
		object(fmt.Sprintf("the client could not keep up: send lag P99.9 %s, latency P99 %s",
			time.Duration(late).Round(time.Microsecond), time.Duration(p99).Round(time.Microsecond)))
	}
	unanswered := w.due - uint64(c.last.TotalCount())
	if said := c.overload(m.Window); said != "" {
		m.NotCarried("overloaded: " + said)
		m.Facts["overloaded"] = said + ": its latencies, which only tell how long it was overloaded, are left out"
		leaveOut(m, results.Samples{Wanted: w.due, Lost: w.due - min(w.due, w.done)})
		return nil
	} else if unanswered*100 > w.due && len(m.Overloaded) == 0 {
		m.NotCarried(fmt.Sprintf("%d of %d requests got no reply", unanswered, w.due))
		leaveOut(m, results.Samples{Wanted: w.due, Lost: unanswered}) // latencies would cover only the others
		return nil
	}
	lag, err := results.Encode(c.lag)
	if err != nil {
		return err
	}
	m.Worst, m.Samples = c.longest.Samples(), map[string]results.Samples{}
	all := map[string]*hdrhistogram.Histogram{m.Name: c.last, m.Name + webserver.FirstByte: c.start}
	for name, h := range all {
		s := results.Samples{Wanted: w.due, Lost: w.due - uint64(h.TotalCount()), Lag: lag}
		if s.Histogram, err = results.Encode(h); err != nil {
			return err
		}
		m.Samples[name] = s
	}
	return nil
}

// leaveOut drops the latencies, and comparisons of them, but keeps how many there should have been.
func leaveOut(m *results.Measurement, carried results.Samples) {
	delete(m.Values, m.Name+probe.TrendWord)
	m.Samples = map[string]results.Samples{m.Name: carried, m.Name + webserver.FirstByte: carried}
}

// overload compares what was carried with what was requested, if the outstanding requests grew in both halves
// of the window, by at least a hundredth of the window's requests. Otherwise it returns "".
func (c *client) overload(window results.Nanoseconds) string {
	if c.Rate == probe.Max {
		return ""
	}
	var outstanding [phases]int64 // at the end of each phase
	var sum int64
	for phase, n := range c.count {
		sum += int64(n.due) - int64(n.done+n.failed)
		outstanding[phase] = sum
	}
	begin, middle, end := outstanding[before], outstanding[firstHalf], outstanding[secondHalf]
	w := c.window()
	growth := end - begin
	if growth < minGrowth || growth*100 < int64(w.due) || (middle-begin)*4 < growth || (end-middle)*4 < growth {
		return ""
	}
	seconds := time.Duration(window).Seconds()
	return fmt.Sprintf("carried %.6g of %.6g requests/s, outstanding %d before and %d after",
		float64(w.done)/seconds, float64(w.due)/seconds, begin, end)
}

// minGrowth is more than the few requests that happen to be outstanding at the end of a short window.
const minGrowth = 16
