package witness

//go:generate clang -O2 -g -Wall -Werror -target bpfel -D__TARGET_ARCH_x86 -I/usr/include/x86_64-linux-gnu -fdebug-compilation-dir=. -c bpf/switch.c -o bpf/switch.o
//go:generate llvm-strip -g bpf/switch.o

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/results"
)

//go:embed bpf/switch.o
var object []byte

// stay is how long one task was on one CPU.
type stay struct {
	cpu, tid, tgid int
	flags          uint32 // PF_* of include/linux/sched.h
	comm           string
	runs           uint64
	ran, worst     results.Nanoseconds
}

// tracer adds up stays in the kernel, at each sched_switch.
type tracer struct {
	coll *ebpf.Collection
	link link.Link
}

type stayKey struct{ CPU, TID uint32 }

type stayValue struct {
	Runs, NS, Worst uint64
	TGID, Flags     uint32
	Comm            [16]byte
}

func newTracer() (*tracer, error) {
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(object))
	if err != nil {
		return nil, err
	}
	var now unix.Timespec
	if err = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil { // that of bpf_ktime_get_ns
		return nil, err
	}
	if err = spec.Variables["begin"].Set(uint64(now.Nano())); err != nil { //nolint:gosec // G115: time since boot
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
	return &tracer{coll: coll, link: l}, nil
}

// stop detaches and returns what was added up. A task that has not left its CPU since it came last
// is not in it: threads that never sleep are found by their last CPU in /proc too.
func (t *tracer) stop() ([]stay, error) {
	defer t.coll.Close()
	if err := t.link.Close(); err != nil {
		return nil, err
	}
	var stays []stay
	var k stayKey
	var v stayValue
	entries := t.coll.Maps["stays"].Iterate()
	for entries.Next(&k, &v) {
		name, _, _ := bytes.Cut(v.Comm[:], []byte{0})
		stays = append(stays, stay{cpu: int(k.CPU), tid: int(k.TID), tgid: int(v.TGID), flags: v.Flags, comm: string(name),
			runs: v.Runs, ran: results.Nanoseconds(v.NS), worst: results.Nanoseconds(v.Worst)}) //nolint:gosec // G115: durations of a window
	}
	var dropped uint64
	err := errors.Join(entries.Err(), t.coll.Variables["dropped"].Get(&dropped))
	if err == nil && dropped > 0 {
		err = fmt.Errorf("%d stays found no room", dropped)
	}
	return stays, err
}

// sampling is how often /proc is looked at while a window lasts.
const sampling = 250 * time.Millisecond
