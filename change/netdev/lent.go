package netdev

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/journal"
)

// kindLent moves the tap of a virtual machine that runs in the host's namespace, as libvirt starts it, to the
// namespace of a lane, in place of the lane's own tap (kindTap). The machine keeps it open. The target is
// NAMESPACE:DEVICE:TAP, with the tap's name on the host; a value is Present, or "mtu N" of a tap that is on
// the host.
const kindLent = "lent-tap"

// LentStep returns the step that gives a device in a namespace the tap of a running virtual machine.
func LentStep(netns, device, tap string) journal.Step {
	return journal.Step{Kind: kindLent, Target: netns + ":" + device + ":" + tap, After: Present}
}

type lent struct{}

// halfway is the value of a tap that a crash has left on its way.
const halfway = "a tap on its way"

// lentParts returns the parts of a target.
func lentParts(s journal.Step) (own journal.Step, netns, name string) {
	at := strings.LastIndexByte(s.Target, ':')
	netns, device, _ := strings.Cut(s.Target[:max(at, 0)], ":")
	return TapStep(netns, device), netns, s.Target[at+1:]
}

func (lent) Check(s journal.Step) error {
	own, _, name := lentParts(s)
	return errors.Join(tap{}.Check(own), CheckDevice(name)) // a value that is no MTU changes none
}

// lentAlias is the alias of a tap that was moved (ip-link(8)): it says what its name on the host was.
func lentAlias(name string) string { return name + " of a virtual machine on the host" }

// find returns the tap of a target, and a handle of the namespace that it is in, which the caller closes. It
// fails with fs.ErrNotExist if the tap is nowhere: the machine has ended.
func (lent) find(s journal.Step) (h *netlink.Handle, l netlink.Link, value string, err error) {
	own, netns, name := lentParts(s)
	for _, try := range []struct{ netns, name, value string }{
		{netns, own.After, Present}, {netns, name, halfway}, {"", name, ""},
	} {
		h, l, err = Find(try.netns, try.name)
		if err != nil {
			return nil, nil, "", err
		}
		if l == nil {
			continue
		}
		moved, value := l.Attrs().Alias == lentAlias(name), try.value
		switch {
		case try.netns == "" && moved:
			value = halfway
		case try.netns == "":
			value, moved = fmt.Sprint("mtu ", l.Attrs().MTU), true
		}
		if moved {
			return h, l, value, nil
		}
		h.Close()
	}
	return nil, nil, "", Missing(netns, own.After)
}

func (o lent) Read(_ context.Context, s journal.Step) (string, error) {
	h, _, value, err := o.find(s)
	if err == nil {
		h.Close()
	}
	return value, err
}

// Ends says that the tap goes with its machine.
func (lent) Ends(journal.Step) bool { return true }

// MayOverwrite reports whether a crash has left the tap on its way.
func (lent) MayOverwrite(_ journal.Step, now string) bool { return now == halfway }

func (o lent) Write(ctx context.Context, s journal.Step, value string) error {
	h, l, _, err := o.find(s)
	if err != nil {
		return err
	}
	defer h.Close()
	if value == Present {
		return o.lend(ctx, s, h, l)
	}
	return o.giveBack(ctx, s, h, l, value)
}

// lend moves a tap to the lane, whose own one goes.
func (o lent) lend(ctx context.Context, s journal.Step, h *netlink.Handle, l netlink.Link) error {
	own, netns, name := lentParts(s)
	lane, err := Open(netns)
	if err != nil {
		return err
	}
	defer lane.Close()
	has, err := lane.LinkByName(own.After)
	if err != nil && !errors.As(err, &netlink.LinkNotFoundError{}) {
		return err
	}
	if err == nil && has.Attrs().Alias != lentAlias(name) {
		if has.Attrs().RawFlags&unix.IFF_LOWER_UP != 0 { // a process has it open (tun(4))
			return fmt.Errorf("device %s in %s: another virtual machine has it: expected a lane of its own for each",
				own.After, netns)
		}
		if err = (tap{}).Write(ctx, own, ""); err != nil {
			return err
		}
	}
	if err = h.LinkSetAlias(l, lentAlias(name)); err == nil {
		err = h.LinkSetDown(l)
	}
	if err == nil {
		err = MoveTo(h, l, netns) // no change if it is there
	}
	if err == nil && l.Attrs().Name != own.After {
		if l, err = lane.LinkByName(name); err == nil { // its number may be another one there
			err = lane.LinkSetName(l, own.After)
		}
	}
	if err == nil {
		err = lane.LinkSetIP6AddrGenMode(l, noIPv6Address)
	}
	if err == nil {
		err = lane.LinkSetGroup(l, int(mark(own.Target))) // as if it were the lane's own
	}
	if err != nil {
		return err
	}
	return tap{}.Write(ctx, own, own.After)
}

// giveBack moves a tap back to the host, up and with its MTU of before, and makes the lane's own anew.
func (o lent) giveBack(ctx context.Context, s journal.Step, h *netlink.Handle, l netlink.Link,
	value string) error {
	own, netns, name := lentParts(s)
	mtu, err := strconv.Atoi(strings.TrimPrefix(value, "mtu "))
	if err != nil { // it was on its way when the step began: its MTU of before is not known
		mtu = l.Attrs().MTU
	}
	if err = h.LinkSetDown(l); err == nil && l.Attrs().Name != name {
		err = h.LinkSetName(l, name)
	}
	if err == nil {
		err = MoveTo(h, l, "")
	}
	if err != nil {
		return err
	}
	host, l, err := existing(name)
	if err != nil {
		return err
	}
	defer host.Close()
	if err = host.LinkSetMTU(l, mtu); err == nil {
		err = host.LinkSetGroup(l, 0)
	}
	if err == nil {
		err = host.LinkSetUp(l)
	}
	if err == nil {
		err = host.LinkSetAlias(l, "") // last: this says that it is back
	}
	_, device, _ := strings.Cut(own.Target, ":")
	lane, has, ferr := Find(netns, device)
	if err = errors.Join(err, ferr); err != nil || has == nil { // the lane may have gone
		return err
	}
	lane.Close()
	return tap{}.Write(ctx, own, own.After)
}

// Name says which device it is.
func (lent) Name(s journal.Step) string {
	_, netns, name := lentParts(s)
	return "device " + name + " of a virtual machine, to " + netns
}

// Shell returns ip-link(8) commands.
func (lent) Shell(s journal.Step) string {
	own, netns, name := lentParts(s)
	if s.After != Present {
		return fmt.Sprintf("ip -n %s link set %s netns 1 name %s", netns, own.After, name)
	}
	return fmt.Sprintf("ip -n %s link del %s; ip link set %s netns %[1]s name %[2]s", netns, own.After, name)
}
