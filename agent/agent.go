// Package agent looks after the lanes of a host for as long as it runs: it reads who disturbs them and what
// drifts, puts that back, follows lanes that come and go, and tells it all to logs, Prometheus and programs.
//
// What it knows beside the counters is in the records of lanes, so one that was killed loses no lane, and the
// next one goes on at once.
package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/watch"
)

// Interval is the time between two readings where nobody says another.
const Interval = 5 * time.Second

// Options say what an agent does.
type Options struct {
	Lanes    lanes.Options
	Interval time.Duration // between readings; the kernel counts meanwhile
	Repair   bool          // put back what somebody else changes, unless they keep changing it
	Log      *slog.Logger
	History  string // directory of the store that what matters later is written to; "": none
	Version  string // of this program

	Socket   string // that the API is served on; "": none
	Readable bool   // users who may not change lanes may read, on the socket
	Listen   string // a loopback address and port for reads; "": none
}

// Validate says which option cannot be.
func (o Options) Validate() error {
	if o.Interval < time.Second/10 {
		return errors.New("--interval: expected 100ms or more")
	}
	host, _, err := net.SplitHostPort(o.Listen)
	if ip := net.ParseIP(host); o.Listen != "" && (err != nil || ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("--listen %s: expected an address of loopback and a port, as 127.0.0.1:9101: whoever "+
			"reaches it may read", o.Listen)
	}
	return nil
}

// Agent is one at work.
type Agent struct {
	o       Options
	watch   *watch.Watch
	status  cache
	streams streams
	history *recorder // nil: none

	mu       sync.Mutex // of what follows
	last     watch.Reading
	totals   map[string]*total // by lane, of those in force
	unjudged bool              // what is proved may have ended since it was last looked at
	repairs  uint64
	failed   uint64
	failure  string // of the last reading, "" where it went well
	warnings string
}

// Run watches until the context ends. It keeps all threads of this process off the lanes' CPUs.
func Run(ctx context.Context, o Options) (err error) {
	a := &Agent{o: o, totals: map[string]*total{}}
	if a.o.Lanes, err = Whole(o.Lanes); err != nil {
		return err
	}
	if o.History != "" {
		a.history = newRecorder(o.History, o.Log)
		defer a.history.close()
	}
	s, err := a.listen()
	if err != nil {
		return err
	}
	changes, err := newChanges(o.Lanes.Dir)
	if err == nil {
		a.watch, err = watch.Open(o.Lanes, watch.Options{Repair: o.Repair, Follow: true})
	}
	if err != nil {
		return errors.Join(err, changes.close(), s.close())
	}
	defer func() { err = errors.Join(err, changes.close(), a.watch.Close()) }()
	a.tell(ctx, Event{What: Started, Text: "isolane " + o.Version})
	a.read(ctx, true)
	s.serve()
	for ctx.Err() == nil {
		a.read(ctx, a.wait(ctx, changes))
	}
	a.tell(context.WithoutCancel(ctx), Event{What: Stopped})
	return s.close()
}

// Socket is where the agent of a host serves its API, unless $ISOLANE_SOCKET names another place.
func Socket() string { return cmp.Or(os.Getenv("ISOLANE_SOCKET"), "/run/isolane.sock") }

// Whole has lanes be planned for all CPUs that this process may use now: an agent keeps off those of lanes
// from then on.
func Whole(o lanes.Options) (lanes.Options, error) {
	l, err := lanes.Look(o)
	if err != nil || !o.CPUs.IsEmpty() {
		return o, err
	}
	v, err := l.View()
	o.CPUs = v.Host.Usable()
	if o.CPUs == v.Host.Online() {
		o.CPUs = v.Host.Possible() // those too that come online later
	}
	return o, err
}

// idle is how long it waits at least while there is no lane.
const idle = time.Minute

// wait waits for the next reading, and says whether the record of lanes has changed.
func (a *Agent) wait(ctx context.Context, changes *changes) bool {
	changes.follow()
	until := a.o.Interval
	if len(a.totals) == 0 { // only this goroutine changes it
		until = max(until, idle)
	}
	timer := time.NewTimer(until)
	defer timer.Stop()
	changed := false
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-changes.some:
		changed = true
	}
	lanes.Settled(ctx, a.o.Lanes.Dir, changed)
	select {
	case <-changes.some:
		changed = true
	default:
	}
	return changed
}

// read takes a reading, and tells what is new in it.
func (a *Agent) read(ctx context.Context, changed bool) {
	if ctx.Err() != nil {
		return
	}
	r, err := a.watch.Read(ctx)
	changed = changed || drifted(r) != drifted(a.last) // which ends what is proved
	judged, jerr := a.judge(ctx, a.watch.Lanes(), changed)
	for _, e := range a.take(r, judged, cmp.Or(err, jerr)) {
		a.tell(ctx, e)
	}
}

// judge returns, after a change, what was proved of the lanes in force and still holds. Where that fails, the
// next reading looks again.
func (a *Agent) judge(ctx context.Context, all []enforce.LaneGroup, changed bool) (
	judged map[string][]lane.Judgement, err error) {
	if !changed && !a.unjudged { // only this goroutine changes it
		return nil, nil
	}
	judged = map[string][]lane.Judgement{}
	want := false
	for _, g := range all {
		judged[g.Lane.Name] = nil
		want = want || len(g.Lane.Spec.Objective.Bounds()) > 0
	}
	var s enforce.Status
	if want {
		s, err = a.status.get(ctx, a.o.Lanes, 0)
	}
	a.mu.Lock()
	a.unjudged = err != nil
	a.mu.Unlock()
	if err != nil {
		return nil, err
	}
	for _, l := range s.Lanes {
		judged[l.Name] = l.Objectives
	}
	return judged, nil
}
