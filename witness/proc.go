package witness

import (
	"errors"
	"fmt"
	"io/fs"
	"math"

	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/results"
)

// ticks count time in units of 1/USER_HZ, which is 1/100 s for all programs (proc_pid_stat(5)).
type ticks uint64

const tick = results.Nanoseconds(1e9 / 100)

// duration converts to nanoseconds, at most 292 years.
func (t ticks) duration() results.Nanoseconds {
	return results.Nanoseconds(min(t, ticks(math.MaxInt64/tick))) * tick
}

// since returns the time since an earlier reading; 0 if the counter ran backwards.
func (t ticks) since(before ticks) results.Nanoseconds {
	if t < before {
		return 0
	}
	return (t - before).duration()
}

// taskID identifies a thread or process. IDs are reused; together with the start time they are unique.
type taskID struct {
	id    int
	start ticks // since boot
}

func taskOf(s task.Stat) taskID { return taskID{s.ID, ticks(s.Start)} }

// switches are the context switches of a thread.
type switches struct{ voluntary, involuntary uint64 }

func switchesOf(s task.Status) (switches, error) {
	voluntary, verr := s.Number("voluntary_ctxt_switches")
	involuntary, ierr := s.Number("nonvoluntary_ctxt_switches")
	return switches{voluntary, involuntary}, errors.Join(verr, ierr)
}

// readAs reads and parses one file. The error names it.
func readAs[T any](root fs.FS, path string, parse func(string) (T, error)) (T, error) {
	text, err := fs.ReadFile(root, path)
	if err != nil {
		var none T
		return none, err
	}
	v, err := parse(string(text))
	if err != nil {
		return v, fmt.Errorf("%s: %w", path, err)
	}
	return v, nil
}
