// Package queues has the kinds of step that set which CPUs handle the frames of a network device: how many
// queues it has, which CPUs send by which queue (XPS), and which CPUs receive (RPS).
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

// kindQueues sets the queues of a device in a namespace (for a veth also those of its host end), and which
// CPUs send by which queue (XPS, Documentation/networking/scaling.rst). The target is NAMESPACE:DEVICE. A
// value is "2 of CPUs 4-5" for a lane; "CPUs 0-1 none 3" for queues as they were found, one entry a queue; or
// "" for one queue that all CPUs send by.
const kindQueues = "queues"

// Step returns the step that gives a device a number of queues, by which cpus send.
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
	nobody = "none" // deliberately: the kernel spreads what is sent
)

// xpsFile is the file of a queue's sending CPUs, below /sys.
const xpsFile = "class/net/%s/queues/tx-%d/xps_cpus"

// senders returns the CPUs of each queue of a value. In a lane each CPU has a queue and each queue a CPU.
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

// asFound returns the value for queues that Isolane did not set.
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

// Read returns After, Replaced or Before if the device has the queues of that value, else what it has.
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

// sendersOf returns the sending CPUs of each queue of a device: none for a single queue that nobody has set.
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

// channels is struct ethtool_channels of include/uapi/linux/ethtool.h, the queues of a device. Some drivers
// count pairs, others each direction.
type channels struct{ command, mostIn, mostOut, mostOther, mostPairs, in, out, other, pairs uint32 }

func channelsOf(netns, device string) (c channels, err error) {
	c.command = unix.ETHTOOL_GCHANNELS
	return c, netdev.Ethtool(netns, device, unsafe.Pointer(&c))
}

// setQueues sets how many queues a device has in each direction.
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

// Most returns how many queues a device can have in each direction; 0 if its driver lets nobody set that.
// With netns "" the device is the host's.
func Most(netns, device string) (int, error) {
	c, err := channelsOf(netns, device)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return 0, nil
	}
	return int(max(c.mostPairs, min(c.mostIn, c.mostOut))), err
}

// Possible returns an error if this kernel cannot give a veth so many queues. It tries that in a temporary
// namespace. Without the right to try it returns nil.
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

// Name says which setting the step changes.
func (queues) Name(s journal.Step) string {
	netns, device, _ := strings.Cut(s.Target, ":")
	return "queues of " + device + " in " + netns
}

// Shell returns an ethtool(8) command for one end.
func (queues) Shell(s journal.Step) string {
	netns, device, _ := strings.Cut(s.Target, ":")
	count, cpus, _ := strings.Cut(s.After, ofCPUs)
	if all, err := senders(s.After); err != nil || cpus == "" {
		count, cpus = fmt.Sprint(max(1, len(all))), "as they were"
	}
	return fmt.Sprintf("ip netns exec %s ethtool -L %s rx %s tx %[3]s # and of a veth's other end; its "+
		"tx-*/xps_cpus: %s", netns, device, count, cpus)
}
