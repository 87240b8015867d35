package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/hub/desired"
	"isolane.dev/isolane/journal"
)

// People at the site talk to the agent through files in its folder, so it need not run for that. "hub" is a
// link to the folder of the hub that the host has joined.
const (
	wishFile = "hold.json" // a desired.Hold that the agent has not taken over yet
	saidFile = "said.txt"  // what the agent said last about its hub
	lockFile = "agent.lock"
)

// lock claims the folder for one agent. It also works if the disk is read-only.
func (o Options) lock() (*os.File, error) {
	whole := unix.Flock_t{Type: unix.F_WRLCK}
	lock, err := os.Create(o.file(lockFile))
	if errors.Is(err, unix.EROFS) {
		whole.Type = unix.F_RDLCK // a file that cannot be written takes no write lock
		lock, err = os.Open(o.file(lockFile))
	}
	if err != nil {
		return nil, err
	}
	err = unix.FcntlFlock(lock.Fd(), unix.F_OFD_SETLK, &whole)
	if err == nil && whole.Type == unix.F_RDLCK {
		err = lockedByOther(lock)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: another agent runs: %w", o.Dir, err), lock.Close())
	}
	return lock, nil
}

// lockedByOther fails with EAGAIN if somebody else has locked the file.
func lockedByOther(lock *os.File) error {
	whole := unix.Flock_t{Type: unix.F_WRLCK}
	err := unix.FcntlFlock(lock.Fd(), unix.F_OFD_GETLK, &whole)
	if err == nil && whole.Type != unix.F_UNLCK {
		err = unix.EAGAIN
	}
	return err
}

// runs reports whether an agent has claimed the folder. It takes no lock itself, so an agent that starts at
// that moment is not turned away.
func (o Options) runs() bool {
	lock, err := os.Open(o.file(lockFile))
	if err != nil {
		return false
	}
	defer lock.Close()
	return errors.Is(lockedByOther(lock), unix.EAGAIN)
}

// read returns what a host knows about its hub.
func (o Options) read() (j joined, err error) {
	data, err := os.ReadFile(o.hub("joined.json"))
	if err == nil {
		err = json.Unmarshal(data, &j)
	}
	if err != nil {
		err = fmt.Errorf("this host has joined no hub: expected isolane-hub join first: %w", err)
	}
	return j, err
}

func (j joined) write(file string) error {
	data, err := json.Marshal(j)
	if err != nil {
		return err
	}
	return desired.WriteFile(file, append(data, '\n'))
}

// Rehome brings this host to another hub, or to the present state of the same one. What runs stays as it is;
// a running agent follows within seconds.
func Rehome(ctx context.Context, o Options, hub Hub) (name string, err error) {
	was, err := o.read()
	if err != nil {
		return "", err
	}
	return was.Name, o.join(ctx, hub, was.Name)
}

// Hold puts off changes by the hub for that much time in which the host runs; 0 ends the hold. The first
// result reports whether an agent has taken the hold over. If none runs, the next one does when it starts.
func Hold(ctx context.Context, o Options, left time.Duration, reason string) (bool, error) {
	if _, err := o.read(); err != nil {
		return false, err
	}
	data, err := json.Marshal(desired.Hold{Left: left, Reason: reason})
	if err == nil {
		err = desired.WriteFile(o.file(wishFile), data)
	}
	if err != nil {
		return false, err
	}
	for o.runs() {
		if _, err = os.Stat(o.file(wishFile)); errors.Is(err, fs.ErrNotExist) {
			return true, nil
		}
		select {
		case <-ctx.Done():
			return false, errors.New("the agent runs, and has not taken it over yet: see its log")
		case <-time.After(100 * time.Millisecond):
		}
	}
	return false, nil
}

// takeHold takes over a hold that people at the site have asked for, and counts down what is left of it.
func (a *Agent) takeHold(context.Context) error {
	err := a.asked()
	if a.state().Hold == nil { // there is nothing to count down
		return err
	}
	now, merr := moment()
	if merr == nil {
		merr = a.desired.Pass(now)
	}
	if a.state().Hold == nil { // it has ended: the changes that it put off may be made
		a.talkNow()
	}
	return errors.Join(err, merr)
}

func (a *Agent) asked() error {
	data, err := os.ReadFile(a.o.file(wishFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var h desired.Hold
	if err = json.Unmarshal(data, &h); err != nil {
		return fmt.Errorf("%s: %w", a.o.file(wishFile), err)
	}
	wanted := &h
	if h.Left <= 0 {
		wanted = nil
	}
	if err = a.desired.Hold(wanted); err != nil {
		return err
	}
	a.talkNow() // the changes that were put off may be made
	return os.Remove(a.o.file(wishFile))
}

// moment returns the present moment by the monotonic clock, which nobody sets.
func moment() (m desired.Moment, err error) {
	var now unix.Timespec
	if err = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err == nil {
		m.At = time.Duration(now.Nano())
		m.Boot, err = journal.BootID()
	}
	return m, err
}

// note records what there is to say about the hub, and why ("": no reason), if that has changed.
func (a *Agent) note(text, why string) {
	if why != "" {
		text += ": " + why
	}
	if text == a.said {
		return
	}
	a.said = text
	line := fmt.Sprintf("%s, since %s\n", text, time.Now().Format(time.RFC3339))
	if err := desired.WriteFile(a.o.file(saidFile), []byte(line)); err != nil {
		a.o.Log.Warn("what the agent says of its hub is not kept", "error", err)
	}
}

// Status prints what this host is to run, and for which hub. It asks no hub, and needs no agent.
func Status(ctx context.Context, o Options, w io.Writer) error {
	j, err := o.read()
	if err != nil {
		return err
	}
	s, err := desired.Load(o.file("state.json"))
	if err != nil {
		return err
	}
	said, err := os.ReadFile(o.file(saidFile))
	switch {
	case !o.runs():
		said = []byte("no agent runs: expected isolane-hub agent")
	case err != nil:
		said = []byte("the agent has not spoken with the hub yet")
	}
	fmt.Fprintf(w, "host %s of %s\n%s\n", j.Name, j.URL, strings.TrimSpace(string(said)))
	if now, merr := moment(); merr == nil {
		s = s.Elapsed(now)
	}
	if s.Hold != nil {
		fmt.Fprintf(w, "changes are put off for %s more: %s\n", s.Hold.Left.Round(time.Second), s.Hold.Reason)
	}
	if len(s.Instances) == 0 {
		fmt.Fprintln(w, "nothing is to run")
	}
	all := o.instances()
	for _, uid := range slices.Sorted(maps.Keys(s.Instances)) {
		line, lerr := all.Line(ctx, s.Instances[uid])
		if lerr != nil {
			return lerr
		}
		fmt.Fprintln(w, line)
	}
	return nil
}
