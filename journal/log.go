package journal

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Dir is where journals lie: it goes with a reboot, as what they undo does.
const Dir = "/run/isolane"

const suffix = ".journal"

// ErrBusy says that another process holds the journal of that name.
var ErrBusy = errors.New("in use by another isolane process")

// log is the file: one JSON record a line, appended and flushed before the host is touched.
type log struct {
	f     *os.File
	steps []Step // done and not undone
}

type record struct {
	Done   *Step `json:"done,omitempty"`
	Undone *Step `json:"undone,omitempty"`
}

// Open makes or reopens the journal of that name in dir and locks it. It fails with ErrBusy while
// another process has it.
func Open(dir, name string, ops map[string]Op) (*Journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, name+suffix)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	fd := int(f.Fd())
	if err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = ErrBusy
		}
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	steps, err := replay(data)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return &Journal{ops: ops, log: &log{f: f, steps: steps}}, nil
}

// replay returns the steps that are done and not undone. A last line without its end was being
// written when the process died, before the host was touched: it does not count.
func replay(data []byte) ([]Step, error) {
	var steps []Step
	end := bytes.LastIndexByte(data, '\n')
	lines := bufio.NewScanner(bytes.NewReader(data[:end+1]))
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		var r record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		switch {
		case r.Done != nil:
			steps = append(steps, *r.Done)
		case r.Undone != nil:
			steps = without(steps, *r.Undone)
		}
	}
	return steps, lines.Err()
}

// without drops the last step equal to s.
func without(steps []Step, s Step) []Step {
	for i := len(steps) - 1; i >= 0; i-- {
		if steps[i] == s {
			return append(steps[:i:i], steps[i+1:]...)
		}
	}
	return steps
}

func (l *log) done(s Step) error {
	if err := l.append(record{Done: &s}); err != nil {
		return err
	}
	l.steps = append(l.steps, s)
	return nil
}

func (l *log) undone(s Step) error {
	l.steps = without(l.steps, s)
	if len(l.steps) == 0 { // keeps the log of a long session short
		return l.f.Truncate(0)
	}
	return l.append(record{Undone: &s})
}

func (l *log) append(r record) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if _, err := l.f.Write(append(line, '\n')); err != nil {
		return err
	}
	return l.f.Sync()
}

func (l *log) open() []Step { return append([]Step(nil), l.steps...) }

func (l *log) close() error {
	var err error
	if len(l.steps) == 0 {
		err = os.Remove(l.f.Name())
	}
	return errors.Join(err, l.f.Close())
}

// Recover undoes each journal in dir that no living process holds. It returns the names of those
// that it found, also with an error.
func Recover(ctx context.Context, dir string, ops map[string]Op) ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil {
		return nil, err
	}
	var found []string
	var errs []error
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), suffix)
		j, err := Open(dir, name, ops)
		if errors.Is(err, ErrBusy) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if len(j.Pending()) > 0 {
			found = append(found, name)
		}
		errs = append(errs, j.Undo(ctx), j.Close())
	}
	return found, errors.Join(errs...)
}
