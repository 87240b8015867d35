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
)

// network returns the network namespace of a running workload to which the path of its lane is to lead. It
// returns "" if the path leads there already, or needs no namespace. Errors: *TargetError.
func (l *Lanes) network(ctx context.Context, placed plan.Lane, at attached.Workload) (string, error) {
	if !netpath.Namespaced(l.o.Paths, placed.Spec.Network) {
		return "", nil
	}
	if err := l.DropEnded(ctx); err != nil { // the lane no longer uses their namespaces
		return "", err
	}
	h, err := host.Read(l.o.root)
	if err != nil {
		return "", err
	}
	has, err := l.netnsOf(h, placed, at)
	if err != nil {
		return "", &TargetError{err}
	}
	if has == "" { // systemd will start the workload in the lane's namespace, after this process
		return "", nil
	}
	inode, leads := netdev.Inode(has), l.Netns(placed.Name)
	if inode == netdev.Inode(leads) {
		return leads, nil
	}
	own, err := netdev.NamedInode(l.On(placed).Netns())
	if errors.Is(err, fs.ErrNotExist) { // left by a workload that has ended, until the next apply
		err = nil
	}
	if err != nil || inode == own {
		return "", err
	}
	ours, err := netdev.OfProcess(l.o.root, os.Getpid())
	if err != nil {
		return "", err
	}
	n, err := l.inLane(placed.Name)
	if err != nil {
		return "", err
	}
	taken, err := netdev.HasDevice(has, netpath.Device)
	const remedy = "start it in a namespace of its own without devices, as with --network none, or with " +
		"isolane run --lane"
	switch path := placed.Spec.Network.Path; {
	case err != nil:
	case inode == netdev.Inode(ours):
		err = fmt.Errorf("lane %s has spec.network.path %s, and the workload has the host's network: %s %[1]s",
			placed.Name, path, remedy)
	case leads != "" || n > 0:
		err = fmt.Errorf("lane %s has spec.network.path %s, which leads to the namespace of other processes: give "+
			"this workload a lane of its own", placed.Name, path)
	case taken:
		err = fmt.Errorf("lane %s has spec.network.path %s, and the workload has a device %s already: %s %[1]s",
			placed.Name, path, netpath.Device, remedy)
	}
	if err != nil {
		err = &TargetError{err}
	}
	return has, err
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
func (l *Lanes) netnsOf(h host.Host, placed plan.Lane, at attached.Workload) (has string, err error) {
	at, err = workload(h, l.o.root, placed.Spec, at)
	if err != nil {
		return "", err
	}
	threads, err := threadsOf(l.o.root, at)
	if err != nil {
		return "", err
	}
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
