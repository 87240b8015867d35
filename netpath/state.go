package netpath

import (
	"net"
	"strings"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change/netdev"
)

// Why no frames pass an uplink.
const (
	Gone      = "gone"
	Down      = "down"
	NoCarrier = "no carrier" // no cable, or nobody at its other end
)

// Bypasser is a path whose uplink may be a card that a switch in user space drives: the kernel does not see
// it.
type Bypasser interface{ Bypasses() bool }

// Owner is a path whose switch has devices that are no cards, such as those of its bridges.
type Owner interface {
	// Owns says what of the switch a device is; "" if it is none.
	Owns(device string) string
}

// owners says what of a switch a device is, and which paths lead through that; "" if all may.
func owners(paths []Path, device string) (what string, through []string) {
	for _, p := range paths {
		o, is := p.(Owner)
		if !is || device == "" {
			continue
		}
		if is := o.Owns(device); is != "" {
			what, through = is, append(through, p.Name())
		}
	}
	return what, through
}

// UplinkState says why no frames pass a lane's uplink; "" if they may, or the kernel does not know. The ports
// of an Open vSwitch bridge carry frames whatever the state of its own device.
func UplinkState(paths []Path, l Lane) (string, error) {
	if l.Path == "" || l.Device == "" || strings.Contains(l.Device, ":") { // a PCI address
		return "", nil
	}
	p := Find(paths, l.Network)
	h, link, err := netdev.Find("", l.Device)
	if b, is := p.(Bypasser); err != nil || link == nil && is && b.Bypasses() {
		return "", err
	}
	if link == nil {
		return Gone, nil
	}
	defer h.Close()
	a, t := link.Attrs(), link.Type()
	switch _, bySwitch := p.(Tagger); { // it may be such a bridge, of whatever data path
	case bySwitch && (t == "openvswitch" || t == "tuntap"):
		return "", nil
	case a.Flags&net.FlagUp == 0:
		return Down, nil
	case a.RawFlags&unix.IFF_LOWER_UP == 0:
		return NoCarrier, nil
	}
	return "", nil
}

// Remedy says what to do about a state; "" if nothing on this host helps.
func Remedy(state, device string) string {
	const cut = "lanes on it are cut off: "
	return map[string]string{Gone: cut + "isolane apply when it is back, or isolane release",
		Down: cut + "ip link set " + device + " up"}[state]
}
