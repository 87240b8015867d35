package witness

//go:generate clang -O2 -g -Wall -Werror -target bpfel -I/usr/include/x86_64-linux-gnu -fdebug-compilation-dir=. -c bpf/switch.c -o bpf/switch.o
//go:generate llvm-strip -g bpf/switch.o
//go:generate clang -O2 -g -Wall -Werror -target bpfel -I/usr/include/x86_64-linux-gnu -fdebug-compilation-dir=. -c bpf/trace.c -o bpf/trace.o
//go:generate llvm-strip -g bpf/trace.o

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/results"
)

//go:embed bpf/switch.o
var object []byte

// stay is all that one task ran on one CPU within the window.
type stay struct {
	task
	switches
	cpu          int
	process      task // of which the task is a thread
	parent       int  // process id
	kernel       bool
	comm         string
	runs         uint64
	ran, longest results.Nanoseconds
}

// tracer adds up stays in the kernel, at each sched_switch.
type tracer struct {
	coll   *ebpf.Collection
	link   link.Link
	online cpuset.Set
}

// The structs of bpf/switch.c.
type (
	stayKey struct {
		CPU, TID uint32
		Start    uint64
	}
	stayValue struct {
		Runs, Voluntary, Involuntary, NS, Worst, ProcessStart uint64
		TGID, Parent, Flags, Unused                           uint32
		Comm                                                  [16]byte
	}
	cpuValue struct{ Since, Switches, Dropped uint64 }
)

// initialPIDNamespace is PROC_PID_INIT_INO of include/linux/proc_ns.h, the same on every machine.
const initialPIDNamespace = 0xEFFFFFFC

// newTracer loads and attaches the programs; they count only from open on.
func newTracer(root fs.FS) (*tracer, error) {
	if at, err := os.Stat("/proc/self/ns/pid"); err != nil {
		return nil, err
	} else if st, ok := at.Sys().(*syscall.Stat_t); ok && st.Ino != initialPIDNamespace {
		return nil, errors.New("this PID namespace has thread ids of its own, not the kernel's")
	}
	online, err := onlineCPUs(root)
	if err != nil {
		return nil, err
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(object))
	if err != nil {
		return nil, err
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, err
	}
	l, err := link.AttachTracing(link.TracingOptions{Program: coll.Programs["on_switch"]})
	if err != nil {
		coll.Close()
		return nil, err
	}
	t := &tracer{coll: coll, link: l, online: online}
	if err := t.close(); err != nil { // nothing counts yet: this only tries whether the kernel can
		return nil, errors.Join(err, t.discard())
	}
	return t, nil
}

func onlineCPUs(root fs.FS) (cpuset.Set, error) {
	const path = "sys/devices/system/cpu/online"
	text, err := fs.ReadFile(root, path)
	if err != nil {
		return cpuset.Set{}, err
	}
	set, err := cpuset.Parse(string(text))
	if err != nil {
		return set, fmt.Errorf("%s: %w", path, err)
	}
	return set, nil
}

// onCPU is BPF_F_TEST_RUN_ON_CPU of include/uapi/linux/bpf.h.
const onCPU = 1

// onEach runs a program once on each CPU, over whatever task is there.
func (t *tracer) onEach(program string) error {
	var failed []error
	for cpu := range t.online.All() {
		_, err := t.coll.Programs[program].Run(&ebpf.RunOptions{Flags: onCPU, CPU: uint32(cpu)})
		if err != nil {
			failed = append(failed, fmt.Errorf("CPU %d: %w", cpu, err))
		}
	}
	return errors.Join(failed...)
}

// open begins to count, also the tasks that are on a CPU now.
func (t *tracer) open() error { return t.onEach("open_cpu") }

// counted is what the tracer found.
type counted struct {
	stays    []stay
	switches map[int]uint64 // by CPU, to the idle task too
	dropped  uint64         // runs that found no room
}

// close ends the counting, also of the tasks that are on a CPU now.
func (t *tracer) close() error { return t.onEach("close_cpu") }

// collect detaches and returns what was counted.
func (t *tracer) collect() (counted, error) {
	defer t.coll.Close()
	err := t.link.Close()
	c := counted{switches: map[int]uint64{}}
	var cpus []cpuValue
	err = errors.Join(err, t.coll.Maps["cpus"].Lookup(uint32(0), &cpus))
	for id, v := range cpus {
		c.switches[id] = v.Switches
		c.dropped += v.Dropped
	}
	var k stayKey
	var v stayValue
	entries := t.coll.Maps["stays"].Iterate()
	for entries.Next(&k, &v) {
		c.stays = append(c.stays, toStay(k, v))
	}
	return c, errors.Join(err, entries.Err())
}

// discard detaches without a look at what was counted.
func (t *tracer) discard() error {
	err := t.link.Close()
	t.coll.Close()
	return err
}

func toStay(k stayKey, v stayValue) stay {
	name, _, _ := bytes.Cut(v.Comm[:], []byte{0})
	return stay{
		cpu: int(k.CPU), task: task{id: int(k.TID), start: bootTicks(k.Start)},
		process: task{id: int(v.TGID), start: bootTicks(v.ProcessStart)}, parent: int(v.Parent),
		kernel: v.Flags&kernelThread != 0, comm: strings.ToValidUTF8(string(name), "?"),
		runs: v.Runs, switches: switches{v.Voluntary, v.Involuntary},
		ran: results.Nanoseconds(v.NS), longest: results.Nanoseconds(v.Worst),
	}
}

// bootTicks turns a start time in the kernel into that which /proc shows (field 22 of proc_pid_stat(5)).
func bootTicks(ns uint64) ticks { return ticks(ns / uint64(tick)) }
