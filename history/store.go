package history

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"syscall"
	"time"
	"unicode/utf8"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// patience is how long a call waits for other processes.
const patience = time.Second

// store is a directory and the bounds of what is kept in it.
type store struct {
	dir   string
	age   time.Duration
	bytes int64 // largest size of the file
}

func (s store) file() string { return filepath.Join(s.dir, "history.db") }

// The store has two buckets: the events by key, and the state, with the moment of the last write under last.
func events() []byte { return []byte("events") }
func state() []byte  { return []byte("state") }
func last() []byte   { return []byte("last") }

// key orders events as they were written, by order and sequence. It suffices to decide whether an event is
// selected.
type key struct {
	order    uint64 // stamp of the event, or a later one of an earlier event: the clock may have been set back
	sequence uint64 // of the store
	at       uint64 // stamp of the event
	lane     []byte
}

func (k key) bytes() []byte {
	b := binary.BigEndian.AppendUint64(nil, k.order)
	b = binary.BigEndian.AppendUint64(b, k.sequence)
	b = binary.BigEndian.AppendUint64(b, k.at)
	return append(b, k.lane...)
}

const fixedBytes = 3 * 8 // bytes of a key before its lane

// stamp is a time in nanoseconds since 1970; 0 for earlier times.
func stamp(t time.Time) uint64 {
	if t.Unix() < 0 {
		return 0
	}
	return uint64(t.UnixNano())
}

func readKey(b []byte) (key, error) {
	if len(b) < fixedBytes {
		return key{}, &DamagedError{Why: fmt.Sprintf("a key of %d bytes, expected %d or more", len(b), fixedBytes)}
	}
	number := func(at int) uint64 { return binary.BigEndian.Uint64(b[at:]) }
	return key{number(0), number(8), number(16), b[fixedBytes:]}, nil
}

// with opens the store and calls do, either to write in one transaction that succeeds as a whole, or to read.
//
// If pages are corrupt bbolt panics, and if they are missing the kernel sends SIGBUS: both become a
// *DamagedError. Then with only unlocks and closes the file, because Close of bbolt would wait for its
// transaction.
func (s store) with(write bool, do func(*bolt.Tx) error) (err error) {
	var file *os.File
	options := &bolt.Options{ReadOnly: !write,
		OpenFile: func(name string, flag int, mode fs.FileMode) (_ *os.File, err error) {
			if file, err = openLocked(name, flag|unix.O_NOFOLLOW, mode); err != nil {
				return nil, err
			}
			// Room for the first pages is reserved, so that a new store is whole or empty: a full disk must not leave
			// a part of them.
			err = unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, int64(4*os.Getpagesize()))
			if errors.Is(err, unix.ENOSPC) {
				return nil, errors.Join(&fs.PathError{Op: "fallocate", Path: name, Err: err}, file.Close())
			}
			return file, nil
		}}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if why := recover(); why != nil {
			err = &DamagedError{File: s.file(), Why: fmt.Sprint(why)}
			_ = unix.Flock(int(file.Fd()), unix.LOCK_UN) // the mapped pages would keep the lock
			_ = file.Close()
		}
	}()
	db, err := bolt.Open(s.file(), 0o600, options)
	if err != nil {
		return s.explain(err)
	}
	db.AllocSize = int(s.bytes / 64) // growth of the file; the default is a quarter of the bound
	if write {
		err = db.Update(do)
	} else {
		err = db.View(do)
	}
	if damaged, is := errors.AsType[*DamagedError](err); is {
		damaged.File = s.file()
	}
	return errors.Join(err, db.Close())
}

var errBusy = errors.New("another process has kept it for " + patience.String())

// openLocked opens a file once nobody else holds its lock. bbolt takes the same lock, but polls only twenty
// times a second: of many writers at once, most would not get it.
func openLocked(name string, flag int, mode fs.FileMode) (*os.File, error) {
	f, err := os.OpenFile(name, flag, mode)
	if err != nil {
		return nil, err
	}
	how := unix.LOCK_SH
	if flag&os.O_RDWR != 0 {
		how = unix.LOCK_EX
	}
	for end := time.Now().Add(patience); ; <-time.After(time.Millisecond) {
		switch err = unix.Flock(int(f.Fd()), how|unix.LOCK_NB); {
		case err == nil:
			return f, nil
		case !errors.Is(err, unix.EWOULDBLOCK):
			return nil, errors.Join(&fs.PathError{Op: "flock", Path: name, Err: err}, f.Close())
		case time.Now().After(end):
			return nil, errors.Join(fmt.Errorf("%s: %w", name, errBusy), f.Close())
		}
	}
}

// explain makes an error of opening a *DamagedError, unless it comes from a system call.
func (s store) explain(err error) error {
	if errors.Is(err, errBusy) || errors.As(err, new(syscall.Errno)) {
		return err
	}
	return &DamagedError{File: s.file(), Why: err.Error()}
}

func (s store) read(q Query) (found []Event, err error) {
	found = []Event{}
	if info, serr := os.Stat(s.file()); serr == nil && info.Size() == 0 {
		return found, nil // its maker was interrupted; the next writer goes on
	}
	err = s.with(false, func(tx *bolt.Tx) error {
		b := tx.Bucket(events())
		if b == nil {
			return nil
		}
		n, cerr := q.most(b)
		if cerr != nil {
			return cerr
		}
		var t texts
		found = make([]Event, 0, min(n, tx.Size()/fixedBytes))
		return q.each(b, func(k key, stored []byte) error {
			e, derr := t.decode(k, stored)
			found = append(found, e)
			return derr
		})
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return found, err
}

// most returns an upper bound of the number of selected events: growing a slice bit by bit takes longer than
// finding this out.
func (q Query) most(b *bolt.Bucket) (n int64, err error) {
	if q.Lane != "" || !q.Until.IsZero() {
		err = q.each(b, func(key, []byte) error { n++; return nil })
		return n, err
	}
	c := b.Cursor()
	start, _ := c.Seek(key{order: stamp(q.Since)}.bytes())
	end, _ := c.Last()
	if start == nil {
		return 0, nil
	}
	first, err := readKey(start)
	last, lerr := readKey(end)
	return int64(last.sequence-first.sequence) + 1, errors.Join(err, lerr)
}

// each calls do with the events that a query selects, as far as keys tell.
func (q Query) each(b *bolt.Bucket, do func(key, []byte) error) error {
	since, until, lane := stamp(q.Since), uint64(math.MaxUint64), []byte(q.Lane)
	if !q.Until.IsZero() {
		until = stamp(q.Until)
	}
	c := b.Cursor()
	for k, v := c.Seek(key{order: since}.bytes()); k != nil; k, v = c.Next() {
		at, err := readKey(k)
		of := len(lane) == 0 || len(at.lane) == 0 || bytes.Equal(at.lane, lane)
		if err == nil && of && at.at >= since && at.at <= until {
			err = do(at, v)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s store) append(now moment, fresh []Event) error {
	if err := private(s.dir); err != nil {
		return err
	}
	before, _ := os.Stat(s.file())
	err := s.write(now, fresh)
	damaged, is := errors.AsType[*DamagedError](err)
	if !is {
		return err
	}
	if damaged.Aside, err = s.putAside(before); err != nil {
		return errors.Join(damaged, err)
	}
	told := Event{Kind: Damaged, What: damaged.Error()}
	if err = s.write(now, slices.Concat([]Event{told}, fresh)); err != nil {
		return errors.Join(damaged, err)
	}
	return damaged
}

// putAside renames a damaged file, and replaces an earlier one that was put aside. If another process has
// just done so, the file is no longer the damaged one, and stays.
func (s store) putAside(damaged fs.FileInfo) (string, error) {
	aside := s.file() + ".damaged"
	d, err := os.Open(s.dir)
	if err != nil {
		return "", err
	}
	defer d.Close() // which also unlocks
	if err = unix.Flock(int(d.Fd()), unix.LOCK_EX); err != nil {
		return "", err
	}
	if now, serr := os.Stat(s.file()); serr != nil || damaged == nil || !os.SameFile(now, damaged) {
		return aside, nil
	}
	return aside, os.Rename(s.file(), aside)
}

func (s store) write(now moment, fresh []Event) error {
	return s.with(true, func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists(events())
		if err != nil {
			return err
		}
		b.FillPercent = 0.9 // events are appended
		kept, err := tx.CreateBucketIfNotExists(state())
		if err != nil {
			return err
		}
		var before moment
		if text := kept.Get(last()); text != nil {
			if err = json.Unmarshal(text, &before); err != nil {
				return &DamagedError{Why: err.Error()}
			}
		}
		for _, e := range slices.Concat(now.since(before), fresh) {
			if err = put(b, now, e); err != nil {
				return err
			}
		}
		text, err := json.Marshal(now)
		if err == nil {
			err = kept.Put(last(), text)
		}
		if err != nil {
			return err
		}
		return s.prune(tx, b, earlier(now.At, before.At))
	})
}

// put appends an event.
func put(b *bolt.Bucket, now moment, e Event) error {
	if e.At.IsZero() {
		e.At = now.At
	}
	if e.Boot == "" {
		e.Boot = now.Boot
	}
	e.At, e.What, e.By = e.At.UTC(), clip(e.What), clip(e.By)
	if e.Who != nil {
		who := *e.Who
		who.Command = clip(who.Command)
		e.Who = &who
	}
	k := key{order: stamp(e.At), at: stamp(e.At), lane: []byte(clip(e.Lane))}
	var err error
	if end, _ := b.Cursor().Last(); end != nil {
		before, rerr := readKey(end)
		if rerr != nil {
			return rerr
		}
		k.order = max(k.order, before.order)
	}
	if k.sequence, err = b.NextSequence(); err != nil {
		return err
	}
	return b.Put(k.bytes(), e.encode())
}

// maxText is the longest text of an event in bytes: others write these texts.
const maxText = 1024

func clip(text string) string {
	if len(text) <= maxText {
		return text
	}
	at := maxText - len("…")
	for !utf8.RuneStart(text[at]) {
		at--
	}
	return text[:at] + "…"
}

// prune drops the oldest events: those that are too old and, if the file is nearly as large as it may be,
// another sixteenth of it. bbolt uses their pages again. now is the earlier of the times of this write and
// the one before, so that a clock that is wrong once drops nothing.
func (s store) prune(tx *bolt.Tx, b *bolt.Bucket, now time.Time) error {
	free := int64(tx.DB().Stats().FreePageN) * int64(tx.DB().Info().PageSize)
	over := tx.Size() - free - s.bytes/16*15
	if over > 0 {
		over += s.bytes / 16
	}
	var gone [][]byte
	c := b.Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		first, err := readKey(k)
		if err != nil {
			return err
		}
		if over <= 0 && now.Sub(time.Unix(0, int64(first.at))) <= s.age {
			break
		}
		gone = append(gone, bytes.Clone(k))
		over -= int64(len(k) + len(v))
	}
	for _, k := range gone {
		if err := b.Delete(k); err != nil {
			return err
		}
	}
	return nil
}

func earlier(a, b time.Time) time.Time {
	if b.IsZero() || a.Before(b) {
		return a
	}
	return b
}
