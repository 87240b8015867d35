package frames

import (
	"fmt"
	"net"
	"net/netip"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The values of Probe.Socket.
const (
	auto    = "auto"   // AF_XDP if the kernel and the device support it, else AF_PACKET
	xdp     = "xdp"    // AF_XDP
	packets = "packet" // AF_PACKET
)

// batch is how many frames are handed over at once.
const batch = 32

// bufferSize is the size of a frame's buffer: half a page, of which XDP reserves 256 bytes.
const bufferSize = 2048

// port sends and receives the frames of one UDP port at a device, past the kernel's network stack.
type port interface {
	// buffer returns room for the next frame to send; nil: there is none now.
	buffer() []byte
	// push queues the frame of n bytes in that buffer.
	push(n int)
	// flush hands pushed frames to the kernel. The next flush hands over those that the kernel does not accept
	// yet.
	flush() error
	// pull passes frames that have arrived to take, at most a batch, without waiting. They are valid only within
	// take.
	pull(take func([]byte)) (int, error)
	// drops returns how many frames have arrived for which the socket had no room, since it was opened.
	drops() (uint64, error)
	descriptor() int
	close()
}

// opened is an open port with either kind of socket.
type opened struct {
	port
	how    string // by which socket, and why not by a better one
	beside port   // replaces port if frames bypass it; nil once that is known
}

// open opens a port. If the choice is left open, a packet socket stands beside AF_XDP: the kernel skips XDP
// for frames that a program has redirected to a device (skb_is_redirected), as path express does with frames
// for its uplink.
func open(l local, socket string) (p *opened, err error) {
	p = &opened{}
	if socket != packets {
		if p.port, err = openXDP(l); err == nil {
			p.how = "AF_XDP (generic mode, copied)"
			if socket == auto {
				if p.beside, err = openPacket(l); err != nil {
					p.port.close()
				}
			}
			return p, err
		}
		if socket == xdp {
			return p, err
		}
	}
	p.how = "AF_PACKET"
	if err != nil {
		p.how += ", as " + err.Error()
	}
	p.port, err = openPacket(l)
	return p, err
}

// pull takes frames that have arrived from whichever socket the first ones reach.
func (p *opened) pull(take func([]byte)) (int, error) {
	n, err := p.port.pull(take)
	if p.beside == nil || err != nil {
		return n, err
	}
	if n > 0 {
		p.beside.close()
		p.beside = nil
		return n, nil
	}
	if n, err = p.beside.pull(take); n == 0 || err != nil {
		return n, err
	}
	err = p.flush() // what take has pushed
	p.port.close()
	p.port, p.beside, p.how = p.beside, nil, "AF_PACKET, as frames pass AF_XDP by"
	return n, err
}

func (p *opened) close() {
	p.port.close()
	if p.beside != nil {
		p.beside.close()
	}
}

// local is a UDP port at a device, reserved by a socket that receives nothing. The kernel's stack drops the
// frames for this port that reach it, and sends no ICMP.
type local struct {
	device *netlink.LinkAttrs
	at     netip.AddrPort
	socket int
}

func (l local) close() { _ = unix.Close(l.socket) }

// reserve reserves a port at an address of this device; port 0: any free one.
func reserve(device netlink.Link, at netip.AddrPort) (l local, err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return l, fmt.Errorf("UDP socket: %w", err)
	}
	l = local{device.Attrs(), at, fd}
	nothing := [...]unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(nothing)), Filter: &nothing[0]})
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()})
	}
	var bound unix.Sockaddr
	if err == nil {
		bound, err = unix.Getsockname(fd)
	}
	if err != nil {
		l.close()
		return l, fmt.Errorf("UDP %s: %w", at, err)
	}
	if b, ok := bound.(*unix.SockaddrInet4); ok {
		l.at = netip.AddrPortFrom(at.Addr(), uint16(b.Port))
	}
	return l, nil
}

// deviceOf returns the device that has an address.
func deviceOf(a netip.Addr) (netlink.Link, error) {
	all, err := netlink.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return nil, fmt.Errorf("addresses of devices: %w", err)
	}
	for _, have := range all {
		if ip, ok := netip.AddrFromSlice(have.IP.To4()); ok && ip == a {
			return netlink.LinkByIndex(have.LinkIndex)
		}
	}
	return nil, fmt.Errorf("address %s: expected one that a device here has", a)
}

// dropped returns how many frames, of anybody, a device could not receive or send.
func dropped(index int) (in, out uint64, err error) {
	d, err := netlink.LinkByIndex(index)
	if err != nil {
		return 0, 0, err
	}
	s := d.Attrs().Statistics
	if s == nil {
		return 0, 0, nil
	}
	return s.RxDropped, s.TxDropped, nil
}

// toward returns the way to an address: the device, our address there, and the MAC address of the one that
// takes frames for it.
func toward(to netip.Addr) (device netlink.Link, from netip.Addr, mac net.HardwareAddr, err error) {
	routes, err := netlink.RouteGet(to.AsSlice())
	if err != nil || len(routes) == 0 {
		return nil, from, nil, fmt.Errorf("%s: no route to it: %w", to, err)
	}
	from, _ = netip.AddrFromSlice(routes[0].Src.To4())
	if device, err = netlink.LinkByIndex(routes[0].LinkIndex); err != nil {
		return nil, from, nil, err
	}
	next := to
	if gw, ok := netip.AddrFromSlice(routes[0].Gw.To4()); ok {
		next = gw
	}
	if device.Attrs().Flags&net.FlagLoopback != 0 {
		return device, from, make(net.HardwareAddr, 6), nil
	}
	mac, err = neighbour(device.Attrs().Index, next)
	return device, from, mac, err
}

// xdpOption reads a struct option of an AF_XDP socket.
func xdpOption[T any](fd, name int, into *T) error {
	size := uint32(unsafe.Sizeof(*into))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_XDP, uintptr(name),
		uintptr(unsafe.Pointer(into)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// force sets the size of a socket's queue, beyond the host's limit if this process may do that.
func force(fd, forced, plain int) error {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, forced, queue) == nil {
		return nil
	}
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, plain, queue)
}

// queue is the size of a socket's queue in bytes.
const queue = 8 << 20
