package http

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/probe/webserver"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/results"
)

// The values of Probe.
const (
	Poisson = "poisson" // exponentially distributed gaps between requests, as of many independent clients
	Paced   = "paced"   // equal gaps

	Spin  = "spin"  // poll for replies while some are due; the client then needs its own CPU
	Block = "block" // sleep in the kernel
)

// absent is the rate of settings that have none.
const absent probe.Rate = -1

// Driver is the probe "http". Its client is a command of the isolane binary itself.
type Driver struct{}

// Probe measures how long replies take.
type Probe struct {
	webserver.Own
	webserver.Settings
	Size quantity.Bytes `json:"size"` // of the object; default 1Mi
	// Rate is the rate of requests. With max, the default, each connection asks again once it has its reply.
	Rate probe.Rate `json:"rate,omitzero"`
	// Share is the rate of a scenario's open loop as a part of the capacity, in place of Rate.
	Share       quantity.Percent `json:"share,omitempty"`
	Arrivals    string           `json:"arrivals,omitempty"` // of the open loop; default poisson
	Seed        uint64           `json:"seed,omitempty"`     // of poisson arrivals; default: the session's
	Connections int              `json:"connections"`        // opened before the warm-up; default 100
	Wait        string           `json:"wait"`               // default spin; block in the closed loop
}

const (
	maxRate  = 1e6
	maxShare = 10
)

// isClosed reports whether requests follow replies.
func (p Probe) isClosed() bool { return p.Rate == probe.Max && p.Share == 0 }

// Part returns the part of the application's capacity that is the load; 0 if the load is a number.
func (p Probe) Part() float64 { return float64(p.Share) }

// At returns the probe with that part of a capacity, in requests per second, as its rate.
func (p Probe) At(capacity float64) probe.Probe {
	p.Rate, p.Share = probe.Rate(capacity*p.Part()), 0
	return p
}

// Saturating returns the closed loop, which requests as much as is carried.
func (p Probe) Saturating() probe.Probe {
	p.Share, p.Arrivals, p.Seed, p.Wait = 0, "", 0, Block
	return p
}

// Carried returns the capacity, in requests per second, that a measurement of the closed loop shows.
func (p Probe) Carried(m results.Measurement) float64 { return m.Values[m.Name+webserver.Requests] }

// Name returns "http".
func (Driver) Name() string { return webserver.Kind }

// Programs returns none: only the settings say which server is needed.
func (Driver) Programs() []string { return nil }

// Read reads the settings of a Probe.
func (Driver) Read(settings []byte) (probe.Probe, error) {
	p := New()
	if err := probe.Decode(settings, &p); err != nil {
		return nil, err
	}
	return p.Complete()
}

// New returns a Probe into which settings can be decoded. Complete must follow.
func New() Probe {
	return Probe{Settings: webserver.Settings{Software: webserver.Nginx}, Rate: absent, Size: 1 << 20,
		Connections: 100}
}

// Complete sets the defaults that depend on other settings. An error names the field.
func (p Probe) Complete() (Probe, error) {
	switch {
	case p.Rate == absent:
		p.Rate = probe.Max
	case p.Share != 0:
		return p, fmt.Errorf("share, rate: expected one of them")
	}
	if p.isClosed() && (p.Arrivals != "" || p.Seed != 0) {
		return p, fmt.Errorf("arrivals, seed: expected neither with rate max, where requests follow replies")
	}
	if !p.isClosed() && p.Arrivals == "" {
		p.Arrivals = Poisson
	}
	if p.Wait == "" && p.isClosed() {
		p.Wait = Block
	} else if p.Wait == "" {
		p.Wait = Spin
	}
	return p, p.validate()
}

func (p Probe) validate() error {
	if err := p.Settings.Validate(); err != nil {
		return err
	}
	if err := cmp.Or(webserver.ValidateSize(p.Size), p.Rate.AtMost(maxRate, "requests")); err != nil {
		return err
	}
	switch {
	case p.Share < 0 || p.Share > maxShare:
		return fmt.Errorf("share: %s: expected more than 0%% and at most %s", p.Share, quantity.Percent(maxShare))
	case !p.isClosed() && !slices.Contains([]string{Poisson, Paced}, p.Arrivals):
		return fmt.Errorf("arrivals: %q: expected poisson or paced", p.Arrivals)
	case p.Arrivals == Paced && p.Seed != 0:
		return fmt.Errorf("seed: %d: expected none with paced arrivals, which are not random", p.Seed)
	case p.Connections < 1 || p.Connections > webserver.MaxConnections:
		return fmt.Errorf("connections: %d: expected 1-%d", p.Connections, webserver.MaxConnections)
	case !slices.Contains([]string{Spin, Block}, p.Wait):
		return fmt.Errorf("wait: %q: expected spin or block", p.Wait)
	}
	return nil
}

// Validate rejects windows without a request.
func (p Probe) Validate(c probe.Conditions) error {
	if p.Rate != probe.Max && float64(p.Rate)*c.Window.Seconds() < 1 {
		return fmt.Errorf("measure: %s: expected at least one request within it at a rate of %g", c.Window, p.Rate)
	}
	return nil
}

// Metrics returns the time to the last byte, that to the first, and what was carried.
func (p Probe) Metrics(name string) []results.Metric {
	loop, counted := results.Open, "from the intended time of the request"
	if p.isClosed() {
		loop, counted = results.Closed, "from the sending of the request"
	}
	about := fmt.Sprintf("GET %s from %s, %s", p.Size, p.Software, counted)
	sampled := func(word, noun, title, end string) results.Metric {
		return results.Metric{Name: name + word, Quantity: "http" + word, Noun: noun, Title: title,
			About: about + " to the " + end + " byte of the body", Unit: results.TimeUnit,
			Better: results.Lower, Margin: 0.10,
			Sampled: true, Loop: loop}
	}
	all := []results.Metric{sampled("", "response time", "Response time", "last"),
		sampled(webserver.FirstByte, "time to first byte", "First byte", "first")}
	all[1].About = about + " to the first byte of the reply"
	all = append(all, webserver.Carried(name)...)
	if p.Software == webserver.Varnish {
		all = append(all, webserver.CacheHits(name))
	}
	return append(all, webserver.ClientUse(name, "of one CPU, polling for nothing left out"),
		probe.Trend(all[0]))
}

// Of returns the probe for the client of one instance, if several run at the same time: it has its part of
// the load, with its own arrivals.
func (p Probe) Of(c probe.Conditions) Probe {
	if n := c.Instances; n > 1 && p.Rate != probe.Max {
		p.Rate /= probe.Rate(n)
	}
	if p.Arrivals == Poisson {
		p.Seed = c.SeedOf(p.Seed) + uint64(c.Instance)
	}
	return p
}

// Client returns the command line of the client.
func (p Probe) Client(self string, c probe.Conditions) []string {
	return probe.OwnClient(self, webserver.Kind, p.Of(c), c)
}

// Merge merges the measurements of several instances: what they carried together.
func (p Probe) Merge(name string, each []results.Measurement) (results.Measurement, error) {
	m, err := probe.Merge(name, each, func(metric string, all []float64) (v float64) {
		if metric == name+probe.TrendWord { // trends in opposite directions do not cancel out
			return slices.MaxFunc(all, func(a, b float64) int { return cmp.Compare(math.Abs(a), math.Abs(b)) })
		}
		for _, one := range all {
			v += one
		}
		if metric == name+webserver.HitRate {
			v /= float64(len(all))
		}
		return v
	})
	if err == nil && m.Samples[name].Wanted == 0 && !p.isClosed() {
		m.Void = append(m.Void, "no request was due in the window: expected a longer one, or more requests")
	}
	if n := len(each); n > 1 && p.Arrivals == Poisson {
		for i := range n {
			delete(m.Facts, fmt.Sprintf("arrivals of instance %d", i+1))
		}
		m.Facts["arrivals"] = fmt.Sprintf("%s and the next %d", each[0].Facts["arrivals"], n-1)
	}
	if cpu := m.Values[name+webserver.ClientCPU]; len(each) > 1 && cpu > webserver.BusyClient {
		why := fmt.Sprintf("the clients were at their limit: %.0f%% of a CPU", cpu)
		if p.isClosed() {
			m.Void = append(m.Void, why)
		} else {
			m.ClientLate(why)
		}
	}
	return m, err
}
