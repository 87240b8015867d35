package lanes

import (
	"context"
	"time"

	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/journal"
)

// Settled waits until no process changes lanes, for at most two seconds. During a change lanes look disturbed
// and drifted. After a change (changed) it also waits a moment for the next one: changes come in series, and
// reading the lanes or restarting a trace would slow the next change down.
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

// StatusOf returns the status of the lanes in force. If another process is changing lanes, it looks again
// after that, so the change is not reported as drift.
func StatusOf(ctx context.Context, o Options) (enforce.Status, error) {
	const looks = 5 // enough for a series of changes
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
