package witness

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/results"
)

// read returns the sums, and what was added since the last call. A run that continues counts as if it ended
// now; otherwise a task that never yields would not be seen.
func (c *collector) read(ownThreads func() func(tid, cpu int) bool) (
	since []taskSource, last []Source, err error) {
	if err = c.lookup(); err != nil {
		return nil, nil, err
	}
	states, err := c.running(ownThreads) // after the sums: a run that ends in between must not count twice
	if err != nil {
		return nil, nil, err
	}
	since = make([]taskSource, 0, len(c.keys))
	for i, key := range c.keys {
		v := &c.values[i]
		if v.Count == 0 {
			continue
		}
		s := c.taskSource(key, v)
		if why := tickDependency(states[s.CPU].Tick); s.Kind == results.Tick && why != "" {
			s.Remedy = "it could not stop because of " + why + ": take that off the CPU"
		}
		since = append(since, s)
		was := &sourceValue{}
		if at, known := c.at[key]; known {
			was = &c.before[at]
		}
		if v.Count != was.Count || v.NS != was.NS {
			d, l := v.since(was), s.Source
			measure(&l, &d)
			last = append(last, l)
		}
	}
	c.remember()
	return since, last, nil
}

// remember keeps the values for comparison with the next reading.
func (c *collector) remember() {
	c.before, c.values = c.values, c.before[:0]
	if c.at == nil {
		c.at = make(map[sourceKey]int, len(c.keys))
	}
	clear(c.at)
	for i, key := range c.keys {
		c.at[key] = i
	}
}

// lookup fills keys and values with few system calls.
func (c *collector) lookup() error {
	const batch = 256
	var cursor ebpf.MapBatchCursor
	for n := 0; ; {
		c.keys, c.values = slices.Grow(c.keys[:n], batch)[:n+batch], slices.Grow(c.values[:n], batch)[:n+batch]
		found, err := c.coll.Maps["sources"].BatchLookup(&cursor, c.keys[n:], c.values[n:], nil)
		n += found
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			c.keys, c.values = c.keys[:n], c.values[:n]
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// running adds the runs of the tasks that are on the CPUs now, and returns the CPUs' states.
func (c *collector) running(ownThreads func() func(tid, cpu int) bool) ([]cpuState, error) {
	var states []cpuState
	now, err := monotonic()
	if err == nil {
		err = c.coll.Maps["cpus"].Lookup(uint32(0), &states)
	}
	if err != nil {
		return nil, err
	}
	c.missed, c.unlisted = 0, 0
	var own func(tid, cpu int) bool
	for cpu := range c.scope.measured.Union(c.scope.counted).All() {
		s := states[cpu]
		c.missed, c.unlisted = c.missed+s.Missed, c.unlisted+s.Unlisted
		if s.Mode == modeOff {
			continue
		}
		inner := s.Inner - s.Task.Inner
		if s.Task.ID == 0 || s.Task.Since+inner >= now { // idle, or it came after the clock was read
			continue
		}
		if own == nil {
			own = ownThreads()
		}
		tid := int(s.Task.ID)
		st, err := task.ReadThread(c.root, tid)
		if own(tid, cpu) || err != nil || ticks(st.Start) != bootTicks(s.Start) {
			continue
		}
		key := sourceKey{CPU: uint32(cpu), ID: s.Task.ID, Start: s.Start, Work: s.Work}
		if st.Kernel {
			key.Kind = 1
		}
		at := slices.Index(c.keys, key)
		if at < 0 {
			v := sourceValue{TGID: uint32(s.TGID)}
			copy(v.Name[:], st.Comm)
			at, c.keys, c.values = len(c.keys), append(c.keys, key), append(c.values, v)
		}
		c.values[at].add(now - s.Task.Since - inner)
	}
	return states, nil
}

// monotonic returns the clock of bpf_ktime_get_ns, in nanoseconds.
func monotonic() (uint64, error) {
	var ts unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return uint64(ts.Nano()), err
}

func (c *collector) taskSource(k sourceKey, v *sourceValue) taskSource {
	s := taskSource{Source: Source{CPU: int(k.CPU), Kind: kinds()[k.Kind]}}
	measure(&s.Source, v)
	id := int(k.ID)
	switch {
	case k.ID == otherSources:
		s.Name = results.Others
	case s.Kind == results.Interrupt:
		s.Name, s.IRQ = text(v.Name[:]), &id
	case s.Kind == results.Softirq && id < len(softirqs()):
		s.Name = softirqs()[id]
	case s.Kind == results.IPI:
		s.Name = ipis()[id].name
	case s.Kind == results.Tick:
		s.Name = localTimer
	default:
		s.Name, s.Work, s.TID = text(v.Name[:]), text(v.Work[:]), id
		s.start, s.switches, s.parent = bootTicks(k.Start), switches{v.Voluntary, v.Involuntary}, int(v.Parent)
		s.process = taskID{int(v.TGID), bootTicks(v.Process)}
		if s.Kind == results.KernelThread {
			break
		}
		s.PID, s.own = int(v.TGID), v.Own > 0
		if s.Cgroup = c.cgroup(v.Cgroup); v.Cgroup == 0 { // the run has not ended yet
			s.Cgroup = cgroup.PathOf(c.root, task.Dir(id))
		}
	}
	return s
}

// switchesOf returns how often each CPU has switched, including switches to the idle task.
func (c *collector) switchesOf() (map[int]uint64, error) {
	var states []cpuState
	err := c.coll.Maps["cpus"].Lookup(uint32(0), &states)
	all := map[int]uint64{}
	for cpu, s := range states {
		all[cpu] = s.Switches
	}
	return all, err
}

// bootTicks converts a start time in the kernel to that of /proc (field 22 of proc_pid_stat(5)).
func bootTicks(ns uint64) ticks { return ticks(ns / uint64(tick)) }

// cgroup returns the path of a cgroup below its mount point; "" if it has gone. The kernel opens it by its ID
// (FILEID_KERNFS of the kernel's file handles, open_by_handle_at(2)).
func (c *collector) cgroup(id uint64) string {
	if name, known := c.cgroups[id]; known || id == 0 {
		return name
	}
	const kernfs = 0xfe
	handle := unix.NewFileHandle(kernfs, binary.NativeEndian.AppendUint64(nil, id))
	fd, err := unix.OpenByHandleAt(int(c.mount.Fd()), handle, unix.O_PATH|unix.O_CLOEXEC)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return ""
	}
	c.cgroups[id] = "/" + strings.Trim(strings.TrimPrefix(name, c.mount.Name()), "/")
	return c.cgroups[id]
}

func text(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	return strings.ToValidUTF8(string(b), "?")
}
