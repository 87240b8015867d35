package netdev

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/journal"
)

// KindReceivers are the CPUs that handle what comes in by a device of one queue (RPS,
// Documentation/networking/scaling.rst). The target is NAMESPACE:DEVICE, or :DEVICE of the host; the values
// are lists of CPUs, "" leaves it to the CPU that the frames come to.
const KindReceivers = "receivers"

// ReceiversStep is the step that has CPUs handle what comes in by a device.
func ReceiversStep(netns, device string, cpus cpuset.Set) journal.Step {
	return journal.Step{Kind: KindReceivers, Target: netns + ":" + device, After: cpus.String()}
}

type receivers struct{}

// rpsFile is that of a device's first queue, below /sys.
const rpsFile = "devices/virtual/net/%s/queues/rx-0/rps_cpus"

func (receivers) Check(s journal.Step) error {
	netns, device, is := strings.Cut(s.Target, ":")
	if !is {
		return fmt.Errorf("%q: expected NAMESPACE:DEVICE", s.Target)
	}
	err := CheckDevice(device)
	if netns != "" {
		err = errors.Join(err, CheckName(netns))
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
	h, l, err := Find(netns, device)
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
