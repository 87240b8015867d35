package webserver

import (
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/results"
)

// Kind is the kind of probe that is the server for all HTTP probes.
const Kind = "http"

// The suffixes that make names of metrics from the probe's name. Each HTTP probe has some of them.
const (
	FirstByte = "-first-byte"
	Requests  = "-rate"
	Goodput   = "-goodput"
	PerCPU    = "-goodput-per-cpu"
	Errors    = "-errors"
	HitRate   = "-hit-rate"
	ClientCPU = "-client-cpu"
)

// Carried returns the metrics of what a web server carried in the window.
func Carried(name string) []results.Metric {
	return []results.Metric{
		{Name: name + Requests, Quantity: "http-rate", Noun: "request rate", Title: "Requests carried",
			Unit: "requests/s", Better: results.Higher, Margin: 0.05},
		{Name: name + Goodput, Quantity: "http-goodput", Noun: "goodput", Title: "Goodput",
			About: "of bodies that came whole", Unit: results.RateUnit, Better: results.Higher, Margin: 0.05},
		{Name: name + PerCPU, Quantity: "http-goodput-per-cpu", Noun: "goodput a CPU", Title: "Goodput a CPU",
			About: "goodput divided by the CPUs that the server may use", Unit: results.RateUnit,
			Better: results.Higher, Margin: 0.05, Role: results.Cost},
		{Name: name + Errors, Quantity: "http-errors", Noun: "failed requests", Title: "Failed requests",
			Unit: "requests", Better: results.Lower, Margin: 0.10, Role: results.Check},
	}
}

// Own is embedded by the HTTP probes. Their clients do not know how many CPUs the server may use.
type Own struct{ probe.Own }

// Parse reads what the client has printed: a Measurement, and adds the goodput a CPU of the server.
func (o Own) Parse(output []byte, c probe.Conditions) (results.Measurement, error) {
	m, err := o.Own.Parse(output, c)
	if goodput, has := m.Values[c.Name+Goodput]; has && c.ApplicationCPUs > 0 {
		m.Values[c.Name+PerCPU] = goodput / float64(c.ApplicationCPUs)
	}
	return m, err
}

// CacheHits returns the metric of Varnish's own counters.
func CacheHits(name string) results.Metric {
	return results.Metric{Name: name + HitRate, Quantity: "hit-rate", Noun: "hit rate", Title: "Hit rate",
		About: "MAIN.cache_hit and cache_miss of varnishstat, warm-up included", Unit: "%", Better: results.Higher,
		Margin: 0.01, Role: results.Check}
}

// BusyClient is the percentage of its CPUs beyond which a client may limit the figures.
const BusyClient = 90

// ClientUse returns the metric of the client's CPU time.
func ClientUse(name, about string) results.Metric {
	return results.Metric{Name: name + ClientCPU, Quantity: "client-cpu", Noun: "client's CPU",
		Title: "Client's CPU", About: about, Unit: "%", Better: results.Lower, Margin: 0.10, Role: results.Check}
}
