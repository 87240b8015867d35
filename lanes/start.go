package lanes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/enforce/attached"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/runtime/process"
	"isolane.dev/isolane/runtime/running"
)

// With is what a workload gets in addition to its lane.
type With struct {
	Netns        string   // network namespace; "": the lane's if it has a path, else the caller's
	Capabilities []string // in addition to those that programs usually need: "NET_ADMIN"
	Parent       int      // the process with which it is killed; 0: none
	Workload     bool     // also in the workload's cgroup, if the lane is there
	User         uint32   // without privileges and the caller's environment; 0: the caller's user
	Private      string   // directory that it sees as /tmp and /var/tmp
}

// Start starts argv in a lane that is in force; the caller waits for it. set, unless nil, may change the
// command first, such as its output. If argv cannot be executed, Entry in the new process returns the reason,
// which process.ExitCode turns into the usual exit code. If there is no such lane, Start fails with a
// *enforce.NoLaneError.
func (l *Lanes) Start(ctx context.Context, name string, argv []string, set func(*exec.Cmd)) (
	*exec.Cmd, error,
) {
	return l.start(name, With{}, set, func(in process.Lane) *exec.Cmd {
		return process.Command(ctx, Self("/proc/self/exe"), in, argv...)
	})
}

// StartDetached is like Start, but the process outlives this one, in a session of its own.
func (l *Lanes) StartDetached(name string, with With, argv []string, set func(*exec.Cmd)) (*exec.Cmd, error) {
	return l.start(name, with, set, func(in process.Lane) *exec.Cmd {
		return process.Detached(Self("/proc/self/exe"), in, argv...)
	})
}

func (l *Lanes) start(name string, with With, set func(*exec.Cmd), command func(process.Lane) *exec.Cmd) (
	*exec.Cmd, error,
) {
	in, env, err := l.Inside(name, with)
	if err != nil {
		return nil, err
	}
	has := os.Environ()
	if with.User != 0 {
		has = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/tmp",
			"LANG=C.UTF-8"}
	}
	cmd := command(in)
	cmd.Env = append(slices.Concat(has, env), entered+"=1")
	if set != nil {
		set(cmd)
	}
	return cmd, process.Start(cmd, in.Cgroup)
}

// Become replaces this process by argv in a lane that is in force, keeping the process ID. It returns only
// with an error. A process that is a service, or alone in its cgroup as in a container, is attached to the
// lane where it is. warn gets warnings for the user.
func Become(ctx context.Context, o Options, name string, with With, argv []string, warn func(string)) error {
	before := process.HoldBack()
	stays, err := stay(ctx, o, name, warn)
	if err != nil {
		return err
	}
	l, err := Look(o)
	if err != nil {
		return err
	}
	in, env, err := l.inside(name, with, stays)
	if err != nil {
		return err
	}
	before.Let()
	if ctx.Err() != nil { // a signal that came earlier may be noticed only now
		return context.Cause(ctx)
	}
	return in.Enter(argv, append(os.Environ(), env...))
}

// Inside returns the surroundings of a workload in a lane, and the environment that describes the lane.
func (l *Lanes) Inside(name string, with With) (process.Lane, []string, error) {
	return l.inside(name, with, false)
}

// inside is Inside. stays means that the workload is attached to the lane already.
func (l *Lanes) inside(name string, with With, stays bool) (process.Lane, []string, error) {
	lane, err := l.Lane(name)
	if err != nil {
		return process.Lane{}, nil, err
	}
	groups, err := l.Groups()
	if err != nil {
		return process.Lane{}, nil, err
	}
	g := groups[slices.IndexFunc(groups, func(g enforce.LaneGroup) bool { return g.Lane.Name == name })]
	in := declared(lane)
	in.Memory, in.Netns, in.Parent = g.Memory, with.Netns, with.Parent
	in.User, in.Private = with.User, with.Private
	if netpath.Namespaced(l.o.Paths, lane.Spec.Network) && in.Netns == "" {
		if l.Netns(name) != "" && !stays {
			return in, nil, &TargetError{fmt.Errorf("lane %s: its path leads to the namespace of an "+
				"attached workload: expected a lane of its own, or isolane apply when that has ended", name)}
		}
		in.Netns = l.On(lane).Netns()
	}
	in.Capabilities = append(in.Capabilities, with.Capabilities...)
	switch {
	case stays:
	case g.Own && !with.Workload:
		return in, nil, &enforce.OwnedError{Lane: name, Group: g.Dir}
	default:
		in.Cgroup = g.Dir
	}
	env, err := environment(l.o.root, lane)
	if v, is := netpath.VhostUserOf(l.o.Paths, netpath.Of(l.o.root, name, lane.Spec.Network)); is {
		env = append(env, "ISOLANE_VHOST_SOCKET="+v.Socket, "ISOLANE_MAC="+v.MAC, fmt.Sprint("ISOLANE_MTU=", v.MTU))
	}
	if n := lane.Spec.Network; n.HasTap() {
		env = append(env, "ISOLANE_TAP="+netdev.TapOf(netpath.Device),
			"ISOLANE_MAC="+netpath.Of(l.o.root, name, n).MAC)
	}
	if addresses := lane.OwnFunctions(); len(addresses) > 0 {
		var groups, macs []string
		for i, address := range addresses {
			group, gerr := fs.ReadLink(l.o.root, "sys/bus/pci/devices/"+address+"/iommu_group")
			err = errors.Join(err, gerr)
			groups = append(groups, "/dev/vfio/"+path.Base(group))
			macs = append(macs, netpath.Of(l.o.root, name, lane.Spec.Network).FunctionMAC(i))
		}
		for variable, list := range map[string][]string{"PCI": addresses, "VFIO_GROUP": groups, "MAC": macs} {
			env = append(env, "ISOLANE_"+variable+"="+strings.Join(list, ","))
		}
	}
	return in, env, err
}

// declared returns what a lane's declaration asks for its processes.
func declared(lane plan.Lane) process.Lane {
	s := lane.Spec.Scheduling
	realTime := s.Policy.IsRealTime()
	keep := process.Usual()
	if realTime {
		keep = append(keep, "SYS_NICE") // to set the priorities of its threads
	}
	return process.Lane{Policy: s.Policy, Priority: s.Priority, MemoryNodes: lane.MemoryNodes,
		Capabilities: keep, RealTime: realTime}
}

// stay attaches this process to the lane if it is alone in its cgroup or is a service, and reports whether it
// did. If it is alone and the kernel can, the lane comes to its cgroup. Else the process moves, and comes
// back when the lane is released.
func stay(ctx context.Context, o Options, name string, warn func(string)) (bool, error) {
	o = o.Complete()
	mounted, err := cgroup.Mounted(o.root)
	if err != nil || mounted.CpusetV1 != nil { // with cgroup v1 services are in another hierarchy
		return false, err
	}
	h := host.Host{Kernel: host.Kernel{Cgroup: mounted}} // nothing else of it is needed
	at := attached.Workload{Lane: name, Own: true}
	group, alone := running.OwnGroup(h, o.root, os.Getpid())
	switch {
	case alone:
		at.Group = group
	case running.InService(h, o.root, os.Getpid()):
		at.Own, at.PID = false, os.Getpid()
	default:
		return false, nil
	}
	l, _, err := OpenPatiently(ctx, o)
	if err != nil {
		return false, err
	}
	defer l.Close()
	a, err := l.attach(ctx, at)
	for _, w := range a.Warnings {
		warn(w)
	}
	return err == nil, err
}
