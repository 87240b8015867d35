package witness

import (
	"bytes"
	_ "embed"
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

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/results"
)

//go:embed bpf/trace.o
var traceObject []byte

// errOwn says that a path given as own is no cgroup: an error of the caller, not a lack of eBPF.
var errOwn = errors.New("own cgroup")

// collector runs the programs of bpf/trace.c.
type collector struct {
	root     fs.FS
	scope    scope
	coll     *ebpf.Collection
	links    []link.Link
	mount    *os.File          // of the cgroup hierarchy
	cgroups  map[uint64]string // paths by ID, as they were met
	keys     []sourceKey       // of this reading, with their values
	values   []sourceValue
	before   []sourceValue     // those of the last reading
	at       map[sourceKey]int // by key: the index in before
	missed   uint64
	unlisted uint64          // runs of own threads whose wake-ups had no room
	lost     uint64          // notes, before this recording
	notes    *ringbuf.Reader // nil: nothing is recorded
	warnings []string
}

// scope is what a collector looks at.
type scope struct {
	measured cpuset.Set
	ends     [2]cpuset.Set // between which the way of a cache line is timed; they are measured too
	counted  cpuset.Set    // on other CPUs only tasks count
	own      Owned
	keepOwn  bool // own tasks count too
	room     int  // bytes for the notes of a recording, a power of two; 0: no recording
}

// The structs of bpf/trace.c.
type (
	sourceKey struct {
		CPU, Kind       uint32
		ID, Start, Work uint64
	}
	sourceValue struct {
		Count, NS, Longest, Voluntary, Involuntary, Process, Cgroup uint64
		TGID, Parent, Own, Unused                                   uint32
		Name, Work                                                  [32]byte
		Buckets                                                     [192]uint32
	}
	frame    struct{ Since, Inner, ID uint64 }
	cpuState struct {
		Mode, Switches, Inner, Missed, Tick, Work, Start, TGID, Woken, Known, Late, Stolen, Lost, Places uint64
		Stopped, Unlisted, Side, Looked                                                                  uint64
		Task, Soft, Hard                                                                                 frame
		Fetched                                                                                          fetches
	}
)

// side is 2 for the CPUs of the second end, 1 for the others of the first, and 0 for all else.
func (s scope) side(cpu int) uint64 {
	switch {
	case s.ends[1].Contains(cpu):
		return 2
	case s.ends[0].Contains(cpu):
		return 1
	}
	return 0
}

// The modes of a CPU.
const (
	modeOff = iota
	modeCounted
	modeMeasured
)

// initialPIDNamespace is PROC_PID_INIT_INO of include/linux/proc_ns.h, the same on every machine.
const initialPIDNamespace = 0xEFFFFFFC

// kinds returns the names of enum kind.
func kinds() []string {
	return []string{results.Task, results.KernelThread, results.Interrupt, results.Softirq, results.IPI,
		results.Tick}
}

const otherSources = math.MaxUint64 // the ID of the sources that found no room

// newCollector loads and attaches the programs. They count only after start.
func newCollector(root fs.FS, sc scope) (c *collector, err error) {
	var at syscall.Stat_t
	if err = syscall.Stat("/proc/self/ns/pid", &at); err != nil {
		return nil, err
	}
	if at.Ino != initialPIDNamespace {
		return nil, errors.New("this PID namespace numbers threads differently from the kernel")
	}
	mount, v1, err := hierarchy(root)
	if err != nil {
		return nil, err
	}
	ids, err := cgroupIDs(mount, sc.own.Cgroups)
	if err != nil {
		return nil, err
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(traceObject))
	if err != nil {
		return nil, err
	}
	c = &collector{root: root, scope: sc, cgroups: map[uint64]string{}}
	if err = c.leaveOut(spec); err != nil {
		return nil, err
	}
	if err = c.configure(spec, len(ids), v1); err != nil {
		return nil, err
	}
	if c.coll, err = ebpf.NewCollection(spec); err != nil {
		return nil, err
	}
	if c.mount, err = os.Open(mount); err == nil {
		err = errors.Join(c.fill(ids), c.attach(spec))
	}
	if err == nil && c.scope.room > 0 {
		c.notes, err = ringbuf.NewReader(c.coll.Maps["notes"])
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// configure sizes the maps: for each measured CPU some ten kernel threads, interrupts, softirqs and IPIs, and
// tasks; if the tasks of all CPUs count, short-lived ones too.
func (c *collector) configure(spec *ebpf.CollectionSpec, own int, v1 bool) error {
	sources := 2048 + 64*c.scope.measured.Len()
	if !c.scope.counted.IsEmpty() {
		sources += 14336 + 8*c.scope.counted.Len()
	}
	if err := sleepingRing(c.root); c.scope.room > 0 && err != nil {
		c.warnings, c.scope.room = append(c.warnings, "no timeline of single intrusions: "+err.Error()), 0
	}
	if c.scope.room == 0 {
		delete(spec.Programs, "sched_waking")
	}
	spec.Maps["sources"].MaxEntries = uint32(sources)
	spec.Maps["own"].MaxEntries = uint32(max(1, own))
	spec.Maps["notes"].MaxEntries = uint32(max(c.scope.room, os.Getpagesize()))
	return errors.Join(spec.Variables["v1"].Set(v1), spec.Variables["keep_own"].Set(c.scope.keepOwn))
}

// leaveOut drops the programs whose tracepoints the kernel lacks. sched_switch must exist.
func (c *collector) leaveOut(spec *ebpf.CollectionSpec) error {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return err
	}
	var missing []string
	for name, p := range spec.Programs {
		if p.AttachTo == "" { // set_mode
			continue
		}
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
		c.warnings = append(c.warnings, fmt.Sprintf("this kernel lacks the tracepoints %s: "+
			"what they would show is missing", strings.Join(missing, ", ")))
	}
	return nil
}

const switchPoint = "sched_switch"

// cgroupIDs returns the inode numbers of the directories: the kernel's cgroup IDs.
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
			return nil, fmt.Errorf("%w %s: expected a directory in %s, which has the cpuset controller",
				errOwn, dir, mount)
		}
		ids = append(ids, st.Ino)
	}
	return ids, nil
}

// fill sets which cgroups are own, and adds the entries for sources that find no room.
func (c *collector) fill(own []uint64) error {
	for cpu := range c.scope.measured.All() {
		for kind := range kinds() {
			key := sourceKey{CPU: uint32(cpu), Kind: uint32(kind), ID: otherSources}
			if err := c.coll.Maps["sources"].Put(key, sourceValue{}); err != nil {
				return err
			}
		}
	}
	for i, id := range own {
		if err := c.coll.Maps["own"].Put(id, c.scope.own.places()[i]); err != nil {
			return err
		}
	}
	return nil
}

// attach attaches the programs, which interrupts all CPUs some 200 times.
func (c *collector) attach(spec *ebpf.CollectionSpec) error {
	for name, p := range spec.Programs {
		if p.AttachTo == "" {
			continue
		}
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

// start starts the counting, also of the tasks that are on a CPU now.
func (c *collector) start() error {
	return errors.Join(c.setMode(c.scope.counted.Difference(c.scope.measured), modeCounted),
		c.setMode(c.scope.measured, modeMeasured))
}

// stop stops the counting, also of the tasks that are on a CPU now.
func (c *collector) stop() error {
	return c.setMode(c.scope.counted.Union(c.scope.measured), modeOff)
}

// onCPU is BPF_F_TEST_RUN_ON_CPU of include/uapi/linux/bpf.h.
const onCPU = 1

func (c *collector) setMode(cpus cpuset.Set, mode uint64) error {
	var failed []error
	for cpu := range cpus.All() {
		_, err := c.coll.Programs["set_mode"].Run(&ebpf.RunOptions{Flags: onCPU, CPU: uint32(cpu),
			Context: [3]uint64{mode, c.scope.own.placesOf(cpu), c.scope.side(cpu)}})
		if err != nil {
			failed = append(failed, fmt.Errorf("CPU %d: %w", cpu, err))
		}
	}
	return errors.Join(failed...)
}

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
