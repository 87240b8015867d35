package host

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"isolane.dev/isolane/sched"
)

// TaskStat is what /proc/PID/stat or /proc/PID/task/TID/stat says of a task (proc_pid_stat(5)).
type TaskStat struct {
	ID       int
	Comm     string
	State    byte   // 'R', 'S', …; 'Z' and 'X' of one that is dead
	Parent   int    // process id
	Kernel   bool   // a kernel thread
	Fixed    bool   // its CPUs cannot be changed (PF_NO_SETAFFINITY)
	CPUTicks uint64 // user and system, with ended children that were waited for
	Start    uint64 // in clock ticks after boot

	// The fields from 39 on; -1 and "" where the text ends before them.
	Processor int // where it ran last
	Priority  int // real-time priority
	Policy    sched.Policy
}

// Flags in field 9, from include/linux/sched.h.
const (
	kernelThread  = 0x00200000 // PF_KTHREAD
	noSetaffinity = 0x04000000 // PF_NO_SETAFFINITY
)

// Dead says whether the task has ended.
func (s TaskStat) Dead() bool { return s.State == 'Z' || s.State == 'X' }

// ParseStat reads fields 1 to 4, 9, 14 to 17, 22 and 39 to 41. The name may hold spaces and parentheses. It
// is an error where the text ends before field 22.
func ParseStat(text string) (TaskStat, error) {
	from, to := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if from < 0 || to < from {
		return TaskStat{}, errors.New("expected a name in parentheses")
	}
	const first = 3 // the number of the field after the name
	f := strings.Fields(text[to+1:])
	if len(f) <= 22-first {
		return TaskStat{}, fmt.Errorf("expected at least 22 fields, found %d after the name", len(f))
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
	s := TaskStat{ID: small(strings.TrimSpace(text[:from])), Comm: text[from+1 : to], State: f[0][0],
		Parent: small(f[4-first]), Kernel: flags&kernelThread != 0, Fixed: flags&noSetaffinity != 0,
		Start: number(f[22-first], 64), Processor: -1, Priority: -1}
	for _, field := range f[14-first : 18-first] {
		s.CPUTicks += number(field, 61)
	}
	if len(f) > 41-first {
		s.Priority, s.Policy = small(f[40-first]), sched.Numbered(number(f[41-first], 32))
	}
	if len(f) > 39-first {
		s.Processor = small(f[39-first])
	}
	return s, failed
}
