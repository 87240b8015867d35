package netdev

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/journal"
)

// KindQueues are the queues of a veth in a namespace and of its end on the host, and which CPUs send by which
// of the former (XPS, Documentation/networking/scaling.rst). The target is NAMESPACE:DEVICE, the values are
// such as "2 of CPUs 4-5", or "" for one of all CPUs.
const KindQueues = "queues"

// QueuesStep is the step that gives a device its queues.
func QueuesStep(netns, device string, queues int, cpus cpuset.Set) journal.Step {
	return journal.Step{Kind: KindQueues, Target: netns + ":" + device,
		After: fmt.Sprint(queues) + ofCPUs + cpus.String()}
}

type queues struct{}

const ofCPUs = " of CPUs "

// xpsFile is that of a device's queue, below /sys.
const xpsFile = "devices/virtual/net/%s/queues/tx-%d/xps_cpus"

// senders are the CPUs of each queue: each of the lane's has one at least, and each queue one.
func senders(value string) ([]cpuset.Set, error) {
	count, list, _ := strings.Cut(value, ofCPUs)
	n, err := strconv.Atoi(count)
	cpus, perr := cpuset.Parse(list)
	if err != nil || perr != nil || n < 1 || cpus.IsEmpty() {
		return nil, fmt.Errorf("%q: expected a number of queues and CPUs, such as 2%s4-5", value, ofCPUs)
	}
	all, each := make([]cpuset.Set, n), cpus.Slice()
	for i := range max(n, len(each)) {
		all[i%n] = all[i%n].Union(cpuset.Of(each[i%len(each)]))
	}
	return all, nil
}

func (queues) Check(s journal.Step) error {
	netns, device, _ := strings.Cut(s.Target, ":")
	err := errors.Join(CheckName(netns), CheckDevice(device))
	if s.After != "" && err == nil {
		_, err = senders(s.After)
	}
	return err
}

// Read returns the value that the step asks for, or had, where the device has that; else what it has.
func (queues) Read(_ context.Context, s journal.Step) (string, error) {
	netns, device, _ := strings.Cut(s.Target, ":")
	h, l, err := Find(netns, device)
	if l == nil || err != nil {
		return "", err
	}
	h.Close()
	found, err := sendersOf(netns, device)
	if err != nil {
		return "", err
	}
	for _, value := range []string{s.After, s.Replaced, s.Before} {
		if want, werr := senders(value); werr == nil && fmt.Sprint(want) == fmt.Sprint(found) {
			return value, nil
		}
	}
	if len(found) == 1 && found[0].IsEmpty() {
		return "", nil
	}
	return fmt.Sprint(len(found), ", each of CPUs ", found), nil
}

func (queues) Write(_ context.Context, s journal.Step, value string) error {
	netns, device, _ := strings.Cut(s.Target, ":")
	want := []cpuset.Set{{}}
	if value != "" {
		var err error
		if want, err = senders(value); err != nil {
			return err
		}
	}
	h, l, err := Find(netns, device)
	if l == nil || err != nil {
		return errors.Join(err, fs.ErrNotExist)
	}
	h.Close()
	host, err := Open("")
	if err != nil {
		return err
	}
	defer host.Close()
	port, err := host.LinkByIndex(l.Attrs().ParentIndex)
	if err != nil {
		return fmt.Errorf("the other end of %s: %w", s.Target, err)
	}
	err = setChannels("", port.Attrs().Name, len(want))
	if err == nil {
		err = setChannels(netns, device, len(want))
	}
	if err != nil {
		return fmt.Errorf("%d queues: %w", len(want), err)
	}
	return inSysfs(netns, func(sys *os.Root) error {
		for i, cpus := range want {
			mask := fmt.Sprintf(xpsFile, device, i)
			if err := sys.WriteFile(mask, []byte(cpus.Mask()+"\n"), 0); err != nil {
				return err
			}
		}
		return nil
	})
}

// sendersOf are those that a device has: with one queue that nobody has set, no CPUs.
func sendersOf(netns, device string) (all []cpuset.Set, err error) {
	err = inSysfs(netns, func(sys *os.Root) error {
		for i := 0; ; i++ {
			text, rerr := fs.ReadFile(sys.FS(), fmt.Sprintf(xpsFile, device, i))
			if errors.Is(rerr, fs.ErrNotExist) && i > 0 {
				return nil
			}
			cpus, perr := cpuset.ParseMask(strings.TrimSpace(string(text)))
			if uerr := errors.Join(rerr, perr); uerr != nil && !errors.Is(uerr, unix.ENOENT) {
				return uerr
			}
			all = append(all, cpus)
		}
	})
	return all, err
}

// setChannels sets how many queues a device receives and sends by (ETHTOOL_SCHANNELS).
func setChannels(netns, device string, n int) error {
	const set = 0x3d
	c := struct{ command, maxRx, maxTx, maxOther, maxBoth, rx, tx, other, both uint32 }{
		command: set, rx: uint32(n), tx: uint32(n)}
	return ethtool(netns, device, unsafe.Pointer(&c))
}

// CanQueue says why this kernel gives no veth so many queues, tried in a namespace that nobody sees. It is
// nil for a user who may not try.
func CanQueue(n int) error {
	err := inThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		return withLoopback(func(h *netlink.Handle, _ netlink.Link) error {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = "a"
			if err := h.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "b"}); err != nil {
				return err
			}
			return setChannels("", "a", n)
		})
	})
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil
	case errors.Is(err, unix.EINVAL):
		return errors.New("more than this machine's CPUs, which is what a veth can have")
	case err != nil:
		return fmt.Errorf("this kernel sets no queues of a veth, expected 5.15 or later: %w", err)
	}
	return nil
}

// Name says what is set.
func (queues) Name(s journal.Step) string {
	netns, device, _ := strings.Cut(s.Target, ":")
	return "queues of " + device + " in " + netns
}

// Shell is ethtool(8), of one of both ends.
func (queues) Shell(s journal.Step) string {
	netns, device, _ := strings.Cut(s.Target, ":")
	count, cpus, _ := strings.Cut(s.After, ofCPUs)
	if s.After == "" {
		count, cpus = "1", "all"
	}
	return fmt.Sprintf("ip netns exec %s ethtool -L %s rx %s tx %[3]s # the host's end too; its tx-*/xps_cpus: "+
		"%s", netns, device, count, cpus)
}
