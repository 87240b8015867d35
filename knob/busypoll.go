package knob

import (
	"io/fs"

	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/plan"
)

// busyPollMicroseconds is how long poll, select and epoll look for data before they sleep, where the kernel
// knows no other way than to let those of the whole host do so (see package runtime/busypoll).
const busyPollMicroseconds = "1000"

const (
	busyPollFile = "proc/sys/net/core/busy_poll" // lets poll spin for sockets with the option, and each epoll
	busyReadFile = "proc/sys/net/core/busy_read" // gives the option to sockets that are made from now on
)

// polls says whether the sockets of a lane are to poll, on a kernel that can.
func (v View) polls(l plan.Lane) bool {
	_, err := fs.Stat(v.Root, busyPollFile)
	return l.BusyPoll && err == nil
}

// busyPoll allows busy polling to a lane's epolls on kernels where that cannot be said of one alone
// (EPIOCSPARAMS, Linux 6.9): every epoll of the host with sockets of a device polls then, whatever they ask.
func busyPoll(v View, p plan.Placement) ([]journal.Step, error) {
	for _, l := range p.Lanes {
		if v.polls(l) && !v.Host.Kernel.AtLeast(6, 9) {
			return []journal.Step{file("/"+busyPollFile, busyPollMicroseconds)}, nil
		}
	}
	return nil, nil
}

func busyPollFiles() []string { return []string{"/" + busyPollFile, "/" + busyReadFile} }

func busyPollDefaults(u *Unrecorded) error {
	u.resetSysctl(busyPollFile, busyPollMicroseconds, "0")
	u.resetSysctl(busyReadFile, busyPollMicroseconds, "0") // of versions that set it while workloads began
	return nil
}
