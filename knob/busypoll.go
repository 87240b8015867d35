package knob

import (
	"io/fs"

	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/plan"
)

// busyPollMicroseconds is how long poll, select and epoll look for data before they sleep, on kernels where
// that can be set only for the whole host (see package runtime/busypoll).
const busyPollMicroseconds = "1000"

const (
	busyPollFile = "proc/sys/net/core/busy_poll" // lets poll spin for sockets with the option, and every epoll
	busyReadFile = "proc/sys/net/core/busy_read" // gives the option to new sockets
)

// isPolling reports whether the sockets of a lane are to poll, and the kernel can.
func (v View) isPolling(l plan.Lane) bool {
	_, err := fs.Stat(v.Root, busyPollFile)
	return l.BusyPoll && err == nil
}

// busyPoll enables busy polling for a lane's epolls on kernels that cannot do so for a single epoll
// (EPIOCSPARAMS, Linux 6.9). There every epoll of the host with a device's sockets polls.
func busyPoll(v View, p plan.Placement) ([]journal.Step, error) {
	for _, l := range p.Lanes {
		if v.isPolling(l) && !v.Host.Kernel.AtLeast(6, 9) {
			return []journal.Step{fileStep("/"+busyPollFile, busyPollMicroseconds)}, nil
		}
	}
	return nil, nil
}

func busyPollFiles() []string { return []string{"/" + busyPollFile, "/" + busyReadFile} }

func busyPollDefaults(u *Unrecorded) error {
	u.resetSysctl(busyPollFile, busyPollMicroseconds, "0")
	u.resetSysctl(busyReadFile, busyPollMicroseconds, "0") // older versions set it while workloads started
	return nil
}
