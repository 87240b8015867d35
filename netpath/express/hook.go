package express

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change/netdev"
)

// own returns Isolane's filter; nil if there is none.
func own(h *netdev.Hook) *netlink.BpfFilter { return h.Own(prefix) }

// overtaken fails if frames meet somebody else's programs before Isolane's. TCX programs (Linux 6.6) run
// before the qdisc, which a frame reaches only if each of them lets it, and it cannot be read whether they
// do.
func overtaken(h *netdev.Hook) error {
	a := h.Device.Attrs()
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

// free fails if somebody else uses the hook of a device.
func free(device string) error {
	h, err := netdev.OpenHook(device)
	if h == nil || err != nil {
		return err
	}
	defer h.Close()
	if h.Qdisc != "" && own(h) == nil {
		return fmt.Errorf("spec.network.device: %s has a qdisc %s of somebody else, where express puts its own: "+
			"tc filter show dev %[1]s ingress shows what it does; where a change was cut off: isolane recover",
			device, h.Qdisc)
	}
	if err = overtaken(h); err != nil {
		return fmt.Errorf("spec.network.device: %w", err)
	}
	return nil
}
