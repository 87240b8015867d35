package queues

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/journal"
)

// kindReceivers sets the CPUs that handle what a device with one queue receives (RPS,
// Documentation/networking/scaling.rst). The target is NAMESPACE:DEVICE, or :DEVICE for one of the host. A
// value is a list of CPUs; with "" a frame is handled by the CPU that it arrives on.
const kindReceivers = "receivers"

// ReceiversStep returns the step that has cpus handle what a device receives.
func ReceiversStep(netns, device string, cpus cpuset.Set) journal.Step {
	return journal.Step{Kind: kindReceivers, Target: netns + ":" + device, After: cpus.String()}
}

type receivers struct{}

// rpsFile is the file of the receiving CPUs of a device's first queue, below /sys.
const rpsFile = "devices/virtual/net/%s/queues/rx-0/rps_cpus"

func (receivers) Check(s journal.Step) error {
	netns, device, is := strings.Cut(s.Target, ":")
	if !is {
		return fmt.Errorf("%q: expected NAMESPACE:DEVICE", s.Target)
	}
	err := netdev.CheckDevice(device)
	if netns != "" {
		err = errors.Join(err, netdev.CheckName(netns))
	}
	for _, value := range []string{s.Before, s.After} {
		_, perr := cpuset.Parse(value)
		err = errors.Join(err, perr)
	}
	return err
}

// at calls f with the file of a target. It does not call f if the device does not exist.
func (receivers) at(target string, f func(sys *os.Root, file string) error) error {
	netns, device, _ := strings.Cut(target, ":")
	h, l, err := netdev.Find(netns, device)
	if l == nil || err != nil {
		return err
	}
	h.Close()
	within := func(sys *os.Root) error { return f(sys, fmt.Sprintf(rpsFile, device)) }
	if netns != "" {
		return inSysfs(netns, within)
	}
	sys, err := os.OpenRoot("/sys")
	if err != nil {
		return err
	}
	defer sys.Close()
	return within(sys)
}

func (o receivers) Read(_ context.Context, s journal.Step) (value string, err error) {
	err = o.at(s.Target, func(sys *os.Root, file string) error {
		text, rerr := fs.ReadFile(sys.FS(), file)
		cpus, perr := cpuset.ParseMask(strings.TrimSpace(string(text)))
		value = cpus.String()
		return errors.Join(rerr, perr)
	})
	return value, err
}

func (o receivers) Write(_ context.Context, s journal.Step, value string) error {
	cpus, err := cpuset.Parse(value)
	if err != nil {
		return err
	}
	return o.at(s.Target, func(sys *os.Root, file string) error {
		return sys.WriteFile(file, []byte(cpus.Mask()+"\n"), 0)
	})
}

// Name says which setting the step changes.
func (receivers) Name(s journal.Step) string { return "CPUs that receive by " + s.Target }

// Shell writes to sysfs, which shows the devices of the namespace in which it was mounted.
func (receivers) Shell(s journal.Step) string {
	netns, device, _ := strings.Cut(s.Target, ":")
	cpus, _ := cpuset.Parse(s.After)
	write := fmt.Sprintf("echo %s > /sys/class/net/%s/queues/rx-0/rps_cpus", cpus.Mask(), device)
	if netns == "" {
		return write
	}
	return fmt.Sprintf("ip netns exec %s sh -c '%s'", netns, write)
}

// inSysfs calls f with the /sys of a namespace, in a mount that nobody else sees.
func inSysfs(name string, f func(sys *os.Root) error) error {
	return netdev.In(name, func() error {
		system, err := unix.Fsopen("sysfs", unix.FSOPEN_CLOEXEC)
		if err != nil {
			return fmt.Errorf("sysfs: %w", err)
		}
		defer unix.Close(system)
		if err = unix.FsconfigCreate(system); err != nil {
			return fmt.Errorf("sysfs: %w", err)
		}
		mount, err := unix.Fsmount(system, unix.FSMOUNT_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("sysfs: %w", err)
		}
		defer unix.Close(mount)
		sys, err := os.OpenRoot(fmt.Sprint("/proc/self/fd/", mount))
		if err != nil {
			return err
		}
		defer sys.Close()
		return f(sys)
	})
}
