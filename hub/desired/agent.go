package desired

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Server is the hub as one host reaches it.
type Server interface {
	View(ctx context.Context) (View, error)
	// Acknowledge leaves a mark at the hub, unless somebody has left another one since the view.
	Acknowledge(ctx context.Context, v View, mark string) error
	// Release removes this host's finalizer from an object with a tombstone, so that the object may vanish.
	Release(ctx context.Context, uid string) error
}

// Runtime runs Instances on the host. Both methods may be called again for what they have already done.
type Runtime interface {
	Ensure(ctx context.Context, uid string, i Instance) error // makes it run as its spec says
	End(ctx context.Context, uid string, i Instance) error    // leaves nothing of it
}

// Agent follows a hub, and works on alone if there is none. Its methods may be called concurrently. State and
// Runtime belong to whoever holds the lock. Nobody holds it while a hub is asked, because the hub may never
// answer.
type Agent struct {
	sync.Mutex

	State   State
	Save    func(State) error // to disk, whole or not at all
	Runtime Runtime
	NewMark func() string // one that has never been used
}

// mostAsked is how many marks may lack an answer: if the hub's store takes writes and never answers, that
// must not fill the host's disk.
const mostAsked = 64

// Sync takes over what the hub says. Its order makes it safe: it writes the mark to disk, leaves the mark at
// the hub, writes the change to disk, and only then may Reconcile carry the change out. So whatever a host
// has done is behind a mark, and a hub without that mark is older than what was done.
func (a *Agent) Sync(ctx context.Context, hub Server) (Findings, error) {
	v, err := hub.View(ctx)
	if err != nil {
		return Findings{}, err
	}
	mark := a.NewMark()
	f, err := a.ask(v, mark)
	if err == nil && f.Changed {
		if err = hub.Acknowledge(ctx, v, mark); err == nil {
			f, err = a.follow(v, mark)
		}
	}
	if err != nil {
		return f, err
	}
	for _, uid := range f.Gone {
		err = errors.Join(err, hub.Release(ctx, uid))
	}
	return f, err
}

// ask finds what a view changes, and first writes to disk the mark that the hub will get.
func (a *Agent) ask(v View, mark string) (Findings, error) {
	a.Lock()
	defer a.Unlock()
	_, f := a.State.Take(v, mark)
	if !f.Changed {
		return f, nil
	}
	asking := a.State.clone()
	if v.Mark != asking.Hub.Mark { // the hub has it: its answer was lost
		asking.Hub.Mark, asking.Hub.Asked = v.Mark, nil
	}
	if len(asking.Hub.Asked) == mostAsked {
		return f, fmt.Errorf("the hub has not answered %d marks of this host: expected rehome to it", mostAsked)
	}
	asking.Hub.Asked = append(asking.Hub.Asked, mark)
	return f, a.keep(asking)
}

// follow takes over what a view changes, now that the hub has the mark. It starts from the present state:
// while the hub was asked, something may have ended, or people may have put changes off.
func (a *Agent) follow(v View, mark string) (Findings, error) {
	a.Lock()
	defer a.Unlock()
	next, f := a.State.Take(v, mark)
	if !f.Changed {
		return f, nil
	}
	return f, a.keep(next)
}

// UnkeptError means that the host cannot write to disk what it is to run.
type UnkeptError struct{ Err error }

func (e *UnkeptError) Error() string { return "what is to run is not written down: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *UnkeptError) Unwrap() error { return e.Err }

// keep writes a state to disk, and then makes it the present one.
func (a *Agent) keep(s State) error {
	if err := a.Save(s); err != nil {
		return &UnkeptError{err}
	}
	a.State = s
	return nil
}

// Rehome makes the host follow the hub, in the hub's present state.
func (a *Agent) Rehome(ctx context.Context, hub Server) error {
	v, err := hub.View(ctx)
	if err != nil {
		return err
	}
	a.Lock()
	defer a.Unlock()
	return a.keep(a.State.Rehome(v))
}

// Hold puts changes off; nil ends that.
func (a *Agent) Hold(h *Hold) error {
	a.Lock()
	defer a.Unlock()
	next := a.State.clone()
	next.Hold = h
	return a.keep(next)
}

// Pass counts a hold down. It writes what is left to disk each minute, so a reboot lengthens the hold by a
// minute at most, and a restart of the agent does not.
func (a *Agent) Pass(now Moment) error {
	a.Lock()
	defer a.Unlock()
	was, next := a.State.Hold, a.State.Elapsed(now)
	if was == nil || next.Hold != nil && was.Since.Boot == now.Boot && was.Left-next.Hold.Left < time.Minute {
		return nil
	}
	return a.keep(next)
}

// Reconcile brings the host to its state. It returns an error for each Instance that is not as it should be.
// It asks no hub. Others may take the lock between two Instances.
func (a *Agent) Reconcile(ctx context.Context) (failed []error) {
	a.Lock()
	all := slices.Sorted(maps.Keys(a.State.Instances))
	a.Unlock()
	for _, uid := range all {
		if err := a.bring(ctx, uid); err != nil {
			failed = append(failed, err)
		}
	}
	return failed
}

// bring brings one Instance to its state, if the Instance still exists.
func (a *Agent) bring(ctx context.Context, uid string) error {
	a.Lock()
	defer a.Unlock()
	i, is := a.State.Instances[uid]
	if !is {
		return nil
	}
	do := a.Runtime.Ensure
	if i.Ending {
		do = a.end
	}
	if err := do(ctx, uid, i); err != nil {
		return fmt.Errorf("instance %s: %w", i.Name, err)
	}
	return nil
}

func (a *Agent) end(ctx context.Context, uid string, i Instance) error {
	if err := a.Runtime.End(ctx, uid, i); err != nil {
		return err
	}
	next := a.State.clone()
	delete(next.Instances, uid)
	return a.keep(next)
}
