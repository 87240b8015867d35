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

// kindReceivers are the CPUs that handle what comes in by a device of one queue (RPS,
// Documentation/networking/scaling.rst). The target is NAMESPACE:DEVICE, or :DEVICE of the host; the values
// are lists of CPUs, "" leaves it to the CPU that the frames come to.
const kindReceivers = "receivers"

// ReceiversStep is the step that has CPUs handle what comes in by a device.
func ReceiversStep(netns, device string, cpus cpuset.Set) journal.Step {
	return journal.Step{Kind: kindReceivers, Target: netns + ":" + device, After: cpus.String()}
}

type receivers struct{}

// rpsFile is that of a device's first queue, below /sys.
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

// at calls f with the file of a target; without the device it is not called.
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

// Name says what is set.
func (receivers) Name(s journal.Step) string { return "CPUs that receive by " + s.Target }

// Shell is a write to sysfs, which shows the devices of the namespace that has mounted it.
func (receivers) Shell(s journal.Step) string {
	netns, device, _ := strings.Cut(s.Target, ":")
	cpus, _ := cpuset.Parse(s.After)
	write := fmt.Sprintf("echo %s > /sys/class/net/%s/queues/rx-0/rps_cpus", cpus.Mask(), device)
	if netns == "" {
		return write
	}
	return fmt.Sprintf("ip netns exec %s sh -c '%s'", netns, write)
}

// inSysfs calls f with /sys as it is inside the namespace, which nobody else sees.
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
