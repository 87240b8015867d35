package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrBusy matches every *BusyError (errors.Is).
var ErrBusy = errors.New("in use")

// BusyError says that another process is changing this host.
type BusyError struct {
	Dir    string // of the journals
	Holder Holder
}

func (b *BusyError) Error() string {
	return fmt.Sprintf("%s: %v by %s: wait until it has ended", b.Dir, ErrBusy, b.Holder)
}

// Is reports whether target is ErrBusy.
func (*BusyError) Is(target error) bool { return target == ErrBusy }

// Holder is the process that has the lock. The zero value means that it is unknown.
type Holder struct {
	Command string // "isolane apply"
	PID     int
}

// String returns, for example, "isolane apply (process 12)".
func (h Holder) String() string {
	if h == (Holder{}) {
		return "another process"
	}
	return fmt.Sprintf("%s (process %d)", h.Command, h.PID)
}

// parseHolder reads what String returned.
func parseHolder(text string) Holder {
	at := strings.LastIndex(text, " (process ")
	var h Holder
	if at >= 0 {
		h.Command = text[:at]
		if _, err := fmt.Sscanf(text[at:], " (process %d)", &h.PID); err == nil {
			return h
		}
	}
	return Holder{}
}

// lock keeps other processes from changing this host. It is a lock on an open file, so it ends with the
// process. The file's text names the holder.
type lock struct{ f *os.File }

// afterlife is longer than a lock outlives a process that was killed. What it was just about to start has the
// file too, until it becomes another program, which may take a while on a busy machine.
const afterlife = 3 * time.Second

func takeLock(dir string) (*lock, error) {
	path := filepath.Join(dir, "lock")
	for began := time.Now(); ; {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			if errors.Is(err, unix.EWOULDBLOCK) {
				err = &BusyError{dir, holder(f)}
			}
			if busy, is := errors.AsType[*BusyError](err); is && busy.Holder.ended() && time.Since(began) < afterlife {
				if err = f.Close(); err != nil {
					return nil, err
				}
				<-time.After(5 * time.Millisecond)
				continue
			}
			return nil, errors.Join(err, f.Close())
		}
		mine, err := f.Stat()
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		// The previous holder may have removed the file just now.
		if there, lerr := os.Lstat(path); lerr != nil || !os.SameFile(mine, there) {
			if err = f.Close(); err != nil {
				return nil, err
			}
			continue
		}
		own := Holder{strings.Join(os.Args[:min(2, len(os.Args))], " "), os.Getpid()}
		if err = errors.Join(f.Truncate(0), write(f, own.String()+"\n")); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return &lock{f}, nil
	}
}

// Busy reports whether a process is changing this host. It does not take the lock, because somebody may want
// it just now. A killed process leaves the lock file behind, but is no longer busy.
func Busy(dir string) bool {
	f, err := os.Open(filepath.Join(dir, "lock"))
	if err != nil {
		return false
	}
	defer f.Close()
	return !holder(f).ended()
}

// ended reports whether the process is known, and has ended, whether or not its parent has waited for it.
func (h Holder) ended() bool {
	if h.PID == 0 {
		return false
	}
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", h.PID)) // it may have ended
	state := strings.TrimSpace(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	return errors.Is(unix.Kill(h.PID, 0), unix.ESRCH) || strings.HasPrefix(state, "Z")
}

// holder reads who has the lock. The holder writes that a moment after it has taken the lock, so holder
// retries.
func holder(f *os.File) Holder {
	var text [4096]byte
	for range 50 {
		if n, _ := f.ReadAt(text[:], 0); n > 0 {
			return parseHolder(strings.TrimSpace(string(text[:n])))
		}
		<-time.After(time.Millisecond)
	}
	return Holder{}
}

func write(f *os.File, text string) error {
	_, err := f.WriteString(text)
	return err
}

// Close removes the file while it is still locked, so whoever opens it later creates a new one.
func (l *lock) Close() error { return errors.Join(os.Remove(l.f.Name()), l.f.Close()) }

// stateDir makes the directory of the journals, or checks that nobody but this user could have written there.
func stateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return private(dir, true)
}

// ErrNeedsRoot says that only root may read what is in force, as intended. It matches fs.ErrPermission.
var ErrNeedsRoot = fmt.Errorf("needs root: %w", fs.ErrPermission)

// private returns an error unless the file or directory is no link and belongs to this user alone.
func private(path string, dir bool) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err = unix.Lstat(path, &st); err != nil {
		return err
	}
	me := os.Geteuid()
	closed := info.IsDir() == dir && (dir || info.Mode().IsRegular()) && info.Mode().Perm()&0o077 == 0
	switch {
	case closed && int(st.Uid) == me:
		return nil
	case closed && st.Uid == 0:
		return fmt.Errorf("%s: %w", path, ErrNeedsRoot)
	}
	return fmt.Errorf("%s: expected it to be this user's alone (mode 0700, 0600 of a file), found %s of "+
		"user %d: others could write there: see what is in it, and keep it: the lanes in force cannot be taken "+
		"back without it", path, info.Mode(), st.Uid)
}

// ReadState returns the content of a file in the directory of journals, after checking that only this user
// can write to it.
func ReadState(dir, name string) ([]byte, error) {
	if err := private(dir, true); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, name)
	if err := private(path, false); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

// RemoveState removes such a file, and the temporary file of a WriteState that was killed. A missing file is
// no error.
func RemoveState(dir, name string) error {
	for _, path := range []string{filepath.Join(dir, name), fresh(dir, name)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// fresh returns the temporary path of a file that WriteState writes. Its name is not that of a journal, so
// Recover ignores one that a killed process left.
func fresh(dir, name string) string { return filepath.Join(dir, "."+name+".new") }

// WriteState replaces such a file as a whole or not at all. It flushes the file, so not even a crash of the
// machine leaves part of one. The caller must have a journal open in dir.
func WriteState(dir, name string, data []byte) error {
	fresh := fresh(dir, name)
	f, err := os.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(write(f, string(data)), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(fresh, filepath.Join(dir, name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(fresh))
	}
	return nil
}
