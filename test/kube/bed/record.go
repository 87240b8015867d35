package bed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// root has the files of all beds: a folder each, and a lock that the bed's process holds.
const root = "/var/cache/isolane-kube"

// record is what a bed has made on the host. It is written before that is made, so that it can be cleared if
// the process is killed. Links and namespaces disappear with the processes.
type record struct {
	Boot       string // id of the boot: after another boot the processes are others
	Owner      processID
	Detached   bool
	Kubeconfig string
	Journals   bool // the folder of journals did not exist
	Systemd    bool // the units of a node
	Cgroups    []string
	Enabled    []string // controllers for all below the root of cgroup v2
	Processes  []processID
}

// processID identifies a process: the id alone may later belong to another one.
type processID struct {
	Name  string
	PID   int
	Start string // in clock ticks since boot, as in /proc/PID/stat
}

func identify(name string, pid int) (processID, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return processID{}, err
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // the name before it may contain spaces
	f := strings.Fields(rest)
	const start = 22 - 3 // the 22nd field; the third is the first of these
	if len(f) <= start {
		return processID{}, fmt.Errorf("/proc/%d/stat: expected 22 fields", pid)
	}
	return processID{name, pid, f[start]}, nil
}

// signal sends a signal to the process, and reports whether it is still the same one.
func (p processID) signal(signal unix.Signal) (bool, error) {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("process %d: %w", p.PID, err)
	}
	defer unix.Close(fd)
	if now, gone := identify(p.Name, p.PID); gone != nil || now != p {
		return false, nil // it has ended
	}
	if err = unix.PidfdSendSignal(fd, signal, nil, 0); errors.Is(err, unix.ESRCH) {
		return false, nil
	}
	return true, err
}

func boot() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id)), err
}

// lock takes the lock of a bed. It returns nil if another process has it.
func lock(number int) (*os.File, error) {
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(root, strconv.Itoa(number)+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, file.Close()
	}
	return file, err
}

// claim takes the first free bed.
func (b *Bed) claim(ctx context.Context) error {
	if err := b.take(ctx); err != nil {
		return err
	}
	id, err := boot()
	if err != nil {
		return err
	}
	owner, err := identify("owner", os.Getpid())
	if err != nil {
		return err
	}
	b.record = record{Boot: id, Owner: owner, Detached: b.options.Detached}
	if err = os.MkdirAll(b.Dir, 0o755); err != nil {
		return err
	}
	return b.record.write(b.Dir)
}

// take locks the first free bed, and clears what is left of all free beds.
func (b *Bed) take(ctx context.Context) error {
	wanted, err := b.wanted()
	if err != nil {
		return err
	}
	for number := range beds {
		if _, err := os.Stat(folder(number)); err != nil && b.lock != nil {
			continue
		}
		lock, err := lock(number)
		if err != nil {
			return err
		}
		if lock == nil {
			continue
		}
		err = clearLeft(ctx, number)
		if err == nil && b.lock == nil && (wanted < 0 || wanted == number) {
			b.lock, b.number, b.Dir = lock, number, folder(number)
			continue
		}
		if err = errors.Join(err, lock.Close()); err != nil {
			return err
		}
	}
	if b.lock == nil {
		return fmt.Errorf("%d beds are in use: kubebed down ends those that kubebed up started", beds)
	}
	return nil
}

// wanted returns the number that the bed must have, which is that of the bed that it joins; -1: any.
func (b *Bed) wanted() (int, error) {
	if b.options.Join == "" {
		return -1, nil
	}
	text, err := os.ReadFile(filepath.Join(b.options.Join, numberFile))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

func folder(number int) string { return filepath.Join(root, strconv.Itoa(number)) }

func recordFile(dir string) string { return filepath.Join(dir, "record.json") }

func (r *record) write(dir string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	file := recordFile(dir)
	if err = os.WriteFile(file+".new", append(data, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

func (b *Bed) recordProcess(p *process) error {
	id, err := identify(p.name, p.cmd.Process.Pid)
	if err != nil {
		return errors.Join(err, p.err())
	}
	b.record.Processes = append(b.record.Processes, id)
	return b.record.write(b.Dir)
}

// readRecord reads the record of a bed. It returns nil if there is none.
func readRecord(number int) (*record, error) {
	file := recordFile(folder(number))
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var r record
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: remove the folder if no bed runs", file, err)
	}
	return &r, nil
}

// clearLeft clears what a killed bed has left. The caller holds its lock.
func clearLeft(ctx context.Context, number int) error {
	r, err := readRecord(number)
	if err != nil || r == nil {
		return err
	}
	id, err := boot()
	if err == nil && id != r.Boot {
		r.Processes, r.Cgroups, r.Enabled, r.Systemd = nil, nil, nil, false // they went with the boot
	}
	return errors.Join(err, r.clear(ctx, number))
}

// clear ends what the record names, and removes it, the files of the bed last.
func (r *record) clear(ctx context.Context, number int) error {
	var err error
	for _, p := range r.Processes {
		err = errors.Join(err, p.end(ctx))
	}
	if r.Systemd {
		err = errors.Join(err, endUnits())
	}
	err = errors.Join(err, removeLink(number))
	for _, top := range r.Cgroups {
		err = errors.Join(err, removeCgroup(ctx, top))
	}
	if err != nil {
		return fmt.Errorf("bed %d: %w", number, err)
	}
	_ = pass("-", r.Cgroups, r.Enabled) // fails if somebody uses them by now
	if r.Journals {
		_ = os.Remove(journals) // fails if it is in use by now
	}
	return os.RemoveAll(folder(number))
}

// end kills the process and waits until it has ended.
func (p processID) end(ctx context.Context) error {
	for {
		alive, err := p.signal(unix.SIGKILL)
		if err != nil || !alive {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s, process %d, does not end: %w", p.Name, p.PID, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Down ends the beds that detached processes have started, and clears what killed beds have left. It returns
// what it did to each.
func Down(ctx context.Context) (did []string, err error) {
	for number := range beds {
		r, err := readRecord(number)
		if err != nil {
			return did, err
		}
		if r == nil {
			continue
		}
		what, err := down(ctx, number, r)
		did = append(did, fmt.Sprintf("bed %d: %s", number, what))
		if err != nil {
			return did, err
		}
	}
	return did, nil
}

func down(ctx context.Context, number int, r *record) (string, error) {
	for asked := false; ; asked = true {
		lock, err := lock(number)
		if err != nil {
			return "", err
		}
		if lock != nil {
			err = clearLeft(ctx, number)
			return "is no more", errors.Join(err, lock.Close())
		}
		if !r.Detached {
			return fmt.Sprintf("belongs to process %d and ends with it", r.Owner.PID), nil
		}
		if !asked {
			if _, err = r.Owner.signal(unix.SIGTERM); err != nil {
				return "", err
			}
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("bed %d: process %d does not end: %w", number, r.Owner.PID, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Find returns the first process of a node of the first bed that kubebed up has started.
func Find(node string) (pid int, err error) {
	for number := range beds {
		r, err := readRecord(number)
		if err != nil {
			return 0, err
		}
		if r == nil || !r.Detached {
			continue
		}
		for _, p := range r.Processes {
			if p.Name == nodeProcess(node) {
				return p.PID, nil
			}
		}
	}
	return 0, fmt.Errorf("node %s: no bed of kubebed up has it", node)
}
