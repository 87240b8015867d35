package testbed

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"isolane.dev/isolane/factor"
)

// atEnds are the capabilities of programs at the ends of the wire: they make devices and routes in the
// namespace of their end.
func atEnds() []string { return []string{"NET_ADMIN"} }

// startEnds starts the programs at both ends of the wire; nil is none.
func (r *Bed) startEnds(ctx context.Context, at place) (client, application *proc, err error) {
	ends := at.given.Ends
	if len(ends.Client) == 0 {
		return nil, nil, nil
	}
	outside, err := r.outside(at)
	if err != nil {
		return nil, nil, err
	}
	if client, err = startAwaiting(ctx, r.Self, "program at the client's end", outside, nil, ends.Client,
		awaited{text: factor.Ready}); err != nil {
		return nil, nil, fmt.Errorf("program at the client's end: %w", err)
	}
	inside, env, err := r.inside(at, 0, atEnds()...)
	argv := ends.Application
	if err == nil {
		argv, err = r.serving(at, &inside, argv, atEnds(), "")
	}
	if err != nil {
		return client, nil, err
	}
	if application, err = startAwaiting(ctx, r.Self, "program at the application's end", inside, env, argv,
		awaited{text: factor.Ready}); err != nil {
		return client, nil, fmt.Errorf("program at the application's end: %w", err)
	}
	return client, application, nil
}

// stopEnds asks the programs at both ends to end.
func stopEnds(ends ...*proc) (err error) {
	for _, p := range ends {
		if p != nil {
			err = errors.Join(err, p.stop(syscall.SIGTERM, patience))
		}
	}
	return err
}
