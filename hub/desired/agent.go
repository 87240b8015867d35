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

// Server is the hub, as one host reaches it.
type Server interface {
	View(ctx context.Context) (View, error)
	// Acknowledge leaves a mark, where nobody has left one since the view.
	Acknowledge(ctx context.Context, v View, mark string) error
	// Release lets go of an object that has a tombstone: it may vanish.
	Release(ctx context.Context, uid string) error
}

// Runtime is what runs on the host. Both may be called again for what they have done already.
type Runtime interface {
	Ensure(ctx context.Context, uid string, i Instance) error // it runs, and as its spec says
	End(ctx context.Context, uid string, i Instance) error    // nothing of it is left
}

// Agent follows a hub, and goes on alone where there is none. Its methods may be called beside each other:
// State and Runtime are of who has the lock. Nobody has it while a hub is asked, which may never answer.
type Agent struct {
	sync.Mutex

	State   State
	Save    func(State) error // to disk, whole or not at all
	Runtime Runtime
	NewMark func() string // one that was never there
}

// mostAsked is how many marks may be without an answer: a store of the hub that takes writes and never
// answers must not fill the disk of the host.
const mostAsked = 64

// Sync takes over what the hub says. Its order is what makes it safe: the mark is written down, then left at
// the hub, then the change is written down, and only then Reconcile does it. So what a host has done stands
// behind a mark, and a hub without that mark is older than what was done.
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

// ask looks what a view changes, and writes down the mark that the hub is to have before that.
func (a *Agent) ask(v View, mark string) (Findings, error) {
	a.Lock()
	defer a.Unlock()
	_, f := a.State.Take(v, mark)
	if !f.Changed {
		return f, nil
	}
	asking := a.State.clone()
	if v.Mark != asking.Hub.Mark { // an answer that had got lost
		asking.Hub.Mark, asking.Hub.Asked = v.Mark, nil
	}
	if len(asking.Hub.Asked) == mostAsked {
		return f, fmt.Errorf("the hub has not answered %d marks of this host: expected rehome to it", mostAsked)
	}
	asking.Hub.Asked = append(asking.Hub.Asked, mark)
	return f, a.keep(asking)
}

// follow takes over what a view changes, now that the hub has the mark: of the state as it is by now, as
// something may have ended, or people may have put changes off, while the hub was asked.
func (a *Agent) follow(v View, mark string) (Findings, error) {
	a.Lock()
	defer a.Unlock()
	next, f := a.State.Take(v, mark)
	if !f.Changed {
		return f, nil
	}
	return f, a.keep(next)
}

// UnkeptError is that the host cannot write down what it is to run.
type UnkeptError struct{ Err error }

func (e *UnkeptError) Error() string { return "what is to run is not written down: " + e.Err.Error() }

// Unwrap is for the package errors.
func (e *UnkeptError) Unwrap() error { return e.Err }

// keep writes a state to disk, and then holds it.
func (a *Agent) keep(s State) error {
	if err := a.Save(s); err != nil {
		return &UnkeptError{err}
	}
	a.State = s
	return nil
}

// Rehome makes the hub the one that the host follows, as it is now.
func (a *Agent) Rehome(ctx context.Context, hub Server) error {
	v, err := hub.View(ctx)
	if err != nil {
		return err
	}
	a.Lock()
	defer a.Unlock()
	return a.keep(a.State.Rehome(v))
}

// Hold puts changes off, or no longer (nil).
func (a *Agent) Hold(h *Hold) error {
	a.Lock()
	defer a.Unlock()
	next := a.State.clone()
	next.Hold = h
	return a.keep(next)
}

// Pass has a hold last no longer than it is to. What is left of it is written down each minute, so a reboot
// makes it longer by that at most; a new start of the agent does not.
func (a *Agent) Pass(now Moment) error {
	a.Lock()
	defer a.Unlock()
	was, next := a.State.Hold, a.State.Elapsed(now)
	if was == nil || next.Hold != nil && was.Since.Boot == now.Boot && was.Left-next.Hold.Left < time.Minute {
		return nil
	}
	return a.keep(next)
}

// Reconcile brings the host to its state, and returns what is not done, an error for each Instance. It asks
// no hub. Between two Instances others may have the lock.
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

// bring brings one Instance to what it is to be, if it is still there.
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
