package host

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// CPUTime is the time that a CPU has spent since boot, in ticks of USER_HZ, which is 100 on every
// architecture on which Isolane runs (proc_stat(5)).
type CPUTime struct {
	Busy       uint64 // user, nice and system
	Interrupts uint64 // irq and softirq
	Idle       uint64 // idle and iowait; may run backwards
	Steal      uint64
}

// CPUTimes reads the times of each CPU from /proc/stat.
func CPUTimes(root fs.FS) (map[int]CPUTime, error) {
	text, err := fs.ReadFile(root, "proc/stat")
	all := map[int]CPUTime{}
	for line := range strings.Lines(string(text)) {
		name, times, _ := strings.Cut(line, " ")
		number, ok := strings.CutPrefix(name, "cpu")
		if !ok || number == "" { // the line "cpu" is the sum of all
			continue
		}
		id, ierr := strconv.ParseUint(number, 10, 31)
		t, terr := parseCPUTime(times)
		if terr = cmp.Or(ierr, terr); terr != nil {
			return nil, fmt.Errorf("/proc/stat: %s: %w", name, terr)
		}
		all[int(id)] = t
	}
	if err == nil && len(all) == 0 {
		err = errors.New("/proc/stat: expected lines cpu0, cpu1 and so on, found none")
	}
	return all, err
}

// parseCPUTime reads user, nice, system, idle, iowait, irq, softirq and steal.
func parseCPUTime(text string) (CPUTime, error) {
	var n [8]uint64
	f := strings.Fields(text)
	for i := range n {
		if len(f) < len(n) {
			return CPUTime{}, fmt.Errorf("expected at least %d times, found %d", len(n), len(f))
		}
		var err error
		if n[i], err = strconv.ParseUint(f[i], 10, 61); err != nil {
			return CPUTime{}, err
		}
	}
	return CPUTime{Busy: n[0] + n[1] + n[2], Interrupts: n[5] + n[6], Idle: n[3] + n[4], Steal: n[7]}, nil
}
