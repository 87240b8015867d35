package netdev

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/vishvananda/netlink"

	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/quantity"
)

// kindRate limits what a device in a namespace sends (tc-tbf(8)). The target is NAMESPACE:DEVICE; a value is
// a rate, or "" for no limit.
const kindRate = "rate"

// RateStep returns the step that limits a device to a rate. The kernel rounds it down to bytes per second.
func RateStep(netns, device string, r quantity.BitRate) journal.Step {
	return journal.Step{Kind: kindRate, Target: netns + ":" + device, After: wholeBytes(r)}
}

func wholeBytes(r quantity.BitRate) string { return (r / 8 * 8).String() }

type rate struct{}

func (rate) Check(s journal.Step) error {
	netns, device, _ := strings.Cut(s.Target, ":")
	return errors.Join(CheckName(netns), CheckDevice(device), checkRates(s))
}

func checkRates(s journal.Step) (err error) {
	for _, value := range []string{s.Before, s.After} {
		if value != "" && err == nil {
			_, err = quantity.ParseBitRate(value)
		}
	}
	return err
}

// shaped finds the device of a target, with an open handle that the caller closes, and its shaper or nil.
func shaped(target string) (*netlink.Handle, netlink.Link, *netlink.Tbf, error) {
	netns, device, _ := strings.Cut(target, ":")
	h, l, err := Find(netns, device)
	if l == nil || err != nil {
		return nil, nil, nil, err
	}
	qdiscs, err := h.QdiscList(l)
	if err != nil {
		h.Close()
		return nil, nil, nil, err
	}
	for _, q := range qdiscs {
		if t, ok := q.(*netlink.Tbf); ok && t.Parent == netlink.HANDLE_ROOT {
			return h, l, t, nil
		}
	}
	return h, l, nil, nil
}

func (rate) Read(_ context.Context, s journal.Step) (string, error) {
	h, l, t, err := shaped(s.Target)
	if l == nil || err != nil {
		return "", err
	}
	h.Close()
	if t == nil {
		return "", nil
	}
	return quantity.BitRate(8 * t.Rate).String(), nil
}

func (rate) Write(_ context.Context, s journal.Step, value string) error {
	h, l, t, err := shaped(s.Target)
	if l == nil || err != nil {
		netns, device, _ := strings.Cut(s.Target, ":")
		return cmp.Or(err, Missing(netns, device))
	}
	defer h.Close()
	if value == "" {
		if t == nil {
			return nil
		}
		return h.QdiscDel(t)
	}
	r, err := quantity.ParseBitRate(value)
	if err != nil {
		return err
	}
	return h.QdiscReplace(shaper(l, r))
}

// shaper lets a burst of one millisecond pass, at least ten packets, and queues up to 50 milliseconds.
func shaper(l netlink.Link, r quantity.BitRate) *netlink.Tbf {
	bytes := uint64(r / 8)
	burst := uint32(max(bytes/1000, 10*uint64(l.Attrs().MTU)))
	return &netlink.Tbf{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: l.Attrs().Index,
		Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		Rate: bytes, Buffer: netlink.Xmittime(bytes, burst), Limit: uint32(bytes/20) + burst}
}

// CanShape returns an error if this kernel cannot limit what a device sends. It tries that in a temporary
// namespace. Without the right to try it returns nil.
func CanShape() error {
	err := InNew(func() error {
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			err = netlink.QdiscAdd(shaper(lo, 8e6))
		}
		return err
	})
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("this kernel cannot limit what a device sends: module sch_tbf is missing: %w", err)
	}
	return nil
}

// Name says which setting the step changes.
func (rate) Name(s journal.Step) string {
	netns, device, _ := strings.Cut(s.Target, ":")
	return "rate of " + device + " in " + netns
}

// Shell returns a tc-tbf(8) command.
func (rate) Shell(s journal.Step) string {
	netns, device, _ := strings.Cut(s.Target, ":")
	if s.After == "" {
		return fmt.Sprintf("tc -n %s qdisc del dev %s root", netns, device)
	}
	return fmt.Sprintf("tc -n %s qdisc replace dev %s root handle 1: tbf rate %s # burst: 1 ms or ten packets, "+
		"queue: 50 ms", netns, device, strings.TrimSuffix(s.After, "/s"))
}
