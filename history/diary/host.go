package diary

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"isolane.dev/isolane/enforce/attached"
	"isolane.dev/isolane/history"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/quantity"
)

// Host is this host for a program that changes its lanes: the history records what the program does. Errors
// are those of package lanes.
type Host struct {
	Options lanes.Options
	Diary
	Out io.Writer // receives who is waited for, which lanes have expired, and what could not be recorded
}

// UnchangedError says why lanes were not put in force. Those that were in force before still are.
type UnchangedError struct{ Err error }

func (e *UnchangedError) Error() string { return e.Err.Error() }
func (e *UnchangedError) Unwrap() error { return e.Err }

// Hint says what is in force.
func (e *UnchangedError) Hint() string {
	return "the lanes that were in force before are; isolane status shows them"
}

// LeftOutError says how many files of lanes were left out.
type LeftOutError struct{ Files, All int }

func (e *LeftOutError) Error() string {
	return fmt.Sprintf("lanes of %d of %d files are not in force", e.Files, e.All)
}

// change changes the lanes in force, and records that. It waits half a minute for others that change them,
// and releases lanes that an ended isolane run has left behind.
func (h *Host) change(ctx context.Context, command string, do func(*lanes.Lanes) error) error {
	defer h.Keep()
	if err := lanes.Need(command); err != nil {
		return err
	}
	l, names, err := lanes.OpenPatiently(ctx, h.waiting())
	lanes.WriteExpired(h.Out, names)
	h.Released(names, expired)
	if err != nil {
		return err
	}
	defer l.Close()
	return do(l)
}

// waiting returns the options of a command that prints for whom it waits.
func (h *Host) waiting() lanes.Options {
	o := h.Options
	o.Wait = func(by journal.Holder) { fmt.Fprintf(h.Out, "waiting for %s, which changes this host\n", by) }
	return o
}

// Keep writes the diary. Lanes matter more: a failure to record is only printed.
func (h *Host) Keep() {
	if err := h.Flush(); err != nil {
		fmt.Fprintf(h.Out, "isolane: history: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}

// applied reports the outcome of a placement, and records it.
func (h *Host) applied(a lanes.Applied, err error) error {
	_, target := errors.AsType[*lanes.TargetError](err)
	_, refused := errors.AsType[*plan.Refusal](err)
	switch {
	case err == nil:
		h.Applied(a)
	case !target && !refused: // something may have changed
		a.WriteOutside(h.Out)
		return &UnchangedError{err}
	}
	return err
}

// Apply puts the lanes of files in force, or none of them; see lanes.Declared.
func (h *Host) Apply(ctx context.Context, files []string, stdin io.Reader, prune bool) (a lanes.Applied,
	err error) {
	err = h.change(ctx, "apply", func(l *lanes.Lanes) (err error) {
		want, err := l.Declared(files, stdin)
		if err != nil {
			return err
		}
		if a, err = l.PutLanes(ctx, want, prune); a.Kind == "" {
			return err
		}
		return h.applied(a, err)
	})
	return a, err
}

// ApplyEach puts the lanes of files in force as far as possible, and says why the others are not. The error
// is a *LeftOutError if some are not.
func (h *Host) ApplyEach(ctx context.Context, files []string, stdin io.Reader) (a lanes.Applied, err error) {
	err = h.change(ctx, "apply", func(l *lanes.Lanes) (err error) {
		if err = l.Recorded(); err != nil {
			return err
		}
		read, left := lane.ReadEach(files, stdin)
		all := len(read) + len(left)
		applied, refused := l.PutEach(ctx, read, func(a lanes.Applied, err error) { _ = h.applied(a, err) })
		a, left = applied, append(left, refused...)
		for _, why := range left {
			fmt.Fprintf(h.Out, "isolane: left out: %v\n", why)
		}
		if len(left) > 0 {
			return &LeftOutError{len(left), all}
		}
		return nil
	})
	return a, err
}

// Release releases the lanes of these names, or all.
func (h *Host) Release(ctx context.Context, names []string, all bool) (r lanes.Released, err error) {
	err = h.change(ctx, "release", func(l *lanes.Lanes) (err error) {
		if all {
			names = l.Names()
		}
		if r, err = l.Release(ctx, names...); err == nil {
			h.Released(names, "taken back")
		}
		return err
	})
	return r, err
}

// Attach brings a running workload into its lane.
func (h *Host) Attach(ctx context.Context, at attached.Workload) (a lanes.Attached, err error) {
	err = h.change(ctx, "attach", func(l *lanes.Lanes) (err error) {
		if a, err = l.Attach(ctx, at); err == nil {
			h.Add(history.Event{Kind: history.Attached, Lane: at.Lane, What: quantity.Count(a.Threads, "thread")})
		}
		return err
	})
	return a, err
}

// Recover ends what a crash has left half done.
func (h *Host) Recover(ctx context.Context, adopt bool) (r lanes.Recovered, err error) {
	if err = lanes.Need("recover"); err != nil {
		return r, err
	}
	defer h.Keep()
	r, err = lanes.Recover(ctx, h.waiting(), adopt)
	h.Recovered(r)
	return r, err
}

// Run runs a command in a lane that lives as long as the command, and returns its exit code.
func (h *Host) Run(ctx context.Context, want lane.Lane, with lanes.With, argv []string) (int, error) {
	defer h.Keep()
	name := want.Metadata.Name
	var began time.Time
	var writing sync.WaitGroup
	ended, err := lanes.RunTemporary(ctx, h.Options, want, with, argv, func(names []string, no error) {
		lanes.WriteExpired(h.Out, names)
		h.Released(names, expired)
		if no == nil {
			began = time.Now()
			h.Add(history.Event{Kind: history.Ran, Lane: name, What: "a lane for the life of a command"})
		}
		writing.Go(func() { _ = h.Flush() }) // without delaying the command; Keep tries again
	})
	ended.Write(h.Out, name)
	writing.Wait()
	if !began.IsZero() && ended.Release == nil {
		took := time.Since(began)
		what := fmt.Sprintf("the command has ended after %s, exit code %d", took.Round(time.Millisecond),
			ended.Code)
		if err != nil {
			what = "the command was not started"
		}
		h.Add(history.Event{Kind: history.Released, Lane: name, Took: took.Nanoseconds(), What: what})
	}
	return ended.Code, err
}
