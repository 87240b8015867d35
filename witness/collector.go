package witness

import (
	"bytes"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/cpuset"
)

//go:embed bpf/trace.o
var traceObject []byte

// errOwn marks an own cgroup that is none, which is a mistake of the caller and no lack of eBPF.
var errOwn = errors.New("own cgroup")

// collector is bpf/trace.c at work.
type collector struct {
	root     fs.FS
	cpus     cpuset.Set
	coll     *ebpf.Collection
	links    []link.Link
	mount    *os.File          // of the cgroup hierarchy
	cgroups  map[uint64]string // their paths by id, as they were met
	keys     []sourceKey       // of this reading, with their values
	values   []sourceValue
	before   []sourceValue     // those of the reading before
	at       map[sourceKey]int // where in it
	missed   uint64
	lost     uint64          // notes, before this recording
	notes    *ringbuf.Reader // nil: nothing is recorded
	warnings []string
}

// The structs of bpf/trace.c.
type (
	sourceKey struct {
		CPU, Kind       uint32
		ID, Start, Work uint64
	}
	sourceValue struct {
		Count, NS, Longest, Cgroup uint64
		TGID, Unused               uint32
		Name, Work                 [32]byte
		Buckets                    [192]uint32
	}
	frame    struct{ Since, Inner, ID uint64 }
	cpuState struct {
		Watched, Inner, Missed, Tick, Work, Start, TGID, Lost uint64
		Task, Soft, Hard                                      frame
	}
)

// kinds are those of enum kind.
func kinds() []string { return []string{Task, KernelThread, Interrupt, Softirq, IPI, Tick} }

const rest = math.MaxUint64 // the id of the sources that found no room

// newCollector loads and attaches the programs; they count only from start on. Room is how many bytes
// of notes a recording may leave, 0 for no recording; it is a power of two.
func newCollector(root fs.FS, cpus cpuset.Set, own []string, room int) (c *collector, err error) {
	mount, v1, err := hierarchy(root)
	if err != nil {
		return nil, err
	}
	ids, err := cgroupIDs(mount, own)
	if err != nil {
		return nil, err
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(traceObject))
	if err != nil {
		return nil, err
	}
	c = &collector{root: root, cpus: cpus, cgroups: map[uint64]string{}}
	if err = c.leaveOut(spec); err != nil {
		return nil, err
	}
	// Some ten kernel threads, interrupts, softirqs and IPIs each, and room for tasks.
	spec.Maps["sources"].MaxEntries = uint32(2048 + 64*cpus.Len())
	spec.Maps["own"].MaxEntries = uint32(max(1, len(ids)))
	if err = sleepingRing(root); room > 0 && err != nil {
		c.warnings, room = append(c.warnings, "no timeline of single intrusions: "+err.Error()), 0
	}
	spec.Maps["notes"].MaxEntries = uint32(max(room, os.Getpagesize()))
	if err = errors.Join(spec.Variables["v1"].Set(v1), spec.Variables["several"].Set(cpus.Len() > 1)); err != nil {
		return nil, err
	}
	if c.coll, err = ebpf.NewCollection(spec); err != nil {
		return nil, err
	}
	if c.mount, err = os.Open(mount); err == nil {
		err = errors.Join(c.fill(ids), c.attach(spec))
	}
	if err == nil && room > 0 {
		c.notes, err = ringbuf.NewReader(c.coll.Maps["notes"])
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// leaveOut drops the programs whose tracepoints the kernel does not have; sched_switch must be there.
func (c *collector) leaveOut(spec *ebpf.CollectionSpec) error {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return err
	}
	var missing []string
	for name, p := range spec.Programs {
		_, err = kernel.AnyTypeByName("btf_trace_" + p.AttachTo)
		switch {
		case errors.Is(err, btf.ErrNotFound) && name != switchPoint:
			missing = append(missing, p.AttachTo)
			delete(spec.Programs, name)
		case err != nil:
			return err
		}
	}
	if slices.Sort(missing); len(missing) > 0 {
		c.warnings = append(c.warnings, fmt.Sprintf("this kernel lacks the tracepoints %s: what they would show is missing",
			strings.Join(missing, ", ")))
	}
	return nil
}

const switchPoint = "sched_switch"

// cgroupIDs are the inode numbers of the directories, which is what the kernel calls a cgroup's id.
func cgroupIDs(mount string, own []string) ([]uint64, error) {
	var at syscall.Stat_t
	if err := syscall.Stat(mount, &at); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: mount, Err: err}
	}
	var ids []uint64
	for _, dir := range own {
		var st syscall.Stat_t
		if err := syscall.Stat(dir, &st); err != nil {
			return nil, fmt.Errorf("%w %s: %w", errOwn, dir, err)
		}
		if st.Dev != at.Dev {
			return nil, fmt.Errorf("%w %s: expected a directory in %s, which has the cpuset controller", errOwn, dir, mount)
		}
		ids = append(ids, st.Ino)
	}
	return ids, nil
}

// fill says which CPUs are watched and which cgroups are own, and makes room for what finds none.
func (c *collector) fill(own []uint64) error {
	n, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	states := make([]cpuState, n)
	for cpu := range c.cpus.All() {
		if cpu >= n {
			return fmt.Errorf("CPU %d: the kernel knows %d", cpu, n)
		}
		states[cpu].Watched = 1
		for kind := range kinds() {
			key := sourceKey{CPU: uint32(cpu), Kind: uint32(kind), ID: rest}
			if err = c.coll.Maps["sources"].Put(key, sourceValue{}); err != nil {
				return err
			}
		}
	}
	for _, id := range own {
		if err = c.coll.Maps["own"].Put(id, uint8(1)); err != nil {
			return err
		}
	}
	return c.coll.Maps["cpus"].Put(uint32(0), states)
}

// attach puts the programs in place. Each attachment changes kernel code, for which all CPUs are
// interrupted: the programs that see this go first, and so meet the task that is on each CPU.
func (c *collector) attach(spec *ebpf.CollectionSpec) error {
	first := []string{"call_function_single_entry", "call_function_entry", switchPoint}
	var names []string
	for name := range spec.Programs {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return slices.Index(first, b) - slices.Index(first, a) })
	for _, name := range names {
		l, err := link.AttachTracing(link.TracingOptions{Program: c.coll.Programs[name]})
		if err != nil && name == switchPoint {
			return err
		}
		if err != nil {
			c.warnings = append(c.warnings, fmt.Sprintf("tracepoint %s: %v: what it would show is missing", name, err))
			continue
		}
		c.links = append(c.links, l)
	}
	return nil
}

func (c *collector) start() error { return c.coll.Variables["counting"].Set(true) }

func (c *collector) close() error {
	var failed []error
	for _, l := range c.links {
		failed = append(failed, l.Close())
	}
	if c.notes != nil {
		failed = append(failed, c.notes.Close())
	}
	if c.mount != nil {
		failed = append(failed, c.mount.Close())
	}
	c.coll.Close()
	return errors.Join(failed...)
}

// read returns the sums, and what was added since it was called before. A run that goes on still counts as
// if it ended now: a task that never lets go would not be seen otherwise.
func (c *collector) read(ownThreads func() map[int]bool) (since, last []Source, err error) {
	if err = c.lookup(); err != nil {
		return nil, nil, err
	}
	states, err := c.running(ownThreads) // after the sums: a run that ends in between must not count twice
	if err != nil {
		return nil, nil, err
	}
	since = make([]Source, 0, len(c.keys))
	for i, key := range c.keys {
		v := &c.values[i]
		if v.Count == 0 {
			continue
		}
		s := c.source(key, v)
		if why := tickDependency(states[s.CPU].Tick); s.Kind == Tick && why != "" {
			s.Remedy = "it could not stop because of " + why + ": take that off the CPU"
		}
		since = append(since, s)
		was := &sourceValue{}
		if at, known := c.at[key]; known {
			was = &c.before[at]
		}
		if v.Count != was.Count || v.NS != was.NS {
			d := v.since(was)
			measure(&s, &d)
			last = append(last, s)
		}
	}
	c.remember()
	return since, last, nil
}

// remember keeps the values for the next reading to compare with.
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

// lookup fills keys and values, in few system calls.
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
func (c *collector) running(ownThreads func() map[int]bool) ([]cpuState, error) {
	var states []cpuState
	now, err := monotonic()
	if err == nil {
		err = c.coll.Maps["cpus"].Lookup(uint32(0), &states)
	}
	if err != nil {
		return nil, err
	}
	c.missed = 0
	var own map[int]bool
	for cpu := range c.cpus.All() {
		s := states[cpu]
		c.missed += s.Missed
		inner := s.Inner - s.Task.Inner
		if s.Task.ID == 0 || s.Task.Since+inner >= now { // idle, or it came after the clock was read
			continue
		}
		if own == nil {
			own = ownThreads()
		}
		tid := int(s.Task.ID)
		st, err := readTask(c.root, processDir(tid))
		if own[tid] || err != nil || st.start != bootTicks(s.Start) {
			continue
		}
		key := sourceKey{CPU: uint32(cpu), ID: s.Task.ID, Start: s.Start, Work: s.Work}
		if st.kernel {
			key.Kind = 1
		}
		at := slices.Index(c.keys, key)
		if at < 0 {
			v := sourceValue{TGID: uint32(s.TGID)}
			copy(v.Name[:], st.comm)
			at, c.keys, c.values = len(c.keys), append(c.keys, key), append(c.values, v)
		}
		c.values[at].add(now - s.Task.Since - inner)
	}
	return states, nil
}

// monotonic is the clock of bpf_ktime_get_ns, in nanoseconds.
func monotonic() (uint64, error) {
	var ts unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return uint64(ts.Nano()), err
}

func (c *collector) source(k sourceKey, v *sourceValue) Source {
	s := Source{CPU: int(k.CPU), Kind: kinds()[k.Kind]}
	measure(&s, v)
	id := int(k.ID)
	switch {
	case k.ID == rest:
		s.Name = others
	case s.Kind == Interrupt:
		s.Name, s.IRQ = text(v.Name[:]), &id
	case s.Kind == Softirq && id < len(softirqs()):
		s.Name = softirqs()[id]
	case s.Kind == IPI:
		s.Name = ipis()[id].name
	case s.Kind == Tick:
		s.Name = localTimer
	default:
		s.Name, s.Work, s.TID = text(v.Name[:]), text(v.Work[:]), id
		if s.Kind == KernelThread {
			break
		}
		s.PID = int(v.TGID)
		if s.Cgroup = c.cgroup(v.Cgroup); v.Cgroup == 0 { // the run has not ended yet
			s.Cgroup = cgroupOf(c.root, id)
		}
	}
	return s
}

// cgroup returns the path of a cgroup below its mount point, "" of one that has gone. The kernel
// opens it by its id (FILEID_KERNFS of the kernel's file handles, open_by_handle_at(2)).
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
