// Package agent looks after the lanes of a host while it runs. It reads who disturbs them and what drifts,
// repairs drift, follows lanes that come and go, and reports all of it to logs, Prometheus and programs.
//
// Except for its counters, everything it knows is in the records of lanes. So an agent that is killed loses
// no lane, and the next one goes on at once.
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

// Interval is the default time between two readings.
const Interval = 5 * time.Second

// Options say what an agent does.
type Options struct {
	Lanes    lanes.Options
	Interval time.Duration // between readings; the kernel counts in between
	Repair   bool          // repair drift, unless somebody keeps changing the setting
	Log      *slog.Logger
	History  string // directory of the history; "": none is written
	Version  string // of this program

	Socket   string // of the API; "": none
	Readable bool   // users who may not change lanes may read through the socket
	Listen   string // a loopback address and port, for reads only; "": none
}

// Validate rejects options that cannot be.
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

// Agent is a running agent.
type Agent struct {
	o       Options
	watch   *watch.Watch
	status  cache
	streams streams
	history *recorder // nil: none

	mu       sync.Mutex // guards what follows
	last     watch.Reading
	totals   map[string]*total // of the lanes in force, by name
	unjudged bool              // verdicts may have changed since the last look
	repairs  uint64
	failed   uint64
	failure  string // of the last reading; "": it went well
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

// Socket returns the socket of a host's agent, $ISOLANE_SOCKET or the default.
func Socket() string { return cmp.Or(os.Getenv("ISOLANE_SOCKET"), "/run/isolane.sock") }

// Whole makes lanes be planned for all CPUs that this process may use now. The agent must fix that at its
// start, because later it keeps itself off the CPUs of lanes.
func Whole(o lanes.Options) (lanes.Options, error) {
	l, err := lanes.Look(o)
	if err != nil || !o.CPUs.IsEmpty() {
		return o, err
	}
	v, err := l.View()
	o.CPUs = v.Host.Usable()
	if o.CPUs == v.Host.Online() {
		o.CPUs = v.Host.Possible() // also CPUs that come online later
	}
	return o, err
}

// idle is the shortest wait for a reading while there is no lane.
const idle = time.Minute

// wait waits for the next reading, and reports whether the records of lanes have changed.
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

// read takes a reading, and reports what is new in it.
func (a *Agent) read(ctx context.Context, changed bool) {
	if ctx.Err() != nil {
		return
	}
	r, err := a.watch.Read(ctx)
	changed = changed || drifted(r) != drifted(a.last) // drift ends what was proved
	judged, jerr := a.judge(ctx, a.watch.Lanes(), changed)
	for _, e := range a.take(r, judged, cmp.Or(err, jerr)) {
		a.tell(ctx, e)
	}
}

// judge returns, after a change, the verdicts that measurements of the lanes in force still support. If it
// fails, the next reading tries again.
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
