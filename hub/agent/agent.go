// Package agent is the host's part of a hub: it joins, says what the machine is like, and runs Instances as
// processes in lanes. What it is to run it has on disk, and goes on with it without the hub.
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
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"

	"isolane.dev/isolane/history"
	"isolane.dev/isolane/history/diary"
	"isolane.dev/isolane/hub/desired"
	"isolane.dev/isolane/hub/pods"
	"isolane.dev/isolane/hub/sites"
	"isolane.dev/isolane/lanes"
)

// Options say what an agent does.
type Options struct {
	Dir   string // its key, certificate and state
	Lanes lanes.Options
	Users Users
	// Cluster is that of which this host is a node; nil: Instances are processes of the host.
	Cluster *pods.Cluster
	Log     *slog.Logger
}

func (o Options) file(name string) string { return filepath.Join(o.Dir, name) }

func (o Options) hub(name string) string { return filepath.Join(o.Dir, "hub", name) }

// joined is what a host knows of the hub that it has joined.
type joined struct {
	URL    string   `json:"url"`
	Others []string `json:"others,omitempty"` // URLs of the same hub
	Name   string   `json:"name"`             // of this host
	New    bool     `json:"new,omitempty"`    // it has not followed it yet
}

// Agent is one at work.
type Agent struct {
	o         Options
	joined    joined
	desired   *desired.Agent
	server    *server
	processes *processes
	reserved  map[string]reservation // by the UID of what the hub has asked for
	told      time.Time              // when the inventory was
	looked    time.Time              // at the details of the host, for the hub
	planned   detail                 // what a planner counts on
	found     detail                 // by an audit, and what has happened
	news      chan struct{}
	watching  atomic.Bool
	unwatch   context.CancelFunc
	next      time.Time        // of a talk with the hub
	pulse     time.Time        // of a sign of life
	glance    time.Time        // at what has changed here
	links     map[string]*link // by URL of the hub
	clock     clock
	ahead     time.Duration // of the hub's clock this host's is, as was told
	due       time.Time     // when this host's certificate is to be renewed, by the hub's clock
	renewed   time.Time     // when one was asked for
	free      string        // cpulist that the hub was told
	at        string        // what the link to the hub's folder says
	said      string        // of the hub, last
}

// Intervals: of a look at the processes, and at what others put in force; of a talk with a hub that is not
// watched, and with one that says what changes; and how long a talk may take.
const (
	look   = 2 * time.Second
	glance = time.Minute
	call   = 10 * time.Second
	calm   = 10 * time.Minute
	limit  = 10 * time.Second
)

// Run looks after what is to run until the context ends; it stays then as it is.
func Run(ctx context.Context, o Options) error {
	if _, err := o.read(); err != nil {
		return err
	}
	// Workloads get none of the files that are open here because whoever started the agent had them open.
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
		return a.processes.restore(ctx, a.desired.State.Instances)
	})
	for last := time.Now(); ctx.Err() == nil; {
		a.try(ctx, "hold", a.wish)
		a.try(ctx, "rehome", a.connect)
		a.talk(ctx)
		a.try(ctx, "reservations", a.settle)
		was := maps.Clone(a.processes.problem)
		a.try(ctx, "instances", a.desired.Reconcile)
		if !maps.Equal(was, a.processes.problem) {
			a.hear() // to say so
		}
		a.try(ctx, "history", func(context.Context) error { return a.processes.diary.Flush() })
		timer := time.NewTimer(look)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-a.processes.ended:
		case <-a.news:
			a.next = time.Time{}
		}
		timer.Stop()
		a.desired.State = a.desired.State.Elapsed(time.Since(last))
		last = time.Now()
	}
	return nil
}

// talk speaks with the hub, or says only that this host is there, when it is time for that.
func (a *Agent) talk(ctx context.Context) {
	now := time.Now()
	brief, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	switch {
	case !now.Before(a.next):
		heard := false
		a.try(ctx, "the hub", func(context.Context) error {
			err := a.reach(brief)
			heard = err == nil
			return err
		})
		a.next, a.pulse, a.glance = now.Add(call), now.Add(sites.Pulse), now.Add(glance)
		if a.watch(ctx); heard && a.watching.Load() {
			a.next = now.Add(max(call, min(calm, a.due.Sub(a.clock.hub()))))
		}
	case !now.Before(a.pulse):
		if a.pulse = now.Add(sites.Pulse); a.beat(brief) != nil || a.compare() {
			a.next = now // the talk says why, or what is new
		}
	case !now.Before(a.glance):
		if a.glance = now.Add(glance); a.moved(ctx) {
			a.next = now
		}
	}
}

// begin is an agent that has done nothing yet.
func begin(o Options) (*Agent, error) {
	a := &Agent{o: o, news: make(chan struct{}, 1), unwatch: func() {}}
	a.processes = &processes{lanes: o.Lanes, users: o.Users, dir: o.file("running"),
		cluster: o.Cluster, seen: map[string]pledged{},
		diary: diary.Diary{Dir: history.Place(), Who: history.Caller("isolane-hub agent")},
		ended: make(chan struct{}, 1), began: map[string]time.Time{}, problem: map[string]problem{},
		retried: map[string]time.Time{}}
	err := os.MkdirAll(a.processes.dir, 0o700)
	if err != nil {
		return nil, err
	}
	a.desired = &desired.Agent{Runtime: a.processes, NewMark: rand.Text,
		Save: func(s desired.State) error { return s.Write(o.file("state.json")) }}
	if a.desired.State, err = desired.Load(o.file("state.json")); err != nil {
		return nil, err
	}
	if a.reserved, err = a.processes.reservations(); err != nil {
		return nil, err
	}
	return a, a.connect(context.Background())
}

func (a *Agent) try(ctx context.Context, what string, do func(context.Context) error) {
	if err := do(ctx); err != nil && ctx.Err() == nil {
		a.o.Log.WarnContext(ctx, "not done", "what", what, "error", err)
	}
}

// connect makes the clients, where the host has another hub than before. They read the certificate again when
// it was renewed.
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

// config is how this host speaks with its hub by one of its certificates.
func (a *Agent) config(by certificate) *rest.Config {
	return &rest.Config{Host: a.joined.URL, UserAgent: "isolane-hub agent", QPS: 20, Burst: 50,
		TLSClientConfig: rest.TLSClientConfig{CertFile: a.o.hub(by.file), KeyFile: a.o.file("host.key"),
			CAFile: a.o.hub("hub.crt")}}
}

// link is how one URL of a hub is spoken with.
type link struct {
	server
	dialer *connrotation.Dialer
}

// dial has the URL of the hub spoken with. What was made for it is used again.
func (a *Agent) dial() error {
	l := a.links[a.joined.URL]
	if l == nil {
		l = &link{server: server{name: a.joined.Name}, dialer: connrotation.NewDialer((&net.Dialer{
			Timeout: limit / 3, KeepAlive: limit}).DialContext)} // time is left for another URL
		c := a.config(own())
		c.Dial = l.dialer.DialContext
		c.Wrap(a.clock.listen)
		client, err := rest.HTTPClientFor(c) // one connection
		if err != nil {
			return err
		}
		if l.client, err = dynamic.NewForConfigAndClient(c, client); err != nil {
			return err
		}
		c.ContentType = runtime.ContentTypeProtobuf // the hub reads it in less time
		if l.core, err = kubernetes.NewForConfigAndClient(c, client); err != nil {
			return err
		}
		a.links[a.joined.URL] = l
	}
	a.unwatch()
	a.hear()
	a.server = &l.server
	return nil
}

// unreached is that a hub says nothing, or not to this host.
type unreached struct{ error }

// reach speaks with the hub: by another of its URLs where one does not answer. Where the time is over then,
// the next talk, at once, is by that one.
func (a *Agent) reach(ctx context.Context) error {
	err := a.sync(ctx)
	for range a.joined.Others {
		if _, is := errors.AsType[unreached](err); !is {
			break
		}
		was := a.joined.URL
		a.joined.URL, a.joined.Others = a.joined.Others[0], append(slices.Clone(a.joined.Others[1:]), was)
		if derr := a.dial(); derr != nil {
			return derr
		}
		if ctx.Err() != nil {
			break
		}
		err = a.sync(ctx)
	}
	if u, is := errors.AsType[unreached](err); is {
		a.note("does not reach the hub", untimely(u.error))
	}
	return err
}

// remember keeps the URLs by which a hub that this host trusts says that it is reached.
func (a *Agent) remember(urls []string) error {
	var others []string
	for _, url := range urls {
		if url != a.joined.URL {
			others = append(others, url)
		}
	}
	slices.Sort(others)
	known := slices.Sorted(slices.Values(a.joined.Others))
	if len(urls) == 0 || slices.Equal(known, others) {
		return nil
	}
	a.joined.Others = others
	return a.joined.write(a.o.hub("joined.json"))
}

// unheard is why the hub says nothing to this host, which renews its certificate where that has run out.
func (a *Agent) unheard(ctx context.Context, err error) error {
	if apierrors.IsUnauthorized(err) {
		return errors.Join(err, a.readmit(ctx))
	}
	return unreached{err}
}

// sync takes over what the hub says, acts, and reports.
func (a *Agent) sync(ctx context.Context) error {
	if a.joined.New || a.desired.State.Hub.ID == "" {
		if err := a.desired.Rehome(ctx, a.server); err != nil {
			return a.unheard(ctx, err)
		}
		a.joined.New = false
		if err := a.joined.write(a.o.hub("joined.json")); err != nil {
			return err
		}
	}
	f, err := a.desired.Sync(ctx, a.server)
	if err != nil {
		return a.unheard(ctx, err)
	}
	a.compare()
	a.note(map[bool]string{true: "follows the hub", false: "HubRegressed: " + f.Regressed}[f.Regressed == ""],
		a.differ())
	if f.Regressed == "" {
		more, err := a.server.claim(ctx)
		if err == nil && more {
			f, err = a.desired.Sync(ctx, a.server)
		}
		if err == nil {
			err = a.remember(a.server.urls)
		}
		if err == nil {
			err = a.reserve(ctx)
		}
		if err != nil {
			return err
		}
	} else {
		a.o.Log.WarnContext(ctx, "HubRegressed", "reason", f.Regressed)
	}
	if f.Changed {
		a.hear() // when it is done: to say so, and to let go of what has ended
	}
	return errors.Join(a.report(ctx, f), a.beat(ctx), a.renew(ctx))
}

func (a *Agent) hear() {
	select {
	case a.news <- struct{}{}:
	default:
	}
}

// watch has changes of Instances heard at once.
func (a *Agent) watch(ctx context.Context) {
	if a.server.list == "" || a.watching.Load() {
		return
	}
	a.unwatch()
	ctx, a.unwatch = context.WithCancel(ctx)
	w, err := a.server.resource("instances").Watch(ctx, metav1.ListOptions{ResourceVersion: a.server.list})
	if err != nil {
		return // the next call sees them
	}
	a.watching.Store(true)
	go func() {
		defer w.Stop()
		for range w.ResultChan() {
			a.hear()
		}
		a.watching.Store(false)
		a.hear() // nobody watches any more
	}()
}

// names are those of Instances of this host.
func (a *Agent) names(uids []string) string {
	var names []string
	for _, uid := range uids {
		names = append(names, a.desired.State.Instances[uid].Name)
	}
	return strings.Join(names, ", ")
}
