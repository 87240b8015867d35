package prove

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"isolane.dev/isolane/runtime/process"
)

// runAll runs commands, one after the other. What they leave running, such as a server, goes on.
func runAll(ctx context.Context, commands [][]string) error {
	for _, argv := range commands {
		said := &output{}
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Stdout, cmd.Stderr, cmd.WaitDelay = said, said, held
		// A group of its own: Ctrl-C ends a before with its children, and does not cut an after.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return process.Kill(cmd) }
		err := cmd.Run()
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", strings.Join(argv, " "), context.Cause(ctx))
		}
		if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
			return fmt.Errorf("%s: %w", strings.Join(argv, " "), reason(err, said))
		}
	}
	return nil
}

// leftError says that a command has failed that takes back what another did.
type leftError struct{ error }

func (e *leftError) Unwrap() error { return e.error }

// runAfter runs commands that take back what others did, so also when ctx has ended: then for at most limit,
// so that Ctrl-C ends a session in every case.
func runAfter(ctx context.Context, limit time.Duration, commands [][]string) error {
	lasting, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	stop := context.AfterFunc(ctx, func() {
		timeout := time.NewTimer(limit)
		defer timeout.Stop()
		select {
		case <-lasting.Done():
		case <-timeout.C:
			end(fmt.Errorf("did not end within %s after the interruption: what it takes back may stand", limit))
		}
	})
	defer stop()
	if err := runAll(lasting, commands); err != nil {
		return &leftError{err}
	}
	return nil
}
