package lanes

import (
	"context"
	"time"

	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/journal"
)

// Settled waits until no process changes lanes, which would look disturbed and drifted meanwhile, at most for
// two seconds. Where a change has just ended it waits a moment for the next one: they come in series, and to
// look at the lanes anew, or to begin a trace anew, slows a change that goes on beside it.
func Settled(ctx context.Context, dir string, changed bool) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	for quiet := !changed; ; {
		free := !journal.Busy(dir)
		if free && quiet {
			return
		}
		quiet = free
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second / 20):
		}
	}
}

// StatusOf is the status of the lanes in force. A change that another process is making is no drift: it looks
// again when that has ended.
func StatusOf(ctx context.Context, o Options) (enforce.Status, error) {
	const looks = 5 // where one change follows the other
	o = o.Complete()
	for n := 1; ; n++ {
		was, err := enforce.State(o.Dir)
		if err != nil {
			return enforce.Status{}, err
		}
		l, err := Look(o)
		if err != nil {
			return enforce.Status{}, err
		}
		s, err := l.Status(ctx)
		now, serr := enforce.State(o.Dir)
		still := serr == nil && now == was && !journal.Busy(o.Dir)
		if err == nil && len(s.Drift) == 0 || still || n == looks || ctx.Err() != nil {
			return s, err
		}
		Settled(ctx, o.Dir, false)
	}
}
