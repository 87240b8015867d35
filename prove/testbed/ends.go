package testbed

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/prove/programs"
)

// atEnds returns the capabilities of programs at the ends of the wire: they make devices and routes in the
// namespace of their end.
func atEnds() []string { return []string{"NET_ADMIN"} }

// startEnds starts the programs at both ends of the wire; nil is none.
func (r *Bed) startEnds(ctx context.Context, at place) (client, application *programs.Process, err error) {
	ends := at.given.Ends
	if len(ends.Client) == 0 {
		return nil, nil, nil
	}
	outside, err := r.outside(at)
	if err != nil {
		return nil, nil, err
	}
	if client, err = programs.Start(ctx, r.Self, "program at the client's end", outside, nil, ends.Client,
		programs.Ready{Text: factor.Ready}); err != nil {
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
	if application, err = programs.Start(ctx, r.Self, "program at the application's end", inside, env, argv,
		programs.Ready{Text: factor.Ready}); err != nil {
		return client, nil, fmt.Errorf("program at the application's end: %w", err)
	}
	return client, application, nil
}

// stopEnds asks the programs at both ends to end.
func stopEnds(ends ...*programs.Process) (err error) {
	for _, p := range ends {
		if p != nil {
			err = errors.Join(err, p.Stop(syscall.SIGTERM, patience))
		}
	}
	return err
}
