package netpath

import (
	"net"
	"strings"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change/netdev"
)

// Why no frames come or go by an uplink.
const (
	Gone      = "gone"
	Down      = "down"
	NoCarrier = "no carrier" // no cable, or nobody at its other end
)

// Bypasser is a path whose uplink may be a card that a switch in user space drives, which the kernel does not
// see.
type Bypasser interface{ Bypasses() bool }

// UplinkState says why no frames come or go by a lane's uplink, "" where they may, and where the kernel does
// not know. Ports of a bridge of Open vSwitch carry them whatever its own device is.
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
	switch _, bySwitch := p.(Tagger); { // it may be such a bridge, of the kernel's data path or of another
	case bySwitch && (t == "openvswitch" || t == "tuntap"):
		return "", nil
	case a.Flags&net.FlagUp == 0:
		return Down, nil
	case a.RawFlags&unix.IFF_LOWER_UP == 0:
		return NoCarrier, nil
	}
	return "", nil
}

// Remedy returns what is to be done about a state; "" where that is nothing of the host.
func Remedy(state, device string) string {
	const cut = "lanes on it are cut off: "
	return map[string]string{Gone: cut + "isolane apply when it is back, or isolane release",
		Down: cut + "ip link set " + device + " up"}[state]
}
