package netpath

import (
	"context"

	"isolane.dev/isolane/lane"
)

// VhostUser says how a workload speaks with a switch directly: a virtual machine, or a user-space program
// with virtio-user. The workload is the server of the socket, so that each side may restart.
type VhostUser struct {
	Socket string // the file
	MAC    string // of the workload's device
	MTU    int
}

// UserSpace is a path whose lanes may use vhost-user. These have no network device and need no namespace:
// their workloads keep the network that they have.
type UserSpace interface {
	// VhostUser returns the lane's end; false if it has a network device.
	VhostUser(l Lane) (VhostUser, bool)
	// Lacks says what keeps the switch, as it runs, from the lane's socket, with the remedy; "" if nothing does.
	Lacks(l Lane) string
}

// Counter is a path that itself counts what lanes without a network device have received and sent.
type Counter interface {
	// Traffic returns what has passed the lane's port; nil if the switch or the card does not say.
	Traffic(ctx context.Context, l Lane) (*Traffic, error)
}

// Refuser is a path whose switch drops what a lane may not send, where the kernel does not count it.
type Refuser interface {
	// Refused returns how many frames of the lane were dropped; 0 if the switch does not say.
	Refused(ctx context.Context, l Lane) (uint64, error)
}

// VhostUserOf returns the end of a lane that uses vhost-user; false if its path is another.
func VhostUserOf(paths []Path, l Lane) (VhostUser, bool) {
	p, can := Find(paths, l.Network).(UserSpace)
	if !can {
		return VhostUser{}, false
	}
	return p.VhostUser(l)
}

// Namespaced reports whether the workload of a lane has the network of its path, instead of the one that it
// would have without.
func Namespaced(paths []Path, n lane.Network) bool {
	_, speaks := VhostUserOf(paths, Lane{Network: n})
	return n.Path != "" && n.Driver != lane.VFIO && !speaks
}
