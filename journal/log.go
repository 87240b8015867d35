package journal

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Dir is the directory of journals. A reboot empties it, and undoes all that they record.
const Dir = "/run/isolane"

const suffix = ".journal"

// log is the journal's file: one JSON record a line, appended before the host is touched. It is not flushed
// to a disk: what a process has written survives the process in the kernel's cache, and a crash of the kernel
// undoes the changes too.
type log struct {
	f    *os.File
	head int64 // bytes of the first record
	size int64
	list
}

type record struct {
	Boot   string `json:"boot,omitempty"` // BootID of the boot in which the log began
	Done   *Step  `json:"done,omitempty"`
	Undone *Step  `json:"undone,omitempty"`
}

// BootID returns the ID of this boot of the machine (random(4)).
func BootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(data)), err
}

// Open opens the journal of that name in dir, or creates it, and checks all its steps. While it is open no
// other process can open a journal in dir: Open then fails with a *BusyError that names the process which has
// one open.
func Open(dir, name string, ops map[string]Op) (*Journal, error) {
	if err := stateDir(dir); err != nil {
		return nil, err
	}
	l, err := takeLock(dir)
	if err != nil {
		return nil, err
	}
	j := &Journal{ops: ops, lock: l}
	if err = j.load(dir, name); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return j, nil
}

// OpenWait is like Open, but waits while another process has a journal open in dir. It calls waiting, which
// may be nil, with each process that it waits for. When ctx ends it fails with the *BusyError.
func OpenWait(
	ctx context.Context, dir, name string, ops map[string]Op, waiting func(*BusyError),
) (j *Journal, err error) {
	err = whileBusy(ctx, waiting, func() (err error) {
		j, err = Open(dir, name, ops)
		return err
	})
	return j, err
}

// Await waits, as OpenWait does, until no other process has a journal open in dir, but opens none itself. A
// killed process still holds the lock until the kernel has finished what the process was doing.
func Await(ctx context.Context, dir string, waiting func(*BusyError)) error {
	err := whileBusy(ctx, waiting, func() error {
		l, err := takeLock(dir)
		if err == nil {
			err = l.Close()
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// whileBusy calls try until it no longer fails with a *BusyError.
func whileBusy(ctx context.Context, waiting func(*BusyError), try func() error) error {
	retry := time.NewTicker(20 * time.Millisecond)
	defer retry.Stop()
	var last Holder
	for {
		err := try()
		busy, is := errors.AsType[*BusyError](err)
		if !is {
			return err
		}
		if waiting != nil && busy.Holder != last {
			waiting(busy)
		}
		last = busy.Holder
		select {
		case <-ctx.Done():
			return err
		case <-retry.C:
		}
	}
}

// Beside opens another journal in the same directory, under the lock of j, which must stay open.
func (j *Journal) Beside(name string) (*Journal, error) {
	o := &Journal{ops: j.ops, lock: io.NopCloser(nil)}
	if j.log.f == nil {
		return nil, errReadOnly
	}
	return o, o.load(filepath.Dir(j.log.f.Name()), name)
}

func (j *Journal) load(dir, name string) (err error) {
	j.log, err = openLog(filepath.Join(dir, name+suffix), j.check)
	return err
}

var errReadOnly = errors.New("the journal is open for reading only")

// None returns a journal without steps, to find out what would be done.
func None(ops map[string]Op) *Journal {
	return &Journal{ops: ops, log: &log{}, lock: io.NopCloser(nil)}
}

// Look reads the journal of that name and changes nothing. It works while another process has the journal
// open.
func Look(dir, name string, ops map[string]Op) (*Journal, error) {
	j := None(ops)
	data, err := ReadState(dir, name+suffix)
	if errors.Is(err, fs.ErrNotExist) {
		return j, nil
	}
	boot, berr := BootID()
	if err = errors.Join(err, berr); err != nil {
		return nil, err
	}
	if j.log.list, err = replay(data, boot); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, name+suffix), err)
	}
	return j, nil
}

func (j *Journal) check(s Step) error {
	op, err := j.op(s)
	if err != nil {
		return err
	}
	return op.Check(s)
}

// openLog opens the log and continues it at its end. It drops the steps of earlier boots, and a last line
// that was cut off when its process died.
func openLog(path string, check func(Step) error) (*log, error) {
	boot, err := BootID()
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	l := &log{f: f}
	if err = l.load(boot, check); err == nil && l.size > compactFrom {
		err = l.compact(boot)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), l.f.Close())
	}
	return l, nil
}

// A log longer than this many bytes is rewritten when it is opened, if most of it records steps that were
// undone. On hosts where lanes are always in force nothing else shortens it.
const compactFrom = 256 << 10

func (l *log) compact(boot string) error {
	records := []record{{Boot: boot}}
	for i := range l.steps {
		records = append(records, record{Done: &l.steps[i]})
	}
	lines, err := encode(records)
	if err != nil || 2*int64(len(lines)) > l.size {
		return err
	}
	dir, name := filepath.Split(l.f.Name())
	if err = WriteState(dir, name, lines); errors.Is(err, unix.ENOSPC) {
		return nil // the long log works too
	}
	if err != nil {
		return err
	}
	f, err := os.OpenFile(l.f.Name(), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	err = l.f.Close()
	l.f, l.size = f, int64(len(lines))
	l.head = int64(bytes.IndexByte(lines, '\n') + 1)
	return err
}

func (l *log) load(boot string, check func(Step) error) error {
	if err := private(l.f.Name(), false); err != nil {
		return err
	}
	const most = 256 << 20
	data, err := io.ReadAll(io.LimitReader(l.f, most+1))
	if err != nil {
		return err
	}
	if len(data) > most {
		return fmt.Errorf("expected at most %d MiB: keep the file elsewhere, then isolane recover --adopt",
			most>>20)
	}
	if l.list, err = replay(data, boot); err != nil {
		return err
	}
	for _, s := range l.steps {
		if err = check(s); err != nil {
			return fmt.Errorf("step %s: %w: isolane did not write that: "+
				"keep the file elsewhere, then isolane recover --adopt", s.Kind, err)
		}
	}
	if len(l.steps) > 0 {
		l.head, l.size = int64(bytes.IndexByte(data, '\n')+1), int64(bytes.LastIndexByte(data, '\n')+1)
	}
	if err = l.f.Truncate(l.size); err != nil || l.size > 0 {
		return err
	}
	err = l.append(record{Boot: boot})
	l.head = l.size
	return err
}

// replay returns the steps of this boot that are done and not undone. It ignores an incomplete last line: the
// process died while writing it, before it touched the host.
func replay(data []byte, boot string) (list, error) {
	var l list
	now := false
	lines := bufio.NewScanner(bytes.NewReader(data[:bytes.LastIndexByte(data, '\n')+1]))
	lines.Buffer(nil, 64<<20) // a step may hold all threads of the machine
	for n := 1; lines.Scan(); n++ {
		var r record
		err := json.Unmarshal(lines.Bytes(), &r)
		if err != nil && n > 1 && !now {
			continue // from an earlier boot, which may have ended within the line
		}
		if err != nil {
			return l, fmt.Errorf("line %d: %w", n, err)
		}
		switch {
		case r.Boot != "":
			now = r.Boot == boot
		case !now:
		case r.Done != nil:
			l.put(*r.Done)
		case r.Undone != nil:
			l.drop(*r.Undone)
		}
	}
	return l, lines.Err()
}

func (l *log) done(s Step) error {
	if err := l.append(record{Done: &s}); err != nil {
		return err
	}
	l.put(s)
	return nil
}

// undone records that a step was undone. When no steps are left it empties the log, which keeps the logs of
// long sessions short. A full disk is no error: whoever replays the log then sees that the host is as before
// the step.
func (l *log) undone(s Step) error {
	if l.drop(s); len(l.steps) > 0 {
		if err := l.append(record{Undone: &s}); !errors.Is(err, unix.ENOSPC) {
			return err
		}
		return nil
	}
	l.size = l.head
	return l.f.Truncate(l.size)
}

// append writes all records or none: it cuts off what a full disk has left incomplete.
func (l *log) append(records ...record) error {
	if l.f == nil {
		return errReadOnly
	}
	lines, err := encode(records)
	if err != nil {
		return err
	}
	if _, err = l.f.WriteAt(lines, l.size); err != nil {
		return errors.Join(err, l.f.Truncate(l.size))
	}
	l.size += int64(len(lines))
	return nil
}

func encode(records []record) (lines []byte, err error) {
	for _, r := range records {
		line, err := json.Marshal(r)
		if err != nil {
			return nil, err
		}
		lines = append(append(lines, line...), '\n')
	}
	return lines, nil
}

func (l *log) close() error {
	if l.f == nil {
		return nil
	}
	var err error
	if len(l.steps) == 0 {
		err = os.Remove(l.f.Name())
	}
	return errors.Join(err, l.f.Close())
}

// Recover undoes each journal in dir, except those named in skip. It returns the names of the journals that
// had steps, and the steps that wait, which are no error. It returns both even if it fails.
func Recover(
	ctx context.Context, dir string, ops map[string]Op, skip ...string,
) (found []string, waiting []Waiting, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil {
		return nil, nil, err
	}
	var errs []error
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), suffix)
		if slices.Contains(skip, name) {
			continue
		}
		j, err := Open(dir, name, ops)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if len(j.Pending()) > 0 {
			found = append(found, name)
		}
		left, err := j.UndoWhere(ctx, func(Step) bool { return true })
		for _, l := range left {
			errs = append(errs, l)
		}
		waiting = append(waiting, j.waiting...)
		errs = append(errs, err, j.Close())
	}
	return found, waiting, errors.Join(errs...)
}
