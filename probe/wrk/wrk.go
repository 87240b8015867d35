// Package wrk drives wrk, the HTTP benchmark of the published figures, against the servers of package
// webserver.
//
// wrk is a closed loop: each of its connections asks again when it has its reply. Its percentiles contain
// samples that wrk invents when replies are late (stats_correct in its stats.c), and lack all replies that
// took more than 2 s, which wrk counts as timeouts (stats_record). wrk outputs no histogram, so the
// percentiles are single values here.
package wrk

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/probe/webserver"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/results"
)

// Program is the name of the program, and of its package in Debian.
const Program = "wrk"

// Driver is the probe "wrk". Its client is a command of the isolane binary, which runs wrk twice: for the
// warm-up, which wrk itself lacks, and for the window.
type Driver struct{}

// Probe measures what a server carries.
type Probe struct {
	webserver.Own
	webserver.Settings
	Size        quantity.Bytes `json:"size"`        // of the object; default 1Mi
	Threads     int            `json:"threads"`     // default 4
	Connections int            `json:"connections"` // of all threads; default 20
	// ClientCPUs is the number of the client's CPUs for which Threads and Connections are given. A client with
	// fewer or more CPUs uses proportionally fewer or more of both. 0: they are used as they are.
	ClientCPUs int `json:"clientCPUs,omitempty"`
}

// maxClientCPUs is more than any machine has.
const maxClientCPUs = 8192

// scaled returns the threads and connections for a client with that many CPUs: at least one thread, and at
// least one connection for each thread.
func (p Probe) scaled(cpus int) Probe {
	if p.ClientCPUs > 0 {
		p.Threads = max(1, p.Threads*cpus/p.ClientCPUs)
		p.Connections = max(p.Threads, p.Connections*cpus/p.ClientCPUs)
	}
	return p
}

// Name returns "wrk".
func (Driver) Name() string { return Program }

// Programs returns wrk. Only the settings say which server is needed.
func (Driver) Programs() []string { return []string{Program} }

// Read reads the settings of a Probe.
func (Driver) Read(settings []byte) (probe.Probe, error) {
	p := Probe{Settings: webserver.Settings{Software: webserver.Nginx}, Size: 1 << 20, Threads: 4,
		Connections: 20}
	if err := probe.Decode(settings, &p); err != nil {
		return nil, err
	}
	if err := cmp.Or(p.Settings.Validate(), webserver.ValidateSize(p.Size)); err != nil {
		return nil, err
	}
	switch {
	case p.Connections < 1 || p.Connections > webserver.MaxConnections:
		return nil, fmt.Errorf("connections: %d: expected 1-%d", p.Connections, webserver.MaxConnections)
	case p.Threads < 1 || p.Threads > p.Connections:
		return nil, fmt.Errorf("threads: %d: expected 1-%d, a connection each at least", p.Threads, p.Connections)
	case p.ClientCPUs < 0 || p.ClientCPUs > maxClientCPUs:
		return nil, fmt.Errorf("clientCPUs: %d: expected 1-%d, or 0 for no scale", p.ClientCPUs, maxClientCPUs)
	}
	return p, nil
}

// Validate requires whole seconds.
func (Probe) Validate(c probe.Conditions) error { return c.WholeSeconds(Program) }

// percentiles returns those that wrk prints.
func percentiles() []string { return []string{"50", "75", "90", "99"} }

// The suffixes that make names of metrics from the probe's name, beside webserver's.
const (
	transfer = "-transfer"
	timeouts = "-timeouts"
)

// Metrics returns the requests per second, what they carried, and wrk's percentiles.
func (p Probe) Metrics(name string) []results.Metric {
	carried := webserver.Carried(name)
	carried[0].Name = name
	carried[0].About = fmt.Sprintf("GET %s from %s, wrk -t %d -c %d", p.Size, p.Software, p.Threads,
		p.Connections)
	if p.ClientCPUs > 0 {
		carried[0].About += fmt.Sprintf(", scaled from a client with %s", quantity.Count(p.ClientCPUs, "CPU"))
	}
	carried[1].About = "requests times size"
	all := append(carried[:3:3], results.Metric{Name: name + transfer, Quantity: "transfer", Noun: "transfer",
		Title: "Transfer", About: "as wrk prints it, heads of replies included; its GB are GiB, this is decimal",
		Unit: results.RateUnit, Better: results.Higher, Margin: 0.05})
	for _, q := range percentiles() {
		all = append(all, results.Metric{Name: name + "-p" + q, Quantity: "wrk-p" + q, Noun: "P" + q + " of wrk",
			Title: "P" + q + " of wrk", About: "closed loop, with samples that wrk itself adds",
			Unit: results.TimeUnit, Better: results.Lower, Margin: 0.10, Loop: results.Closed})
	}
	timedOut := carried[3]
	timedOut.Name, timedOut.Quantity, timedOut.Noun, timedOut.Title = name+timeouts, "http-timeouts",
		"requests of more than 2 s", "Requests of more than 2 s"
	all = append(all, carried[3], timedOut)
	if p.Software == webserver.Varnish {
		all = append(all, webserver.CacheHits(name))
	}
	return append(all, webserver.ClientUse(name, "of one CPU, all threads of wrk together"))
}

// Client returns the command line of the client.
func (p Probe) Client(self string, c probe.Conditions) []string {
	return probe.OwnClient(self, Program, p, c)
}

// Run runs wrk for the warm-up, and for the window.
func (p Probe) Run(ctx context.Context, c probe.Conditions) (results.Measurement, error) {
	m := results.Measurement{Name: c.Name, Window: results.Nanoseconds(c.Window)}
	published := p
	p = p.scaled(runtime.NumCPU())
	if c.Warmup > 0 {
		if _, _, err := p.wrk(ctx, c, c.Warmup); err != nil {
			return m, err
		}
	}
	hits, err := p.WatchCache(ctx, c.Dir)
	if err != nil {
		return m, err
	}
	r, used, err := p.wrk(ctx, c, c.Window)
	if err != nil {
		return m, err
	}
	p.fill(&m, r, used)
	m.Facts["version"], m.Conditions = version(ctx), []string{"version"}
	webserver.AddVersion(ctx, c.At(p.Port()), &m)
	if p.ClientCPUs > 0 {
		m.Facts["scale"] = fmt.Sprintf("%d of %s: -t %d -c %d for -t %d -c %d", runtime.NumCPU(),
			quantity.Count(p.ClientCPUs, "CPU"), p.Threads, p.Connections, published.Threads, published.Connections)
	}
	percent, ok, err := hits(ctx, r.requests)
	if ok {
		m.Values[c.Name+webserver.HitRate] = percent
	}
	return m, err
}

// version returns what wrk says about itself, without the copyright. That call's exit code means nothing.
func version(ctx context.Context) string {
	said, _ := exec.CommandContext(ctx, Program, "--version").Output()
	text, _, _ := strings.Cut(string(said), " Copyright")
	return text[:min(len(text), 80)]
}

// wrk runs wrk for some time, and returns its report and the CPU time that it used.
func (p Probe) wrk(ctx context.Context, c probe.Conditions, duration time.Duration) (
	r report, used time.Duration, err error) {
	path, err := exec.LookPath(Program)
	if err != nil {
		return report{}, 0, fmt.Errorf("%s is not installed: apt-get install %s", Program, Program)
	}
	runtime.LockOSThread() // Pdeathsig is sent when the thread that started wrk ends
	defer runtime.UnlockOSThread()
	to := c.At(p.Port())
	cmd := exec.CommandContext(ctx, path, "--threads", strconv.Itoa(p.Threads), "--connections",
		strconv.Itoa(p.Connections), "--duration", strconv.Itoa(int(duration/time.Second))+"s", "--latency",
		"http://"+to.String()+webserver.Path(p.Size))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, errs := &printed{}, &printed{}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = out, errs, time.Second
	err = cmd.Run()
	if err == nil {
		r, err = parse(*out)
		return r, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), err
	}
	said := strings.Join(strings.Fields(string(*out)+" "+string(*errs)), " ")
	return report{}, 0, fmt.Errorf("wrk %s: %w: %s", to, err, said)
}

// printed is the beginning of a program's output: wrk's report has less than 2 KiB.
type printed []byte

const mostPrinted = 16 << 10

func (p *printed) Write(more []byte) (int, error) {
	*p = append(*p, more[:min(len(more), mostPrinted-len(*p))]...)
	return len(more), nil
}

// fill stores wrk's report in a measurement.
func (p Probe) fill(m *results.Measurement, r report, used time.Duration) {
	name := m.Name
	cpu := 100 * float64(used) / float64(m.Window)
	m.Values = map[string]float64{name: r.rate, name + webserver.Goodput: r.rate * 8 * float64(p.Size),
		name + transfer: r.transfer * 8, name + webserver.Errors: float64(r.errors() + r.status),
		name + timeouts: float64(r.timeout), name + webserver.ClientCPU: cpu}
	for i, q := range percentiles() {
		if !math.IsNaN(r.latency[i]) {
			m.Values[name+"-p"+q] = r.latency[i]
		}
	}
	m.Facts = map[string]string{"percentiles": "of wrk: closed loop, with samples that it adds itself"}
	failed := r.errors() + r.status + r.timeout
	if failed > 0 {
		m.Facts["errors"] = fmt.Sprintf("connect %d, read %d, write %d, timeout %d, status not 2xx or 3xx %d",
			r.connect, r.read, r.write, r.timeout, r.status)
	}
	switch {
	case r.requests == 0:
		m.NotCarried("no replies")
	case failed*100 > r.requests:
		m.NotCarried(fmt.Sprintf("%d requests failed, %d were answered", failed, r.requests))
	}
	// wrk may use as many CPUs as this process.
	if limit := min(p.Threads, runtime.NumCPU()); cpu > webserver.BusyClient*float64(limit) {
		m.Void = append(m.Void, fmt.Sprintf("the client was at its limit: %.0f%% of %s", cpu,
			quantity.Count(limit, "CPU")))
	}
}
