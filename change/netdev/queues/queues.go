// Package queues has the kinds of step that say which CPUs handle the frames of a network device: how many
// queues it has, which CPUs send by which of them (XPS), and which receive (RPS).
package queues

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/journal"
)

// kindQueues are the queues of a device in a namespace, of a veth also those of its end on the host, and
// which CPUs send by which of them (XPS, Documentation/networking/scaling.rst). The target is
// NAMESPACE:DEVICE, the values are such as "2 of CPUs 4-5"; "CPUs 0-1 none 3", of each queue as it was found;
// or "" for one of all CPUs.
const kindQueues = "queues"

// Step is the step that gives a device its queues.
func Step(netns, device string, queues int, cpus cpuset.Set) journal.Step {
	return journal.Step{Kind: kindQueues, Target: netns + ":" + device,
		After: fmt.Sprint(queues) + ofCPUs + cpus.String()}
}

// Ops returns the operation of each kind.
func Ops() map[string]journal.Op {
	return map[string]journal.Op{kindQueues: queues{}, kindReceivers: receivers{}}
}

type queues struct{}

const (
	ofCPUs = " of CPUs "
	eachOn = "CPUs "
	nobody = "none" // chosen: the kernel spreads what is sent
)

// xpsFile is that of a device's queue, below /sys.
const xpsFile = "class/net/%s/queues/tx-%d/xps_cpus"

// senders are the CPUs of each queue. Each of a lane's has one at least, and each queue has one.
func senders(value string) ([]cpuset.Set, error) {
	if list, is := strings.CutPrefix(value, eachOn); is {
		return parseFound(list)
	}
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

// asFound is a value for queues that nobody asked for.
func asFound(all []cpuset.Set) string {
	if len(all) == 1 && all[0].IsEmpty() {
		return ""
	}
	var words []string
	for _, cpus := range all {
		words = append(words, cmp.Or(cpus.String(), nobody))
	}
	return eachOn + strings.Join(words, " ")
}

func parseFound(list string) (all []cpuset.Set, err error) {
	for _, word := range strings.Fields(list) {
		cpus, perr := cpuset.Set{}, error(nil)
		if word != nobody {
			cpus, perr = cpuset.Parse(word)
		}
		all, err = append(all, cpus), errors.Join(err, perr)
	}
	if len(all) == 0 {
		err = fmt.Errorf("%q: expected the CPUs of each queue", list)
	}
	return all, err
}

func (queues) Check(s journal.Step) error {
	netns, device, _ := strings.Cut(s.Target, ":")
	err := errors.Join(netdev.CheckName(netns), netdev.CheckDevice(device))
	if s.After != "" && err == nil {
		_, err = senders(s.After)
	}
	return err
}

// Read returns the value that the step asks for, or had, where the device has that; else what it has.
func (queues) Read(_ context.Context, s journal.Step) (string, error) {
	netns, device, _ := strings.Cut(s.Target, ":")
	h, l, err := netdev.Find(netns, device)
	if l == nil || err != nil {
		return "", err
	}
	h.Close()
	has, err := sendersOf(netns, device)
	if err != nil {
		return "", err
	}
	for _, value := range []string{s.After, s.Replaced, s.Before} {
		if want, werr := senders(value); werr == nil && slices.Equal(want, has) {
			return value, nil
		}
	}
	return asFound(has), nil
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
	h, l, err := netdev.Find(netns, device)
	if l == nil || err != nil {
		return cmp.Or(err, netdev.Missing(netns, device))
	}
	h.Close()
	if l.Type() == netdev.Veth {
		err = setPortQueues(l, len(want))
	}
	if err == nil {
		err = setQueues(netns, device, len(want))
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

// setPortQueues sets how many queues the host's end of a veth has.
func setPortQueues(l netlink.Link, n int) error {
	host, err := netdev.Open("")
	if err != nil {
		return err
	}
	defer host.Close()
	port, err := host.LinkByIndex(l.Attrs().ParentIndex)
	if err != nil {
		return fmt.Errorf("the other end of %s: %w", l.Attrs().Name, err)
	}
	return setQueues("", port.Attrs().Name, n)
}

// channels are the queues of a device (struct ethtool_channels of include/uapi/linux/ethtool.h): some drivers
// count pairs, others each way.
type channels struct{ command, mostIn, mostOut, mostOther, mostPairs, in, out, other, pairs uint32 }

func channelsOf(netns, device string) (c channels, err error) {
	c.command = unix.ETHTOOL_GCHANNELS
	return c, netdev.Ethtool(netns, device, unsafe.Pointer(&c))
}

// setQueues sets how many queues a device receives and sends by.
func setQueues(netns, device string, n int) error {
	c, err := channelsOf(netns, device)
	if err != nil {
		return err
	}
	c.command = unix.ETHTOOL_SCHANNELS
	if c.mostPairs > 0 {
		c.pairs = uint32(n)
	} else {
		c.in, c.out = uint32(n), uint32(n)
	}
	return netdev.Ethtool(netns, device, unsafe.Pointer(&c))
}

// Most is how many queues a device of a namespace, or of the host for "", can have each way; 0 where
// its driver lets nobody set that.
func Most(netns, device string) (int, error) {
	c, err := channelsOf(netns, device)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return 0, nil
	}
	return int(max(c.mostPairs, min(c.mostIn, c.mostOut))), err
}

// Possible says why this kernel gives no veth so many queues, tried in a namespace that nobody sees. It is
// nil for a user who may not try.
func Possible(n int) error {
	err := netdev.InNew(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "a"
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "b"}); err != nil {
			return err
		}
		return setQueues("", "a", n)
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

// Shell is ethtool(8), of one end.
func (queues) Shell(s journal.Step) string {
	netns, device, _ := strings.Cut(s.Target, ":")
	count, cpus, _ := strings.Cut(s.After, ofCPUs)
	if all, err := senders(s.After); err != nil || cpus == "" {
		count, cpus = fmt.Sprint(max(1, len(all))), "as they were"
	}
	return fmt.Sprintf("ip netns exec %s ethtool -L %s rx %s tx %[3]s # and of a veth's other end; its "+
		"tx-*/xps_cpus: %s", netns, device, count, cpus)
}
