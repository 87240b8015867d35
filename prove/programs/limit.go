package programs

import (
	"context"
	"fmt"
	"time"
)

// starvedDelay is how late this process notices the end of a limit if it does not get its CPUs.
const starvedDelay = 5 * time.Second

// WithLimit is context.WithTimeoutCause, but the cause also says if this process itself was kept off its CPUs
// when the limit ended.
func WithLimit(ctx context.Context, limit time.Duration, cause error) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	end := time.Now().Add(limit)
	timer := time.AfterFunc(limit, func() {
		if time.Since(end) > starvedDelay {
			cause = fmt.Errorf("%w; isolane itself was kept off its CPUs too", cause)
		}
		cancel(cause)
	})
	return ctx, func() {
		timer.Stop()
		cancel(context.Canceled)
	}
}
