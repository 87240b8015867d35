// Package agent is the host's part of a hub: it joins the host to the hub, reports what the machine is like,
// and takes over what is to run there. It keeps that on disk and looks after it, with or without the hub.
package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"maps"
	"math"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"

	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/hub/desired"
	"isolane.dev/isolane/hub/pods"
	"isolane.dev/isolane/hub/workload"
	"isolane.dev/isolane/lanes"
)

// Options say what an agent works with.
type Options struct {
	Dir   string // folder of its key, certificates and state
	Lanes lanes.Options
	Users workload.Users
	// Cluster is the Kubernetes of which this host is a node. If it is nil, Instances are processes of the host.
	Cluster *pods.Cluster
	Log     *slog.Logger
}

func (o Options) file(name string) string { return filepath.Join(o.Dir, name) }

func (o Options) instances() *workload.Instances {
	return workload.New(workload.Options{Dir: o.file("running"), Lanes: o.Lanes, Users: o.Users,
		Cluster: o.Cluster})
}

func (o Options) hub(name string) string { return filepath.Join(o.Dir, "hub", name) }

// joined is what a host knows about the hub that it has joined.
type joined struct {
	URL    string   `json:"url"`
	Others []string `json:"others,omitempty"` // URLs of the same hub
	Name   string   `json:"name"`             // of this host
	New    bool     `json:"new,omitempty"`    // the host has not followed this hub yet
}

// Agent is a running agent. One goroutine looks after what runs here; another speaks with the hub, which may
// never answer. The lock of desired guards what both need; everything else belongs to the goroutine that
// speaks.
type Agent struct {
	o         Options
	joined    joined
	desired   *desired.Agent
	server    *server
	instances *workload.Instances    // guarded by the lock of desired
	reserved  map[string]reservation // by the UID of what the hub has asked for
	told      time.Time              // when the inventory was last sent
	looked    time.Time              // when the details of the host were last read
	cost      time.Duration          // CPU time of that reading
	seen      *details               // by the last look, if there was news in it
	planned   detail                 // what the hub's planner needs
	found     detail                 // what an audit found, and what has happened
	busy      time.Time              // since when something is being reserved or begun; zero: nothing is
	news      chan struct{}
	watching  atomic.Bool
	unwatch   context.CancelFunc
	next      time.Time        // when to talk with the hub next
	pulse     time.Time        // when to send the next sign of life
	glance    time.Time        // when to look next at what has changed here
	links     map[string]*link // by URL of the hub
	clock     clock
	ahead     time.Duration // how far this host's clock is ahead of the hub's, as last reported
	due       time.Time     // when this host's certificate is due for renewal, by the hub's clock
	renewed   time.Time     // when a renewal was last asked for
	free      string        // the cpulist that the hub was told
	at        string        // target of the link to the hub's folder
	said      string        // what was said last about the hub
	barred    time.Time     // since when the hub lets this host do nothing; zero: it does
}

// Intervals: lookInterval between looks at the processes, glanceInterval between looks at what others put in
// force, talkInterval between talks with a hub that is not watched. talkTimeout is how long a talk may take.
const (
	lookInterval   = 2 * time.Second
	glanceInterval = time.Minute
	talkInterval   = 10 * time.Second
	talkTimeout    = 10 * time.Second
)

// Run looks after what is to run until the context ends, and leaves it running then.
func Run(ctx context.Context, o Options) error {
	if _, err := o.read(); err != nil {
		return err
	}
	// Workloads must not inherit files that are open here only because whoever started the agent had them open.
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		o.Log.WarnContext(ctx, "workloads may inherit open files: expected Linux 5.11 or newer", "error", err)
	}
	lock, err := o.lock()
	if err != nil {
		return err
	}
	defer lock.Close()
	a, err := begin(o)
	if err != nil {
		return err
	}
	a.try(ctx, "lanes", func(context.Context) error {
		return a.instances.Restore(ctx, a.desired.State.Instances)
	})
	a.run(ctx)
	return nil
}

func (a *Agent) run(ctx context.Context) {
	var talks sync.WaitGroup
	talks.Go(func() { a.followHub(ctx) })
	for ctx.Err() == nil {
		a.tend(ctx)
		idle(ctx, a.instances.Ended())
	}
	talks.Wait()
}

// tend looks after what is to run, once. It does not ask the hub.
func (a *Agent) tend(ctx context.Context) {
	a.try(ctx, "hold", a.takeHold)
	was := a.outcome()
	for _, err := range a.desired.Reconcile(ctx) {
		if _, waits := errors.AsType[api.NotYet](err); waits {
			a.o.Log.InfoContext(ctx, "not done yet", "what", "instances", "error", err)
		} else if ctx.Err() == nil {
			a.o.Log.WarnContext(ctx, "not done", "what", "instances", "error", err)
		}
	}
	if !maps.Equal(was, a.outcome()) {
		a.talkNow() // to report it
	}
	a.try(ctx, "history", func(context.Context) error {
		a.desired.Lock()
		defer a.desired.Unlock()
		return a.instances.Flush()
	})
}

// outcome returns the outcome of each Instance, as of the last look.
func (a *Agent) outcome() map[string]workload.Outcome {
	a.desired.Lock()
	defer a.desired.Unlock()
	all := map[string]workload.Outcome{}
	for uid := range a.desired.State.Instances {
		all[uid] = a.instances.Outcome(uid)
	}
	return all
}

// idle waits until it is time to look again or something has happened, and reports whether something has.
func idle(ctx context.Context, happens <-chan struct{}) bool {
	timer := time.NewTimer(lookInterval)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-happens:
		return true
	}
	return false
}

// begin returns an agent that has done nothing yet.
func begin(o Options) (*Agent, error) {
	a := &Agent{o: o, news: make(chan struct{}, 1), unwatch: func() {}}
	a.instances = o.instances()
	err := os.MkdirAll(o.file("running"), 0o700)
	if err != nil {
		return nil, err
	}
	a.desired = &desired.Agent{Runtime: a.instances, NewMark: rand.Text,
		Save: func(s desired.State) error { return s.Write(o.file("state.json")) }}
	if a.desired.State, err = desired.Load(o.file("state.json")); err != nil {
		return nil, err
	}
	if err = a.recall(); err != nil {
		return nil, err
	}
	return a, a.connect(context.Background())
}

func (a *Agent) try(ctx context.Context, what string, do func(context.Context) error) {
	if err := do(ctx); err != nil && ctx.Err() == nil {
		a.o.Log.WarnContext(ctx, "not done", "what", what, "error", err)
	}
}

// connect makes new clients if the host has changed its hub. The clients read the certificate again after a
// renewal.
func (a *Agent) connect(context.Context) error {
	at, err := os.Readlink(a.o.file("hub"))
	if err != nil || at == a.at {
		return err
	}
	if a.joined, err = a.o.read(); err != nil {
		return err
	}
	for _, l := range a.links {
		l.dialer.CloseAll()
	}
	a.links = map[string]*link{}
	if err = a.dial(); err == nil {
		a.at, a.told = at, time.Time{}
	}
	return err
}

// config returns how this host reaches its hub with one of its certificates.
func (a *Agent) config(by certificate) *rest.Config {
	return &rest.Config{Host: a.joined.URL, UserAgent: "isolane-hub agent", QPS: 20, Burst: 50,
		TLSClientConfig: rest.TLSClientConfig{CertFile: a.o.hub(by.file), KeyFile: a.o.file("host.key"),
			CAFile: a.o.hub("hub.crt")}}
}

// link is the connection to one URL of a hub.
type link struct {
	server
	dialer *connrotation.Dialer
}

// dial makes a.joined.URL the URL by which the agent reaches the hub. It reuses a link that exists.
func (a *Agent) dial() error {
	l := a.links[a.joined.URL]
	if l == nil {
		l = &link{server: server{name: a.joined.Name}, dialer: connrotation.NewDialer((&net.Dialer{
			Timeout: talkTimeout / 3, KeepAlive: talkTimeout}).DialContext)} // time is left for another URL
		c := a.config(own())
		c.Dial = l.dialer.DialContext
		c.Wrap(a.clock.listen)
		client, err := rest.HTTPClientFor(c) // one connection
		if err != nil {
			return err
		}
		// The hub keeps buffers for each connection, as large as what went through it. So reports have their own
		// one, which does not stay.
		large, err := rest.HTTPClientFor(c)
		if err != nil {
			return err
		}
		l.rest = func() { utilnet.CloseIdleConnectionsFor(large.Transport) }
		if l.reports, err = dynamic.NewForConfigAndClient(c, large); err != nil {
			return err
		}
		if l.client, err = dynamic.NewForConfigAndClient(c, client); err != nil {
			return err
		}
		c.ContentType = runtime.ContentTypeProtobuf // costs the hub less time to read
		if l.core, err = kubernetes.NewForConfigAndClient(c, client); err != nil {
			return err
		}
		a.links[a.joined.URL] = l
	}
	a.unwatch()
	a.talkNow()
	a.server = &l.server
	return nil
}
