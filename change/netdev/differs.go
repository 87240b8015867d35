package netdev

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// differs says how a device of Isolane's differs from what it was made as; "" if it does not.
func (l Link) differs(target string) (string, error) {
	var what []string
	if !l.inside() {
		h, port, err := Find("", target)
		if err != nil || port == nil {
			return "none", err
		}
		defer h.Close()
		if port.Attrs().Flags&net.FlagUp == 0 {
			what = append(what, target+" is down")
		}
		if l.Master != "" {
			m, merr := h.LinkByName(l.Master)
			switch {
			case merr != nil || port.Attrs().MasterIndex != m.Attrs().Index:
				what = append(what, target+" is no port of "+l.Master)
			case m.Attrs().Flags&net.FlagUp == 0:
				what = append(what, l.Master+" is down")
			case port.Attrs().RawFlags&unix.IFF_RUNNING != 0 && !forwards(target):
				what = append(what, l.Master+" does not let "+target+" forward")
			}
		}
	}
	for _, p := range []*Peer{l.Peer, l.Far} {
		if p == nil {
			continue
		}
		more, err := p.Differs()
		if err != nil {
			return "", err
		}
		what = append(what, more...)
	}
	return strings.Join(what, ", "), nil
}

// Differs says how the device in the namespace differs from what Configure sets.
func (p Peer) Differs() (what []string, err error) {
	if p.Netns == "" {
		return p.differs()
	}
	err = In(p.Netns, func() (err error) {
		what, err = p.differs()
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return p.missing(), nil
	}
	return what, err
}

func (p Peer) missing() []string { return []string{"no " + p.Name + " in " + p.Netns} }

// differs is Differs for a thread in the namespace.
func (p Peer) differs() (what []string, err error) {
	h, l, err := Find("", p.Name)
	if err != nil || l == nil {
		return p.missing(), err
	}
	defer h.Close()
	a := l.Attrs()
	if a.Flags&net.FlagUp == 0 {
		what = append(what, p.Name+" is down")
	}
	if p.Bare && a.RawFlags&unix.IFF_ALLMULTI == 0 {
		what = append(what, p.Name+" does not receive all multicast frames")
	}
	if a.HardwareAddr.String() != p.MAC {
		what = append(what, "address "+a.HardwareAddr.String())
	}
	if p.MTU > 0 && a.MTU != p.MTU {
		what = append(what, fmt.Sprint("mtu ", a.MTU))
	}
	if len(p.Addresses) > 0 {
		found, aerr := h.AddrList(l, unix.AF_UNSPEC)
		if aerr != nil {
			return nil, aerr
		}
		if p.declares() {
			what = append(what, p.advertised(found)...)
		}
		for _, want := range p.Addresses {
			if !slices.ContainsFunc(found, func(f netlink.Addr) bool { return f.IPNet.String() == want.String() }) {
				what = append(what, "no address "+want.String())
			}
		}
	}
	if len(p.Gateways) == 0 {
		return what, nil
	}
	routes, err := h.RouteList(l, unix.AF_UNSPEC)
	if err != nil {
		return nil, err
	}
	for _, want := range p.Gateways {
		if !slices.ContainsFunc(routes, func(r netlink.Route) bool { return r.Gw.String() == want.String() }) {
			what = append(what, "no route via "+want.String())
		}
	}
	return what, nil
}
