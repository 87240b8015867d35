package task

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/sched"
)

// Stat is what /proc/PID/stat or /proc/PID/task/TID/stat says about a task (proc_pid_stat(5)).
type Stat struct {
	ID        int
	Comm      string
	State     byte   // 'R', 'S', …; 'Z' and 'X': dead
	Parent    int    // process id
	Kernel    bool   // a kernel thread
	Fixed     bool   // its CPUs cannot be changed (PF_NO_SETAFFINITY)
	Worker    bool   // a thread of the kernel's work queues (PF_WQ_WORKER)
	CPUTicks  uint64 // user and system, including ended children that were waited for
	Start     uint64 // in clock ticks after boot
	Processor int    // where it ran last
	Priority  int    // real-time priority; 0 with other policies
	Policy    sched.Policy
}

// Flags in field 9, from include/linux/sched.h.
const (
	worker        = 0x00000020 // PF_WQ_WORKER
	kernelThread  = 0x00200000 // PF_KTHREAD
	noSetaffinity = 0x04000000 // PF_NO_SETAFFINITY
)

// Dead reports whether the task has ended.
func (s Stat) Dead() bool { return s.State == 'Z' || s.State == 'X' }

// Movable reports whether the CPUs of the task can be changed. Threads of interrupts follow their interrupt
// (kernel/irq/manage.c).
func (s Stat) Movable() bool { return !s.Fixed && (!s.Kernel || !strings.HasPrefix(s.Comm, "irq/")) }

// ParseStat parses fields 1 to 4, 9, 14 to 17, 22 and 39 to 41. The name may contain spaces and parentheses.
func ParseStat(text string) (Stat, error) {
	from, to := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if from < 0 || to < from {
		return Stat{}, errors.New("expected a name in parentheses")
	}
	const first, last = 3, 41 // the numbers of the field after the name, and of the last one that is read
	f := strings.Fields(text[to+1:])
	if len(f) <= last-first {
		return Stat{}, fmt.Errorf("expected at least %d fields, found %d after the name", last, len(f))
	}
	var failed error
	number := func(text string, bits int) uint64 {
		v, err := strconv.ParseUint(text, 10, bits)
		if failed == nil {
			failed = err
		}
		return v
	}
	small := func(text string) int { return int(number(text, 31)) }
	flags := number(f[9-first], 32)
	s := Stat{ID: small(strings.TrimSpace(text[:from])), Comm: text[from+1 : to], State: f[0][0],
		Parent: small(f[4-first]), Kernel: flags&kernelThread != 0, Fixed: flags&noSetaffinity != 0,
		Worker: flags&worker != 0, Start: number(f[22-first], 64), Processor: small(f[39-first]),
		Priority: small(f[40-first]), Policy: sched.Numbered(number(f[41-first], 32))}
	for _, field := range f[14-first : 18-first] {
		s.CPUTicks += number(field, 61)
	}
	if failed == nil && s.Processor > cpuset.Max {
		failed = fmt.Errorf("field 39: expected a CPU, found %d", s.Processor)
	}
	return s, failed
}
