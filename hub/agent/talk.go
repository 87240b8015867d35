package agent

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"isolane.dev/isolane/hub/desired"
	"isolane.dev/isolane/hub/sites"
)

// followHub speaks with the hub until the context ends.
func (a *Agent) followHub(ctx context.Context) {
	for ctx.Err() == nil {
		a.try(ctx, "rehome", a.connect)
		a.talk(ctx)
		a.try(ctx, "reservations", a.settle)
		if idle(ctx, a.news) {
			a.next = time.Time{}
		}
	}
}

// talk speaks with the hub when that is due. Otherwise it sends a sign of life, if one is due.
func (a *Agent) talk(ctx context.Context) {
	now := time.Now()
	brief, cancel := context.WithTimeout(ctx, talkTimeout)
	defer cancel()
	switch {
	case !now.Before(a.next):
		heard, begun := false, false
		a.try(ctx, "the hub", func(context.Context) error {
			err := a.talkToAny(brief)
			heard = err == nil
			return err
		})
		a.next, a.glance = now.Add(talkInterval), now.Add(glanceInterval)
		a.pulse = now.Add(a.untilPulse())
		if heard { // otherwise the watch may wait for long
			begun = a.watch(ctx)
			debug.FreeOSMemory() // the memory of a talk is not needed again for long
		}
		if heard && a.watching.Load() {
			a.next = now.Add(max(talkInterval, min(sites.Calm(begun), a.due.Sub(a.clock.hub()))))
		}
	case !now.Before(a.pulse):
		if a.pulse = now.Add(a.untilPulse()); a.renewLease(brief) != nil || a.clockMoved() {
			a.next = now // the talk says why, or what is new
		}
	case !now.Before(a.glance):
		if a.glance = now.Add(glanceInterval); a.changedHere(ctx) {
			a.next = now
		} else {
			debug.FreeOSMemory()
		}
	case a.server != nil && a.server.rest != nil:
		a.server.rest()
	}
}

// unreached means that a hub does not answer, or not to this host, in words for people at the site.
type unreached struct {
	error
	said, why string
}

// talkToAny speaks with the hub, and tries another of its URLs if one does not answer. If there is no time
// left for that, the next talk follows at once and uses the other URL.
func (a *Agent) talkToAny(ctx context.Context) error {
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
		a.note(u.said, u.why)
	}
	return err
}

// remember stores the URLs by which a trusted hub says that it is reached.
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

// explainSilence explains why the hub does not answer this host. If the certificate has expired, it renews
// it.
func (a *Agent) explainSilence(ctx context.Context, err error) error {
	switch {
	case apierrors.IsUnauthorized(err):
		return errors.Join(err, a.readmit(ctx))
	case apierrors.IsForbidden(err) && a.starts():
		return unreached{err, "does not reach the hub", "it lets this host do nothing yet, as when it has just " +
			"started"}
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		no := "the hub has no host " + a.joined.Name + ", or somebody has revoked it; what runs goes on: " +
			"isolane-hub rehome, with a new token, joins again"
		return unreached{fmt.Errorf("%s: %w", no, err), "is not let in", no}
	}
	a.barred = time.Time{}
	return unreached{err, "does not reach the hub", explainStranger(err)}
}

// starts reports whether a hub that lets this host do nothing may have just started: it answers before it has
// read who may do what, which takes it some seconds where it has many hosts.
func (a *Agent) starts() bool {
	if a.barred.IsZero() {
		a.barred = time.Now()
	}
	return time.Since(a.barred) < 3*talkInterval
}

// sync takes over what the hub says, and reports. It sends the sign of life even if the host can do nothing
// else, for example because its disk takes no more writes.
func (a *Agent) sync(ctx context.Context) error {
	f, err := a.take(ctx)
	_, unkept := errors.AsType[*desired.UnkeptError](err)
	if err != nil && !unkept {
		return a.explainSilence(ctx, err)
	}
	a.barred = time.Time{}
	a.clockMoved()
	switch {
	case unkept:
		f.Changed = false
		a.note("takes over nothing that the hub says", err.Error())
	case f.Regressed != "":
		a.note("HubRegressed", f.Regressed)
		a.o.Log.WarnContext(ctx, "HubRegressed", "reason", f.Regressed)
	default:
		a.note("follows the hub", a.clockDifference())
	}
	err = errors.Join(err, a.renewLease(ctx))
	if f.Regressed == "" {
		more, cerr := a.server.claim(ctx)
		if cerr == nil && more {
			f, cerr = a.take(ctx)
		}
		if cerr == nil {
			cerr = errors.Join(a.remember(a.server.urls), a.reserve(ctx))
		}
		err = errors.Join(err, cerr)
	}
	return errors.Join(err, a.report(ctx, f), a.renew(ctx))
}

// take takes over what the hub says, and has it done without waiting for that.
func (a *Agent) take(ctx context.Context) (f desired.Findings, err error) {
	if a.joined.New || a.state().Hub.ID == "" {
		if err = a.desired.Rehome(ctx, a.server); err != nil {
			return f, err
		}
		a.joined.New = false
		if err = a.joined.write(a.o.hub("joined.json")); err != nil {
			return f, &desired.UnkeptError{Err: err}
		}
	}
	if f, err = a.desired.Sync(ctx, a.server); f.Changed {
		a.instances.Wake()
	}
	return f, err
}

// state returns what this host is to run at present.
func (a *Agent) state() desired.State {
	a.desired.Lock()
	defer a.desired.Unlock()
	return a.desired.State
}

// talkNow makes the agent speak with the hub at once.
func (a *Agent) talkNow() {
	select {
	case a.news <- struct{}{}:
	default:
	}
}

// watch makes the agent hear changes of Instances at once, and reports whether it does so only from now on.
func (a *Agent) watch(ctx context.Context) (begun bool) {
	if a.server.list == "" || a.watching.Load() {
		return false
	}
	a.unwatch()
	ctx, a.unwatch = context.WithCancel(ctx)
	w, err := a.server.resource("instances").Watch(ctx, metav1.ListOptions{ResourceVersion: a.server.list})
	if err != nil {
		return false // the next call sees the changes
	}
	a.watching.Store(true)
	go func() {
		defer w.Stop()
		for range w.ResultChan() {
			a.talkNow()
		}
		a.watching.Store(false)
		a.talkNow() // nobody watches any more
	}()
	return true
}

// names returns the names of those Instances of this host.
func (a *Agent) names(uids []string) string {
	var names []string
	all := a.state().Instances
	for _, uid := range uids {
		names = append(names, all[uid].Name)
	}
	return strings.Join(names, ", ")
}
