package express

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change/netdev"
)

// hook is where frames enter and leave a device of the host, if it has the qdisc clsact or ingress.
type hook struct {
	*netlink.Handle
	device  netlink.Link
	qdisc   string // its kind; "": none
	filters []netlink.Filter
}

// openHook finds that of a device, which the caller closes; nil: there is no such device.
func openHook(device string) (*hook, error) {
	h, l, err := netdev.Find("", device)
	if l == nil || err != nil {
		return nil, err
	}
	o := &hook{Handle: h, device: l}
	qdiscs, err := h.QdiscList(l)
	for _, q := range qdiscs {
		if q.Attrs().Parent == netlink.HANDLE_CLSACT { // the ingress qdisc has the same
			o.qdisc = q.Type()
		}
	}
	for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
		if o.qdisc == "" || err != nil {
			break
		}
		var more []netlink.Filter
		more, err = h.FilterList(l, parent)
		o.filters = append(o.filters, more...)
	}
	if err != nil {
		h.Close()
		return nil, err
	}
	return o, nil
}

func (o *hook) clsact() netlink.Qdisc {
	return &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: o.device.Attrs().Index,
		Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
}

// own is our filter; nil: there is none.
func (o *hook) own() *netlink.BpfFilter {
	for _, f := range o.filters {
		if b, ok := f.(*netlink.BpfFilter); ok && strings.HasPrefix(b.Name, prefix) {
			return b
		}
	}
	return nil
}

// overtaken fails where frames meet programs of somebody else's before ours: those by TCX (Linux 6.6) come
// before the qdisc, which a frame reaches only if each of them says so. What they say nobody can ask them.
func (o *hook) overtaken() error {
	a := o.device.Attrs()
	found, err := link.QueryPrograms(link.QueryOptions{Target: a.Index, Attach: ebpf.AttachTCXIngress})
	switch {
	case errors.Is(err, unix.EINVAL) || errors.Is(err, link.ErrNotSupported): // there is no TCX
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", a.Name, err)
	case len(found.Programs) > 0:
		return fmt.Errorf("%s has an eBPF program of somebody else (TCX), by which frames may not come to that of "+
			"express: bpftool net show dev %[1]s shows it; expected none, or path macvlan or bridge-gro", a.Name)
	}
	return nil
}

// free fails where somebody else has taken the hook of a device.
func free(device string) error {
	h, err := openHook(device)
	if h == nil || err != nil {
		return err
	}
	defer h.Close()
	if h.qdisc != "" && h.own() == nil {
		return fmt.Errorf("spec.network.device: %s has a qdisc %s of somebody else, where express puts its own: "+
			"tc filter show dev %[1]s ingress shows what it does; where a change was cut off: isolane recover",
			device, h.qdisc)
	}
	if err = h.overtaken(); err != nil {
		return fmt.Errorf("spec.network.device: %w", err)
	}
	return nil
}
