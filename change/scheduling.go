package change

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/journal"
)

// KindScheduling is how one thread is scheduled: Target is its TaskTarget, the values are as of Scheduling.
const KindScheduling = "scheduling"

// Scheduling is how a thread is scheduled (sched(7)), as a step of kind scheduling has it.
type Scheduling struct {
	Policy   string // fifo, rr; other, batch or idle
	Priority int    // 1 to 99 with fifo and rr
	Nice     int    // -20 to 19 with the others, as
	Slack    uint64 // in ns: by how much a timer may be late (PR_SET_TIMERSLACK(2const)); fifo and rr have none
}

// policies are the numbers of include/uapi/linux/sched.h.
func policies() map[string]uint32 {
	return map[string]uint32{"other": unix.SCHED_NORMAL, "fifo": unix.SCHED_FIFO, "rr": unix.SCHED_RR,
		"batch": unix.SCHED_BATCH, "idle": unix.SCHED_IDLE}
}

// RealTime says whether the policy is fifo or rr.
func (s Scheduling) RealTime() bool { return s.Policy == "fifo" || s.Policy == "rr" }

// String is "fifo 50" or "other 0 50000".
func (s Scheduling) String() string {
	if s.RealTime() {
		return fmt.Sprintf("%s %d", s.Policy, s.Priority)
	}
	return fmt.Sprintf("%s %d %d", s.Policy, s.Nice, s.Slack)
}

func parseScheduling(text string) (Scheduling, error) {
	var s Scheduling
	var err error
	if policy, rest, _ := strings.Cut(text, " "); policy == "fifo" || policy == "rr" {
		s.Policy = policy
		s.Priority, err = strconv.Atoi(rest)
	} else {
		_, err = fmt.Sscanf(text, "%s %d %d", &s.Policy, &s.Nice, &s.Slack)
	}
	_, known := policies()[s.Policy]
	if err != nil || !known || s.Nice < -20 || s.Nice > 19 || s.String() != text ||
		s.RealTime() && (s.Priority < 1 || s.Priority > 99) {
		return s, fmt.Errorf("%q: expected fifo or rr and a priority, "+
			"or other, batch or idle, a nice value and nanoseconds", text)
	}
	return s, nil
}

// ErrDeadline says that a thread has the policy deadline, or one that is not known here: it stays as it is.
var ErrDeadline = errors.New("expected the policy fifo, rr, other, batch or idle")

// SchedulingOf reads how a thread is scheduled.
func SchedulingOf(tid int) (Scheduling, error) {
	attr, err := unix.SchedGetAttr(tid, 0)
	if err != nil {
		return Scheduling{}, ended(err)
	}
	s := Scheduling{Nice: int(attr.Nice), Priority: int(attr.Priority)}
	for name, number := range policies() {
		if attr.Policy == number {
			s.Policy = name
		}
	}
	if s.Policy == "" {
		return s, fmt.Errorf("thread %d: policy %d: %w", tid, attr.Policy, ErrDeadline)
	}
	if s.RealTime() {
		return s, nil
	}
	text, err := os.ReadFile(slackFile(tid))
	if errors.Is(err, unix.ESRCH) {
		err = fs.ErrNotExist
	}
	if err == nil {
		s.Slack, err = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	}
	return s, err
}

// slackFile has a thread's timer slack, since Linux 4.6 (proc_pid_timerslack_ns(5)).
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

// Ends is true of each thread.
func (scheduling) Ends(journal.Step) bool { return true }

// Name is that of the thread.
func (scheduling) Name(s journal.Step) string { return TaskName("scheduling of thread", s.Target) }

func (scheduling) Read(_ context.Context, s journal.Step) (string, error) {
	tid, err := find(s.Target)
	if err != nil {
		return "", err
	}
	now, err := SchedulingOf(tid)
	if errors.Is(err, ErrDeadline) { // which its program has chosen since
		return "another policy", nil
	}
	return now.String(), err
}

func (scheduling) Write(_ context.Context, s journal.Step, value string) error {
	tid, err := find(s.Target)
	if err != nil {
		return err
	}
	to, err := parseScheduling(value)
	if err != nil {
		return err
	}
	attr, err := unix.SchedGetAttr(tid, 0) // whether its children inherit it stays
	if err != nil {
		return ended(err)
	}
	attr.Policy = policies()[to.Policy]
	attr.Priority, attr.Nice = uint32(to.Priority), int32(to.Nice)
	attr.Flags &= unix.SCHED_FLAG_RESET_ON_FORK
	if err = unix.SchedSetAttr(tid, attr, 0); err != nil {
		return ended(fmt.Errorf("thread %d: policy %s: %w", tid, value, err))
	}
	if to.RealTime() {
		return nil
	}
	return ended(os.WriteFile(slackFile(tid), []byte(strconv.FormatUint(to.Slack, 10)), 0))
}
