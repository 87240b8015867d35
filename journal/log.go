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

// Dir is where journals lie: it goes with a reboot, as what they undo does.
const Dir = "/run/isolane"

const suffix = ".journal"

// log is the file: one JSON record a line, appended before the host is touched. It is not flushed to a disk:
// the kernel has what a process has written, also when that dies, and what it undoes goes with the kernel.
type log struct {
	f    *os.File
	head int64 // bytes of its first record
	size int64
	list
}

type record struct {
	Boot   string `json:"boot,omitempty"` // of the machine, when the log began
	Done   *Step  `json:"done,omitempty"`
	Undone *Step  `json:"undone,omitempty"`
}

// BootID tells one boot of the machine from another (random(4)).
func BootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(data)), err
}

// Open makes or reopens the journal of that name in dir, and keeps every other process from opening one
// there: it fails with a *BusyError that names the process which has it. All steps in it are checked.
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

// OpenWait is Open that waits while another process has a journal open in dir. It calls waiting, which may
// be nil, with each process that it waits for. When ctx ends it fails with the *BusyError.
func OpenWait(
	ctx context.Context, dir, name string, ops map[string]Op, waiting func(*BusyError),
) (j *Journal, err error) {
	err = whileBusy(ctx, waiting, func() (err error) {
		j, err = Open(dir, name, ops)
		return err
	})
	return j, err
}

// Await waits while another process has a journal open in dir, as OpenWait does, and leaves it to the next.
// One that was killed has it until the kernel has ended what it was doing there.
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

// whileBusy tries something until another process no longer keeps it from that.
func whileBusy(ctx context.Context, waiting func(*BusyError), try func() error) error {
	retry := time.NewTicker(20 * time.Millisecond)
	defer retry.Stop()
	var last Holder
	for {
		err := try()
		var busy *BusyError
		if !errors.As(err, &busy) {
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

// Beside opens another journal in the same directory, under the lock of this one, which must stay open.
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

// None is a journal without steps, to find out what would be done.
func None(ops map[string]Op) *Journal {
	return &Journal{ops: ops, log: &log{}, lock: io.NopCloser(nil)}
}

// Look reads the journal of that name and changes nothing, also while another process has it.
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

// openLog reads the log and goes on where it ends. What was before the last reboot is over, and a line
// that was being written when its process died does not count.
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
	if err = l.load(boot, check); err == nil && l.size > long {
		err = l.compact(boot)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), l.f.Close())
	}
	return l, nil
}

// A log longer than this many bytes is written anew when it is opened, once most of it is of steps that are
// over: where lanes are always in force nothing else shortens it.
const long = 256 << 10

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
		return nil // the long one does as well
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

// replay returns the steps that are done and not undone, if they are of this boot. A last line without
// its end was being written when the process died, before the host was touched: it does not count.
func replay(data []byte, boot string) (list, error) {
	var l list
	now := false
	lines := bufio.NewScanner(bytes.NewReader(data[:bytes.LastIndexByte(data, '\n')+1]))
	lines.Buffer(nil, 64<<20) // a step may hold all threads of the machine
	for n := 1; lines.Scan(); n++ {
		var r record
		err := json.Unmarshal(lines.Bytes(), &r)
		if err != nil && n > 1 && !now {
			continue // of an earlier boot, whose end may have cut it off
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

// undone starts the log anew when nothing is left: those of long sessions stay short. A record that finds no
// room is no error: whoever reads the log later sees that the host is as before the step.
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

// append writes whole records or none: what a full disk left of one is cut off.
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

// Recover undoes each journal in dir, but those of the names to skip. It returns the names of those in
// which it found something, and what waits, which is no error; both also with an error.
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
