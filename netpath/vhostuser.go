package netpath

import (
	"context"

	"isolane.dev/isolane/lane"
)

// VhostUser is how a workload speaks with a switch itself: a virtual machine, or a program in user space with
// virtio-user. It is the server of the socket, so that each of both may start anew.
type VhostUser struct {
	Socket string // the file
	MAC    string // of the workload's device
	MTU    int
}

// UserSpace is a path whose lanes may speak vhost-user. These have no network device, and need no namespace:
// their workloads keep the network that they have.
type UserSpace interface {
	// VhostUser is the lane's end; false where it has a network device.
	VhostUser(l Lane) (VhostUser, bool)
}

// Counter is a path that counts itself what lanes without a network device have received and sent.
type Counter interface {
	// Traffic is what has passed the lane's port; nil where the switch, or the card, does not say.
	Traffic(ctx context.Context, l Lane) (*Traffic, error)
}

// VhostUserOf returns the end of a lane that speaks vhost-user; false where its path is another.
func VhostUserOf(paths []Path, l Lane) (VhostUser, bool) {
	p, can := Find(paths, l.Network).(UserSpace)
	if !can {
		return VhostUser{}, false
	}
	return p.VhostUser(l)
}

// Namespaced reports whether the workload of a lane has the network of its path instead of that which it
// would have without one.
func Namespaced(paths []Path, n lane.Network) bool {
	_, speaks := VhostUserOf(paths, Lane{Network: n})
	return n.Path != "" && n.Driver != lane.VFIO && !speaks
}
