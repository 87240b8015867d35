package knob

import (
	"io/fs"

	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/plan"
)

// busyPollMicroseconds is how long a socket of a busy-polling lane looks for data before it sleeps. The 50 of
// Documentation/admin-guide/sysctl/net.rst are shorter than the gaps of most traffic: each message would find
// the program asleep. The CPU is the lane's alone and has nothing better to do.
const busyPollMicroseconds = "1000"

const (
	busyPollFile = "proc/sys/net/core/busy_poll" // lets select and poll spin, for sockets with the option
	busyReadFile = "proc/sys/net/core/busy_read" // gives the option to sockets that are made from now on
)

// busyPoll allows busy polling where a lane asks for it. On its own this changes nothing: only
// sockets with SO_BUSY_POLL spin.
func busyPoll(v View, p plan.Placement) ([]journal.Step, error) {
	for _, l := range p.Lanes {
		if _, err := fs.Stat(v.Root, busyPollFile); l.BusyPoll && err == nil {
			return []journal.Step{file("/"+busyPollFile, busyPollMicroseconds)}, nil
		}
	}
	return nil, nil
}

func busyPollFiles() []string { return []string{"/" + busyPollFile, "/" + busyReadFile} }

// BusySockets returns the step that gives SO_BUSY_POLL to sockets made from now on, and the step
// that ends that. The setting is the whole host's, so it is to be in force only for the moment in
// which a lane's workload opens its sockets; those that it accepts later inherit the option.
func BusySockets(root fs.FS) (on, off []journal.Step) {
	now, err := fs.ReadFile(root, busyReadFile)
	if err != nil {
		return nil, nil // a kernel without busy polling
	}
	return []journal.Step{file("/"+busyReadFile, busyPollMicroseconds)}, []journal.Step{file("/"+busyReadFile,
		trim(now))}
}

func busyPollDefaults(u *Unrecorded) error {
	u.sysctl(busyPollFile, busyPollMicroseconds, "0")
	u.sysctl(busyReadFile, busyPollMicroseconds, "0")
	return nil
}
