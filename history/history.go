// Package history keeps what has happened to the lanes of a host in a bounded store on disk: who put them in
// force and took them back, what somebody else changed, what took their CPUs' time, what was proved.
//
//	err := history.Append(history.Dir, history.Event{Kind: history.Released, Lane: "web", What: "by hand"})
//	events, err := history.Read(history.Dir, history.Query{Since: time.Now().Add(-time.Hour)})
//
// Each call opens the store, does its work in one transaction, and closes it, so commands and the agent write
// in the same way. After a power cut or a crash the store has the whole transaction, or nothing of it
// (bbolt).
package history

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/journal"
)

// Dir is the directory of a host's store. Only root may read it, because it names commands and cgroups of all
// users.
const Dir = "/var/lib/isolane"

// Place returns $ISOLANE_HISTORY, or Dir.
func Place() string { return cmp.Or(os.Getenv("ISOLANE_HISTORY"), Dir) }

// Kind is the kind of an event.
type Kind string

// The kinds of events. Append itself adds Boot, Clock and Damaged.
const (
	Boot         Kind = "boot"          // the host has started
	Applied      Kind = "applied"       // a lane was put in force or changed
	Released     Kind = "released"      // a lane was taken back
	Attached     Kind = "attached"      // a workload came into its lane
	Ran          Kind = "ran"           // a lane for the life of a command was put in force
	Recovered    Kind = "recovered"     // what a crash had left was undone
	Adopted      Kind = "adopted"       // lanes without a record were taken over
	Drifted      Kind = "drift"         // a setting is not as the lanes want it
	PutBack      Kind = "put back"      // settings were repaired
	Intrusion    Kind = "intrusion"     // the longest time that something took from a lane's CPU
	Proof        Kind = "proof"         // measurements beside a lane judged its objective
	Packets      Kind = "packets"       // a lane's packets begin to be dropped or refused
	AgentStarted Kind = "agent started" // the agent has started to watch
	AgentEnded   Kind = "agent ended"   // it has stopped
	Clock        Kind = "clock"         // the clock was set
	Damaged      Kind = "damaged"       // the store could not be read; this is a new one
)

// Event is something that has happened.
type Event struct {
	At   time.Time `json:"at"`             // UTC; zero Time: when it is written
	Boot string    `json:"boot"`           // the kernel's id of the boot; "": this boot
	Kind Kind      `json:"kind"`           //
	Lane string    `json:"lane,omitempty"` // "": the host as a whole
	What string    `json:"what"`           // in words, one line
	// By says who did it, if that is known and was no command of Isolane: "irqbalance (612)".
	By       string `json:"by,omitempty"`
	Who      *Who   `json:"who,omitempty"`             // whose command did it
	Settings int    `json:"settings,omitempty"`        // how many of the host were changed or put back
	CPU      *int   `json:"cpu,omitempty"`             // of an intrusion
	Took     int64  `json:"tookNanoseconds,omitempty"` // the duration of an intrusion, or of a lane's command
	Verdict  string `json:"verdict,omitempty"`         // of a proof: held, missed or unproven
}

// Who is a user, and the command that they typed.
type Who struct {
	UID     int    `json:"uid"` // before sudo
	Login   string `json:"login,omitempty"`
	Command string `json:"command"`
}

// Caller returns the user of this process, before sudo, with the command that they typed.
func Caller(command string) Who {
	w := Who{UID: os.Getuid(), Login: os.Getenv("SUDO_USER"), Command: command}
	if uid, err := strconv.Atoi(os.Getenv("SUDO_UID")); err == nil && w.Login != "" {
		w.UID = uid
	} else if w.Login = ""; w.UID == 0 {
		w.Login = "root"
	}
	return w
}

// List is what `isolane history -o json` prints.
type List struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"` // History
	Lane       string    `json:"lane,omitempty"`
	Since      time.Time `json:"since"`
	Until      time.Time `json:"until"`
	// Events are in the order of writing. If the clock was set, their times jump, and an event says so.
	Events []Event `json:"events"`
}

// Query selects events. The zero Query selects all.
type Query struct {
	Lane  string    // and events of the host as a whole; "": all
	Since time.Time // inclusive
	Until time.Time // inclusive; zero: no end
}

// DamagedError says that a store cannot be read.
type DamagedError struct {
	File, Why string
	Aside     string // where it was moved, beside a new one; "": it was not moved
}

func (e *DamagedError) Error() string {
	if e.Aside == "" {
		return fmt.Sprintf("%s is damaged: %s", e.File, e.Why)
	}
	return fmt.Sprintf("%s was damaged (%s): it is %s now, and a new one has begun", e.File, e.Why, e.Aside)
}

// Append adds events to the end of the store in dir, in this order, and drops the oldest beyond its bounds, 7
// days and 64 MiB. It waits a second for other writers. It moves a damaged store aside and begins a new one:
// then the events are written, and the error is a *DamagedError.
func Append(dir string, events ...Event) error {
	if len(events) == 0 {
		return nil
	}
	now, err := present()
	if err != nil {
		return err
	}
	return store{dir, 7 * 24 * time.Hour, 64 << 20}.append(now, events)
}

// Read returns the events that a query selects, in the order of writing; none if there is no store. It waits
// a second for writers. Errors: *DamagedError, fs.ErrPermission.
func Read(dir string, q Query) ([]Event, error) { return store{dir: dir}.read(q) }

// moment is the time of a write, by the clock that people set and by the one that nobody sets.
type moment struct {
	At     time.Time     `json:"at"`
	Uptime time.Duration `json:"uptimeNanoseconds"` // CLOCK_BOOTTIME
	Boot   string        `json:"boot"`
}

func present() (moment, error) {
	id, err := journal.BootID()
	if err != nil {
		return moment{}, err
	}
	var up unix.Timespec
	if err = unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return moment{}, err
	}
	return moment{time.Now().UTC(), time.Duration(up.Nano()), id}, nil
}

// leastClockJump is the smallest jump that counts as a set clock. Clock synchronization otherwise slews
// clocks.
const leastClockJump = 2 * time.Second

// since returns the events that the store itself adds: what has happened to the host and its clock since the
// last write. Before the first write there are none.
func (m moment) since(last moment) []Event {
	var all []Event
	jump := m.At.Sub(last.At) - (m.Uptime - last.Uptime)
	if m.Boot != last.Boot {
		jump = min(0, m.At.Sub(last.At)) // how long the host was off is unknown
		all = append(all, Event{Kind: Boot, At: m.At.Add(-m.Uptime).UTC(), What: "the host has started"})
	}
	if way := "forward"; jump.Abs() >= leastClockJump {
		if jump < 0 {
			way = "back"
		}
		all = append(all, Event{Kind: Clock, What: fmt.Sprintf("the clock was set %s by %s since the event "+
			"before, which was written at %s", way, jump.Abs().Round(time.Second), last.At.Format(time.RFC3339))})
	}
	return all
}

// private makes the directory, or checks that nobody else could have written to it.
func private(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return &fs.PathError{Op: "lstat", Path: dir, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Mode&0o077 != 0 || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s: expected a directory that is this user's alone: chmod 0700, chown", dir)
	}
	return nil
}
