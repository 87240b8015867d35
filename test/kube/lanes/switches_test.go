package lanes_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/test/kube/bed"
)

// switches sees each user thread that leaves a CPU of a lane whose cgroup is a partition, by an eBPF program of its own
// at the kernel's switches of tasks. What lanes there are it reads from cgroups, not from Isolane. A thread of somebody
// else counts from when the container's program runs until the last look that found it, with its partition, there.
type switches struct {
	lanes   *ebpf.Map // by CPU: the id of the lane's cgroup, 0 for none, and how often a thread of it left the CPU
	ring    *ringbuf.Reader
	tap     link.Link
	ended   chan struct{}
	reading sync.WaitGroup

	mu    sync.Mutex
	seen  []stranger
	spans map[int][]span // by CPU
	now   map[int]laneOn
	left  uint64 // how often threads of lanes left their CPUs, of lanes that have gone
	err   error
}

type (
	// stranger is a user thread outside of a lane's cgroup that left its CPU.
	stranger struct {
		At, Cgroup, ID, CPU uint64
		Comm                [16]byte
	}
	// span is when a CPU was a partition's whose container's program ran, of CLOCK_MONOTONIC.
	span struct{ from, to uint64 }
	// laneOn is a lane on a CPU: its cgroup, and whether the last span is of it and goes on.
	laneOn struct {
		cgroup uint64
		runs   bool
	}
	counter struct{ Cgroup, Left uint64 }
)

const kernelThread = 0x00200000 // PF_KTHREAD, include/linux/sched.h

// watchSwitches begins, below a cgroup, and ends with the test.
func watchSwitches(t *testing.T, top string) *switches {
	t.Helper()
	var task *btf.Struct
	kernel, err := btf.LoadKernelSpec()
	if err == nil {
		err = kernel.TypeByName("task_struct", &task)
	}
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(task.Members, func(m btf.Member) bool { return m.Name == "flags" })
	s := &switches{ended: make(chan struct{}), spans: map[int][]span{}, now: map[int]laneOn{}}
	cpus, err := ebpf.PossibleCPU()
	if err == nil {
		s.lanes, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 16, MaxEntries: uint32(cpus)})
	}
	var events *ebpf.Map
	if err == nil {
		events, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.RingBuf, MaxEntries: 1 << 22})
	}
	var program *ebpf.Program
	if err == nil {
		program, err = ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.RawTracepoint, License: "GPL",
			Instructions: leaves(s.lanes, events, int32(task.Members[at].Offset.Bytes()))})
	}
	if err == nil {
		s.ring, err = ringbuf.NewReader(events)
	}
	if err == nil {
		s.tap, err = link.AttachRawTracepoint(link.RawTracepointOptions{Name: "sched_switch", Program: program})
	}
	if err != nil {
		t.Fatal(err)
	}
	s.reading.Add(2)
	go s.read()
	go func() {
		defer s.reading.Done()
		for {
			s.look(top)
			select {
			case <-s.ended:
				return
			case <-time.After(bed.Patient(10 * time.Millisecond)):
			}
		}
	}()
	t.Cleanup(func() {
		close(s.ended)
		if err := errors.Join(s.tap.Close(), s.ring.Close()); err != nil {
			t.Error(err)
		}
		s.reading.Wait()
		if err := errors.Join(s.err, program.Close(), events.Close(), s.lanes.Close()); err != nil {
			t.Error(err)
		}
	})
	s.seesStrangers(t)
	return s
}

// leaves is the program: of a user thread that leaves a CPU of a lane it counts one of the lane's cgroup, and tells of
// another.
func leaves(lanes, events *ebpf.Map, flags int32) asm.Instructions {
	const (
		record, cgroup, id, cpu, comm, size = -64, -56, -48, -40, -32, 48
		key, word                           = -16, -8
	)
	stack := func(r asm.Register, at int32) []asm.Instruction {
		return []asm.Instruction{asm.Mov.Reg(r, asm.RFP), asm.Add.Imm(r, at)}
	}
	return slices.Concat([]asm.Instruction{
		asm.FnGetCurrentPidTgid.Call(),
		asm.JEq.Imm(asm.R0, 0, "exit"), // idle
		asm.Mov.Reg(asm.R9, asm.R0),
		asm.FnGetCurrentTask.Call(),
		asm.Mov.Reg(asm.R3, asm.R0),
		asm.Add.Imm(asm.R3, flags),
		asm.StoreImm(asm.RFP, word, 0, asm.DWord)},
		stack(asm.R1, word), []asm.Instruction{
			asm.Mov.Imm(asm.R2, 4),
			asm.FnProbeReadKernel.Call(),
			asm.LoadMem(asm.R1, asm.RFP, word, asm.Word),
			asm.And.Imm(asm.R1, kernelThread),
			asm.JNE.Imm(asm.R1, 0, "exit"),
			asm.FnGetSmpProcessorId.Call(),
			asm.StoreMem(asm.RFP, key, asm.R0, asm.DWord),
			asm.LoadMapPtr(asm.R1, lanes.FD())},
		stack(asm.R2, key), []asm.Instruction{
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "exit"),
			asm.Mov.Reg(asm.R6, asm.R0),
			asm.LoadMem(asm.R8, asm.R6, 0, asm.DWord),
			asm.JEq.Imm(asm.R8, 0, "exit"),
			asm.FnGetCurrentCgroupId.Call(),
			asm.JNE.Reg(asm.R0, asm.R8, "stranger"),
			asm.Mov.Imm(asm.R1, 1),
			asm.Add.Imm(asm.R6, 8),
			asm.StoreXAdd(asm.R6, asm.R1, asm.DWord),
			asm.Ja.Label("exit"),
			asm.StoreMem(asm.RFP, cgroup, asm.R0, asm.DWord).WithSymbol("stranger"),
			asm.StoreMem(asm.RFP, id, asm.R9, asm.DWord),
			asm.LoadMem(asm.R1, asm.RFP, key, asm.DWord),
			asm.StoreMem(asm.RFP, cpu, asm.R1, asm.DWord),
			asm.FnKtimeGetNs.Call(),
			asm.StoreMem(asm.RFP, record, asm.R0, asm.DWord)},
		stack(asm.R1, comm), []asm.Instruction{
			asm.Mov.Imm(asm.R2, 16),
			asm.FnGetCurrentComm.Call(),
			asm.LoadMapPtr(asm.R1, events.FD())},
		stack(asm.R2, record), []asm.Instruction{
			asm.Mov.Imm(asm.R3, size),
			asm.Mov.Imm(asm.R4, 0),
			asm.FnRingbufOutput.Call(),
			asm.Mov.Imm(asm.R0, 0).WithSymbol("exit"),
			asm.Return()})
}

func (s *switches) read() {
	defer s.reading.Done()
	for {
		record, err := s.ring.Read()
		if err != nil {
			return // it is closed
		}
		var one stranger
		_, err = binary.Decode(record.RawSample, binary.NativeEndian, &one)
		s.mu.Lock()
		s.seen, s.err = append(s.seen, one), errors.Join(s.err, err)
		s.mu.Unlock()
	}
}

// set says on which cgroup's CPU one is from now on.
func (s *switches) set(cpu int, cgroup uint64) error {
	var was counter
	err := s.lanes.Lookup(uint32(cpu), &was)
	if err == nil && was.Cgroup != cgroup {
		s.left += was.Left
		err = s.lanes.Put(uint32(cpu), counter{Cgroup: cgroup})
	}
	return err
}

// look finds the partitions that there are, and whether the programs of their containers run.
func (s *switches) look(top string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[int]laneOn{}
	err := filepath.WalkDir(top, func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			if errors.Is(err, fs.ErrNotExist) {
				err = nil // it went meanwhile
			}
			return err
		}
		from := monotonic()
		kind, _ := os.ReadFile(filepath.Join(dir, "cpuset.cpus.partition"))
		if state := strings.TrimSpace(string(kind)); state != "root" && state != "isolated" {
			return nil
		}
		var is unix.Stat_t
		if unix.Stat(dir, &is) != nil {
			return nil // it went meanwhile
		}
		cpus, _ := os.ReadFile(filepath.Join(dir, "cpuset.cpus.effective"))
		runs := s.runs(dir)
		for cpu := range numbers(strings.TrimSpace(string(cpus))) {
			found[cpu] = laneOn{is.Ino, runs}
			was, all := s.now[cpu], s.spans[cpu]
			switch {
			case !runs:
			case was == found[cpu]:
				all[len(all)-1].to = from // it was still so when this look began
			default:
				at := monotonic() // it is so since this look at the latest
				s.spans[cpu] = append(all, span{at, at})
			}
		}
		return nil
	})
	for cpu := range s.now {
		if _, is := found[cpu]; !is {
			err = errors.Join(err, s.set(cpu, 0))
		}
	}
	for cpu, lane := range found {
		err = errors.Join(err, s.set(cpu, lane.cgroup))
	}
	s.now, s.err = found, errors.Join(s.err, err)
}

// runs says whether the program of a container's cgroup runs, and not only what starts it.
func (*switches) runs(dir string) bool {
	pids, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	return slices.ContainsFunc(strings.Fields(string(pids)), func(pid string) bool {
		name, err := os.ReadFile("/proc/" + pid + "/comm")
		return err == nil && string(name) == "spin\n"
	})
}

func numbers(list string) map[int]bool {
	ids := map[int]bool{}
	for part := range strings.SplitSeq(list, ",") {
		var first, last int
		switch n, _ := fmt.Sscanf(part, "%d-%d", &first, &last); n {
		case 2:
			for ; first <= last; first++ {
				ids[first] = true
			}
		case 1:
			ids[first] = true
		}
	}
	return ids
}

func monotonic() uint64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err) // there is no other error than of a wrong clock
	}
	return uint64(now.Nano())
}

// seesStrangers is an error where the program sees nobody on CPU 0, taken for a lane's for a moment.
func (s *switches) seesStrangers(t *testing.T) {
	t.Helper()
	s.mu.Lock()                     // nobody else looks meanwhile
	err := s.set(0, math.MaxUint64) // the id of none; that of the root is 1
	time.Sleep(bed.Patient(50 * time.Millisecond))
	err = errors.Join(err, s.set(0, 0))
	s.mu.Unlock()
	time.Sleep(bed.Patient(100 * time.Millisecond)) // until it is read
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil || len(s.seen) == 0 {
		t.Errorf("no user thread was seen on CPU 0: %v", err)
	}
	s.seen = nil
}

// judge logs what was seen up to now, and is an error where a stranger was on a lane's CPU.
func (s *switches) judge(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var watched time.Duration
	spans, left := 0, s.left
	for cpu, all := range s.spans {
		var now counter
		if err := s.lanes.Lookup(uint32(cpu), &now); err != nil {
			t.Error(err)
		}
		left += now.Left
		for _, one := range all {
			spans++
			watched += time.Duration(one.to - one.from)
		}
	}
	names, outside := map[string]int{}, 0
	for _, one := range s.seen {
		if slices.ContainsFunc(s.spans[int(one.CPU)], func(in span) bool { return in.from < one.At && one.At < in.to }) {
			names[unix.ByteSliceToString(one.Comm[:])]++
		} else {
			outside++
		}
	}
	t.Logf("eBPF: %v of CPUs in %d spans of lanes whose programs ran; their threads left the CPU %d times, other user threads %d times; "+
		"before and after that others did %d times", watched.Round(time.Millisecond), spans, left, len(s.seen)-outside, outside)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		t.Errorf("%s left a lane's CPU %d times", name, names[name])
	}
	if spans == 0 || left == 0 {
		t.Errorf("%d spans of lanes, whose threads left their CPUs %d times: nothing was seen", spans, left)
	}
}
