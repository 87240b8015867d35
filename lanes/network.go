package lanes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/enforce/attached"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/runtime/running"
)

// network returns the network namespace of a running workload to which the path of its lane is to lead, and
// the tap that a virtual machine in the host's namespace is to lend to it. Both are "" if the path leads
// there already, or needs no namespace. Errors: *TargetError.
func (l *Lanes) network(ctx context.Context, placed plan.Lane, at attached.Workload) (netns, tap string,
	err error) {
	if !netpath.Namespaced(l.o.Paths, placed.Spec.Network) {
		return "", "", nil
	}
	if err = l.DropEnded(ctx); err != nil { // the lane no longer uses their namespaces
		return "", "", err
	}
	h, err := host.Read(l.o.root)
	if err != nil {
		return "", "", err
	}
	at, err = workload(h, l.o.root, placed.Spec, at)
	var threads []running.Thread
	if err == nil {
		threads, err = threadsOf(l.o.root, at)
	}
	if err == nil {
		netns, err = l.netnsOf(threads)
	}
	if err != nil {
		return "", "", &TargetError{err}
	}
	if netns == "" { // systemd will start the workload in the lane's namespace, after this process
		return "", "", nil
	}
	inode, leads := netdev.Inode(netns), l.Netns(placed.Name)
	if inode == netdev.Inode(leads) {
		return leads, "", nil
	}
	own, err := netdev.NamedInode(l.On(placed).Netns())
	if errors.Is(err, fs.ErrNotExist) { // left by a workload that has ended, until the next apply
		err = nil
	}
	if err != nil || inode == own {
		return "", "", err
	}
	ours, err := netdev.OfProcess(l.o.root, os.Getpid())
	if err != nil {
		return "", "", err
	}
	if inode == netdev.Inode(ours) && leads == "" && placed.Spec.Network.HasTap() {
		tap, err = l.lentTap(placed, at, threads)
		return "", tap, err
	}
	return netns, "", l.mayLead(placed, netns, inode == netdev.Inode(ours))
}

// mayLead returns an error unless the path of a lane may lead to a namespace. Errors: *TargetError.
func (l *Lanes) mayLead(placed plan.Lane, netns string, ours bool) error {
	n, err := l.inLane(placed.Name)
	if err != nil {
		return err
	}
	taken, err := netdev.HasDevice(netns, netpath.Device)
	const remedy = "start it in a namespace of its own without devices, as with --network none, or with " +
		"isolane run --lane"
	switch path := placed.Spec.Network.Path; {
	case err != nil:
	case ours:
		err = fmt.Errorf("lane %s has spec.network.path %s, and the workload has the host's network: %s %[1]s",
			placed.Name, path, remedy)
	case l.Netns(placed.Name) != "" || n > 0:
		err = fmt.Errorf("lane %s has spec.network.path %s, which leads to the namespace of other processes: give "+
			"this workload a lane of its own", placed.Name, path)
	case taken:
		err = fmt.Errorf("lane %s has spec.network.path %s, and the workload has a device %s already: %s %[1]s",
			placed.Name, path, netpath.Device, remedy)
	}
	if err != nil {
		return &TargetError{err}
	}
	return nil
}

// inLane returns how many processes are in the cgroup of a lane.
func (l *Lanes) inLane(name string) (n int, err error) {
	groups, err := l.Groups()
	for _, g := range groups {
		if g.Lane.Name == name {
			n = g.Processes
		}
	}
	return n, err
}

// netnsOf returns the network namespace that all processes of a workload are in. It returns "" if this
// process is the only one, as in a service before its program starts (ExecStartPre=, systemd.service(5)).
func (l *Lanes) netnsOf(threads []running.Thread) (has string, err error) {
	alone := false
	for _, t := range threads {
		if alone = alone || t.PID == os.Getpid(); t.TID != t.PID || t.PID == os.Getpid() {
			continue
		}
		of, oerr := netdev.OfProcess(l.o.root, t.PID)
		switch {
		case oerr != nil: // it has ended
		case has == "":
			has = of
		case netdev.Inode(of) != netdev.Inode(has):
			return "", fmt.Errorf("process %d has another network namespace than others of the workload: attach "+
				"them one by one, to lanes of their own", t.PID)
		}
	}
	if has == "" && !alone {
		err = errors.New("the workload has ended")
	}
	return has, err
}

// lentTap returns the name of the tap that a virtual machine in the host's namespace lends to its lane.
// Errors: *TargetError.
func (l *Lanes) lentTap(placed plan.Lane, at attached.Workload, threads []running.Thread) (string, error) {
	for _, o := range l.Attached {
		if o.Same(at) && o.Tap != "" { // it is with the lane already
			return o.Tap, nil
		}
	}
	tap, err := running.Tap(threads, l.On(placed).MAC)
	if err != nil {
		return "", &TargetError{fmt.Errorf("lane %s has spec.network.driver tap: %w", placed.Name, err)}
	}
	return tap, nil
}
