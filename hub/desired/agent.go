package desired

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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

// Agent follows a hub, and goes on alone where there is none.
type Agent struct {
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
	next, f := a.State.Take(v, a.NewMark())
	if f.Changed {
		if err = a.commit(ctx, hub, v, next); err != nil {
			return f, err
		}
	}
	for _, uid := range f.Gone {
		err = errors.Join(err, hub.Release(ctx, uid))
	}
	return f, err
}

// commit makes next the state, once the hub has its mark.
func (a *Agent) commit(ctx context.Context, hub Server, v View, next State) error {
	asking := a.State.clone()
	if v.Mark != asking.Hub.Mark { // an answer that had got lost
		asking.Hub.Mark, asking.Hub.Asked = v.Mark, nil
	}
	if len(asking.Hub.Asked) == mostAsked {
		return fmt.Errorf("the hub has not answered %d marks of this host: expected rehome to it", mostAsked)
	}
	asking.Hub.Asked = append(asking.Hub.Asked, next.Hub.Mark)
	if err := a.keep(asking); err != nil {
		return err
	}
	if err := hub.Acknowledge(ctx, v, next.Hub.Mark); err != nil {
		return err
	}
	return a.keep(next)
}

// keep writes a state to disk, and then holds it.
func (a *Agent) keep(s State) error {
	err := a.Save(s)
	if err == nil {
		a.State = s
	}
	return err
}

// Rehome makes the hub the one that the host follows, as it is now.
func (a *Agent) Rehome(ctx context.Context, hub Server) error {
	v, err := hub.View(ctx)
	if err != nil {
		return err
	}
	return a.keep(a.State.Rehome(v))
}

// Hold puts changes off, or no longer (nil).
func (a *Agent) Hold(h *Hold) error {
	next := a.State.clone()
	next.Hold = h
	return a.keep(next)
}

// Reconcile brings the host to its state. It asks no hub.
func (a *Agent) Reconcile(ctx context.Context) error {
	var failed error
	for _, uid := range slices.Sorted(maps.Keys(a.State.Instances)) {
		i := a.State.Instances[uid]
		var err error
		if i.Ending {
			err = a.end(ctx, uid, i)
		} else {
			err = a.Runtime.Ensure(ctx, uid, i)
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("instance %s: %w", i.Name, err))
		}
	}
	return failed
}

func (a *Agent) end(ctx context.Context, uid string, i Instance) error {
	if err := a.Runtime.End(ctx, uid, i); err != nil {
		return err
	}
	next := a.State.clone()
	delete(next.Instances, uid)
	return a.keep(next)
}
