package programs

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"isolane.dev/isolane/runtime/process"
)

// usualLimit is how long a command of a factor may take if its level does not say.
const usualLimit = 5 * time.Minute

// RunAll runs commands one after the other, each for at most limit. What they leave running, such as a
// server, continues.
func RunAll(ctx context.Context, limit time.Duration, commands [][]string) error {
	for _, argv := range commands {
		if err := runOne(ctx, cmp.Or(limit, usualLimit), argv); err != nil {
			return fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
		}
	}
	return nil
}

func runOne(ctx context.Context, limit time.Duration, argv []string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("did not end within %s", limit))
	defer cancel()
	said := &output{}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = said, said, held
	// A group of its own: Ctrl-C ends a before with its children, and does not interrupt an after.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return process.Kill(cmd) }
	err := cmd.Run()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		return nil
	}
	return reason(err, said)
}

// LeftError says that a command failed that was to undo what another did.
type LeftError struct{ error }

// Unwrap returns the error of the command.
func (e *LeftError) Unwrap() error { return e.error }

// RunAfter runs commands that undo what others did, even if ctx has ended: then all together for at most
// patience, so that Ctrl-C always ends a session.
func RunAfter(ctx context.Context, limit, patience time.Duration, commands [][]string) error {
	lasting, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	stop := context.AfterFunc(ctx, func() {
		timeout := time.NewTimer(patience)
		defer timeout.Stop()
		select {
		case <-lasting.Done():
		case <-timeout.C:
			end(fmt.Errorf("did not end within %s after the interruption: what it takes back may stand", patience))
		}
	})
	defer stop()
	if err := RunAll(lasting, limit, commands); err != nil {
		return &LeftError{err}
	}
	return nil
}

// Version returns what a program prints as its version; "" if it prints nothing in time. It is only for the
// record, so nothing waits for it.
func Version(ctx context.Context, program, env string) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	said := &output{}
	cmd := exec.CommandContext(ctx, program, "--version")
	cmd.Env, cmd.Stdout, cmd.WaitDelay = append(os.Environ(), env), said, held
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return process.Kill(cmd) }
	if cmd.Run() != nil {
		return ""
	}
	line, _, _ := bytes.Cut(said.bytes(), []byte("\n"))
	return printable(line[:min(len(line), mostShown)])
}
