package agent

import (
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"isolane.dev/isolane/lane"
)

// metric is one of the agent's metrics. Its labels have few values: lanes, kinds of sources, results, bounds.
// Names of tasks are no labels.
type metric struct {
	name, help string
	labels     []string
	kind       prometheus.ValueType
}

func metrics() []metric {
	const counter, gauge = prometheus.CounterValue, prometheus.GaugeValue
	lanes, kinds := []string{"lane"}, []string{"lane", "kind"}
	return []metric{
		{"lane_cpus", "CPUs that the lane owns.", lanes, gauge},
		{"disturbance_seconds_total", "Time that others took from the lane's CPUs, as far as it is known: see " +
			"trace_info.", kinds, counter},
		{"disturbances_total", "How often others ran on the lane's CPUs.", kinds, counter},
		{"longest_intrusion_seconds", "The longest of others on a CPU of the lane, in the last one to two " +
			"minutes; absent where nobody knows.", lanes, gauge},
		{"path_packets_total", "Packets of the lane's own network device.", []string{"lane", "result"}, counter},
		{"throttled_periods_total", "Periods in which a CPU limit stopped the lane's cgroup.", lanes, counter},
		{"proof_held", "Whether the last proof of an objective says that it is held, and still stands.",
			[]string{"lane", "objective"}, gauge},
		{"drift", "Settings that are not as the lanes want them.", nil, gauge},
		{"repairs_total", "Settings that were put back.", nil, counter},
		{"failed_readings_total", "Readings that failed, at least in part.", nil, counter},
		{"last_reading_timestamp_seconds", "When the last reading was taken.", nil, gauge},
		{"trace_info", "What times are known from: bpf, or procfs which knows few.", []string{"evidence"}, gauge},
		{"build_info", "The version of the agent.", []string{"version"}, gauge},
	}
}

// collector reports the totals after the last reading to Prometheus.
type collector struct {
	a     *Agent
	descs map[string]*prometheus.Desc
	kinds map[string]prometheus.ValueType
}

func newCollector(a *Agent) *collector {
	c := &collector{a, map[string]*prometheus.Desc{}, map[string]prometheus.ValueType{}}
	for _, m := range metrics() {
		c.descs[m.name] = prometheus.NewDesc("isolane_"+m.name, m.help, m.labels, nil)
		c.kinds[m.name] = m.kind
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	send := func(name string, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(c.descs[name], c.kinds[name], value, labels...)
	}
	c.a.mu.Lock()
	defer c.a.mu.Unlock()
	for name, t := range c.a.totals {
		send("lane_cpus", float64(t.cpus.Len()), name)
		for kind, s := range t.kinds {
			send("disturbance_seconds_total", time.Duration(s.took).Seconds(), name, kind)
			send("disturbances_total", float64(s.count), name, kind)
		}
		if c.a.last.Timed {
			send("longest_intrusion_seconds", time.Duration(t.longest.value()).Seconds(), name)
		}
		if p := t.traffic; p != nil {
			send("path_packets_total", float64(p.Received), name, "received")
			send("path_packets_total", float64(p.Sent), name, "sent")
			send("path_packets_total", float64(p.Dropped), name, "dropped")
			send("path_packets_total", float64(p.Refused), name, "refused")
		}
		if t.throttled != nil {
			send("throttled_periods_total", float64(*t.throttled), name)
		}
		for _, j := range t.judged {
			held := 0.0
			if j.Verdict == lane.Held && !c.a.unjudged {
				held = 1
			}
			send("proof_held", held, name, strings.ToValidUTF8(j.Bound.String(), "?"))
		}
	}
	send("drift", float64(drifted(c.a.last)))
	send("repairs_total", float64(c.a.repairs))
	send("failed_readings_total", float64(c.a.failed))
	send("last_reading_timestamp_seconds", float64(c.a.last.At.UnixMilli())/1000)
	if c.a.last.Evidence != "" {
		send("trace_info", 1, c.a.last.Evidence)
	}
	send("build_info", 1, c.a.o.Version)
}

// metricsHandler serves the metrics, with those of the agent's own process.
func (a *Agent) metricsHandler() http.Handler {
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(newCollector(a), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{DisableCompression: true})
}
