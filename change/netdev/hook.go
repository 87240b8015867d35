package netdev

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Hook is where frames enter and leave a device of the host, if it has the qdisc clsact or ingress
// (tc-bpf(8)).
type Hook struct {
	*netlink.Handle
	Device  netlink.Link
	Qdisc   string // its kind; "": none
	Filters []netlink.Filter
}

// OpenHook opens the hook of a device, which the caller closes. It returns nil if there is no such device.
func OpenHook(device string) (*Hook, error) {
	h, l, err := Find("", device)
	if l == nil || err != nil {
		return nil, err
	}
	o, err := hookOf(h, l)
	if err != nil {
		h.Close()
		return nil, err
	}
	return o, nil
}

func hookOf(h *netlink.Handle, l netlink.Link) (*Hook, error) {
	o := &Hook{Handle: h, Device: l}
	qdiscs, err := h.QdiscList(l)
	for _, q := range qdiscs {
		if q.Attrs().Parent == netlink.HANDLE_CLSACT { // the ingress qdisc has the same parent
			o.Qdisc = q.Type()
		}
	}
	for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
		if o.Qdisc == "" || err != nil {
			break
		}
		var more []netlink.Filter
		more, err = h.FilterList(l, parent)
		o.Filters = append(o.Filters, more...)
	}
	return o, err
}

// Own returns the filter whose name begins with prefix; nil if there is none.
func (o *Hook) Own(prefix string) *netlink.BpfFilter {
	for _, f := range o.Filters {
		if b, ok := f.(*netlink.BpfFilter); ok && strings.HasPrefix(b.Name, prefix) {
			return b
		}
	}
	return nil
}

// Attach has a program handle what enters the device. It replaces an attached one between two frames.
func (o *Hook) Attach(p *ebpf.Program, name string) error {
	if o.Qdisc == "" {
		if err := o.QdiscAdd(o.clsact()); err != nil {
			return fmt.Errorf("clsact: %w", err)
		}
	}
	return o.FilterReplace(&netlink.BpfFilter{FilterAttrs: netlink.FilterAttrs{LinkIndex: o.Device.Attrs().Index,
		Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Priority: 1, Protocol: unix.ETH_P_ALL},
		Fd: p.FD(), Name: name, DirectAction: true})
}

// Detach removes a filter, if it is not nil, and the qdisc unless others have filters there.
func (o *Hook) Detach(f *netlink.BpfFilter) error {
	switch {
	case o.Qdisc == "" || f == nil && len(o.Filters) > 0:
		return nil
	case len(o.Filters) > 1: // somebody has added one
		return o.FilterDel(f)
	}
	return o.QdiscDel(o.clsact())
}

func (o *Hook) clsact() netlink.Qdisc {
	return &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: o.Device.Attrs().Index,
		Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
}
