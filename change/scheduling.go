package change

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/sched"
)

// KindScheduling sets how one thread is scheduled. Target is its TaskTarget; a value is a Scheduling as text.
const KindScheduling = "scheduling"

// Scheduling is how a thread is scheduled (sched(7)).
type Scheduling struct {
	Policy   sched.Policy // fifo, rr; other, batch or idle
	Priority int          // 1 to 99 with fifo and rr
	Nice     int          // -20 to 19 with the others, as
	// Slack is by how many ns a timer may be late (PR_SET_TIMERSLACK(2const)); fifo and rr have none.
	Slack uint64
}

// RealTime reports whether the policy is fifo or rr.
func (s Scheduling) RealTime() bool { return s.Policy.IsRealTime() }

// isSettable reports whether a thread can be given a policy, and be given its old one back. Deadline is not:
// its parameters are more than a priority.
func isSettable(p sched.Policy) bool {
	return p.IsRealTime() || p == sched.Other || p == sched.Batch || p == sched.Idle
}

// String returns "fifo 50" or "other 0 50000", for example.
func (s Scheduling) String() string {
	if s.RealTime() {
		return fmt.Sprintf("%s %d", s.Policy, s.Priority)
	}
	return fmt.Sprintf("%s %d %d", s.Policy, s.Nice, s.Slack)
}

func parseScheduling(text string) (Scheduling, error) {
	var s Scheduling
	var err error
	if policy, rest, _ := strings.Cut(text, " "); sched.Policy(policy).IsRealTime() {
		s.Policy = sched.Policy(policy)
		s.Priority, err = strconv.Atoi(rest)
	} else {
		_, err = fmt.Sscanf(text, "%s %d %d", &s.Policy, &s.Nice, &s.Slack)
	}
	if err != nil || !isSettable(s.Policy) || s.Nice < -20 || s.Nice > 19 || s.String() != text ||
		s.RealTime() && (s.Priority < 1 || s.Priority > 99) {
		return s, fmt.Errorf("%q: expected fifo or rr and a priority, "+
			"or other, batch or idle, a nice value and nanoseconds", text)
	}
	return s, nil
}

// ErrDeadline says that a thread has the policy deadline or an unknown one, and stays as it is.
var ErrDeadline = errors.New("expected the policy fifo, rr, other, batch or idle")

// SchedulingOf reads how a thread is scheduled.
func SchedulingOf(tid int) (Scheduling, error) {
	attr, err := unix.SchedGetAttr(tid, 0)
	if err != nil {
		return Scheduling{}, task.Ended(err)
	}
	s := Scheduling{Nice: int(attr.Nice), Priority: int(attr.Priority)}
	if s.Policy = sched.Numbered(uint64(attr.Policy)); !isSettable(s.Policy) {
		return s, fmt.Errorf("thread %d: policy %d: %w", tid, attr.Policy, ErrDeadline)
	}
	if s.RealTime() {
		return s, nil
	}
	text, err := os.ReadFile(slackFile(tid))
	if err = task.Ended(err); err == nil {
		s.Slack, err = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	}
	return s, err
}

// slackFile returns the file of a thread's timer slack, since Linux 4.6 (proc_pid_timerslack_ns(5)).
func slackFile(tid int) string { return fmt.Sprintf("/proc/%d/timerslack_ns", tid) }

type scheduling struct{}

func (scheduling) Check(s journal.Step) error {
	var berr error
	if s.Before != "" {
		_, berr = parseScheduling(s.Before)
	}
	_, err := parseScheduling(s.After)
	return errors.Join(checkTask(s.Target), berr, err)
}

// Ends returns true: any thread may end.
func (scheduling) Ends(journal.Step) bool { return true }

// Name names the thread.
func (scheduling) Name(s journal.Step) string { return taskName("scheduling of thread", s.Target) }

func (scheduling) Read(_ context.Context, s journal.Step) (string, error) {
	tid, err := findTask(host.Live(), s.Target)
	if err != nil {
		return "", err
	}
	now, err := SchedulingOf(tid)
	if errors.Is(err, ErrDeadline) { // its program has chosen that since
		return "another policy", nil
	}
	return now.String(), err
}

func (scheduling) Write(_ context.Context, s journal.Step, value string) error {
	tid, err := findTask(host.Live(), s.Target)
	if err != nil {
		return err
	}
	to, err := parseScheduling(value)
	if err != nil {
		return err
	}
	attr, err := unix.SchedGetAttr(tid, 0) // the flag for children stays as it is
	if err != nil {
		return task.Ended(err)
	}
	attr.Policy, _ = to.Policy.Number() // parseScheduling has checked it
	attr.Priority, attr.Nice = uint32(to.Priority), int32(to.Nice)
	attr.Flags &= unix.SCHED_FLAG_RESET_ON_FORK
	if err = unix.SchedSetAttr(tid, attr, 0); err != nil {
		return task.Ended(fmt.Errorf("thread %d: policy %s: %w", tid, value, err))
	}
	if to.RealTime() {
		return nil
	}
	return task.Ended(os.WriteFile(slackFile(tid), []byte(strconv.FormatUint(to.Slack, 10)), 0))
}
