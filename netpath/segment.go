package netpath

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/lane"
)

// A segment is asked twice for its addresses. An answer after this time is not noticed. RFC 5227 waits for
// seconds, during which a lane would be without its network.
const (
	askAgain = 20 * time.Millisecond
	askFor   = 50 * time.Millisecond
)

// CheckSegment finds out whether somebody on the lane's segment already has one of the addresses. The kernel
// does not: the device inside is ready at once (IFA_F_NODAD). Nothing of the lane needs to exist yet. The
// questions are those of RFC 5227, section 2.1 (ARP) and RFC 4862, section 5.4 (neighbour discovery), from no
// address, so that nobody learns one. It ignores answers from the MAC addresses in leaving, which will be
// gone by then. The first questions are sent when it returns, so that their time runs from then on. answer
// waits for the result. end closes the socket, which takes until no CPU uses it.
func (l Lane) CheckSegment(addresses []lane.Address, leaving []string) (
	answer func(context.Context) error, end func(),
) {
	s, err := l.askFirst(addresses)
	if s == nil {
		return func(context.Context) error { return err }, func() {}
	}
	s.leaving = leaving
	return func(ctx context.Context) error { return s.check(ctx, l, addresses) }, s.Close
}

// askFirst asks the segment for the first time. It returns nil if there is nobody to ask.
func (l Lane) askFirst(addresses []lane.Address) (*segment, error) {
	if l.Device == "" || len(addresses) == 0 {
		return nil, nil
	}
	if err := l.checkHost(addresses); err != nil {
		return nil, err
	}
	s, err := openSegment(l)
	if errors.Is(err, fs.ErrNotExist) { // an interface of a switch in user space, by which nobody else can send
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("spec.network.device: %s: whether its addresses are in use: %w", l.Device, err)
	}
	s.end = time.Now().Add(askFor)
	err = s.askAll(l, addresses)
	if err == nil {
		return &s, nil
	}
	s.Close()
	if errors.Is(err, unix.ENETDOWN) { // the device of an Open vSwitch bridge, whose other ports carry frames
		return nil, nil
	}
	return nil, err
}

// askAll asks for each address.
func (s segment) askAll(l Lane, addresses []lane.Address) error {
	for _, a := range addresses {
		if err := s.ask(a.Addr()); err != nil {
			return fmt.Errorf("spec.network.device: %s: asking for %s: %w", l.Device, a.Addr(), err)
		}
	}
	return nil
}

// check asks once more, and fails if somebody answers.
func (s segment) check(ctx context.Context, l Lane, addresses []lane.Address) error {
	for _, until := range []time.Time{s.end.Add(askAgain - askFor), s.end} {
		who, mac, err := s.answer(ctx, until, addresses)
		if err != nil {
			return err
		}
		if mac.String() == l.MAC {
			return fmt.Errorf("metadata.name: somebody on the segment of %s has the MAC address %s that %s would "+
				"have: expected another name, or an /etc/machine-id that no copy of this machine has", l.Device, mac,
				l.Name)
		}
		if who.IsValid() {
			return fmt.Errorf("spec.network.addresses: %s is in use on the segment of %s, by %s: expected a free one",
				who, l.Device, mac)
		}
		if until.Before(s.end) {
			if err = s.askAll(l, addresses); err != nil && !errors.Is(err, unix.ENETDOWN) {
				return err
			}
		}
	}
	return nil
}

// Asked returns a lane's addresses, and the IPv6 address that the kernel makes from its MAC address. A lane
// of the same name on a host with the same machine-id has that address too, and so reveals itself; ARP has no
// such question.
func (l Lane) Asked() []lane.Address {
	mac, err := net.ParseMAC(l.MAC)
	if l.Device == "" || err != nil {
		return nil
	}
	return append(slices.Clone(l.Addresses), lane.Address{Prefix: netip.PrefixFrom(LinkLocal(mac), 64)})
}

// checkHost fails if the host itself has one of the addresses on the lane's segment. The host would not
// answer, because what a packet socket sends does not reach its own stack.
func (l Lane) checkHost(addresses []lane.Address) error {
	h, err := netdev.Open("")
	if err != nil {
		return err
	}
	defer h.Close()
	links, lerr := h.LinkList()
	found, err := h.AddrList(nil, unix.AF_UNSPEC)
	for _, device := range l.ofHost(links) {
		for _, f := range found {
			has, _ := netip.AddrFromSlice(f.IP)
			if f.LinkIndex == device.Attrs().Index && slices.ContainsFunc(addresses,
				func(a lane.Address) bool { return a.Addr() == has.Unmap() }) {
				return fmt.Errorf("spec.network.addresses: the host has %s itself, on %s: expected a free one",
					has.Unmap(), device.Attrs().Name)
			}
		}
	}
	return errors.Join(lerr, err)
}

// ofHost returns the host's devices that are on the lane's segment: its device and those that get frames
// through it, and with tags the VLAN devices on these.
func (l Lane) ofHost(links []netlink.Link) []netlink.Link {
	on := slices.DeleteFunc(slices.Clone(links), func(d netlink.Link) bool { return d.Attrs().Name != l.Device })
	on = above(links, on, sharing()...)
	for _, t := range l.tags() {
		var behind []netlink.Link
		for _, d := range links {
			v, is := d.(*netlink.Vlan)
			if is && v.VlanId == t.link.Tag && v.VlanProtocol == t.link.Protocol() && slices.ContainsFunc(on,
				func(below netlink.Link) bool { return below.Attrs().Index == v.ParentIndex }) {
				behind = append(behind, d)
			}
		}
		on = above(links, behind, sharing()...)
	}
	return on
}

// wireTags returns tags as they are in a frame: a single one is of IEEE 802.1Q, an outer one of 802.1ad.
func wireTags(v lane.VLAN) (tags []byte) {
	for i, id := range []int{v.Outer, v.Inner} {
		protocol := uint16(unix.ETH_P_8021Q)
		if i == 0 && v.Inner > 0 {
			protocol = unix.ETH_P_8021AD
		}
		if id > 0 {
			tags = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(tags, protocol), uint16(id))
		}
	}
	return tags
}

// segment is a packet socket at a lane's card. It sees frames before anything takes their tags off.
type segment struct {
	fd   int
	mac  net.HardwareAddr // of the card
	tags []byte           // the lane's, as they are in a frame
	end  time.Time        // until when answers are waited for

	leaving []string // MAC addresses that will be gone when the lane is there
}

func (s segment) Close() { _ = unix.Close(s.fd) }

// networkOrder converts a protocol number as packet sockets want it.
func networkOrder(n uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, n))
}

func openSegment(l Lane) (s segment, err error) {
	name := l.Device
	if inside, _ := filepath.Glob("/sys/bus/pci/devices/" + l.Device + "/net/*"); len(inside) == 1 {
		name = filepath.Base(inside[0])
	}
	if _, err = os.Stat("/sys/class/net/" + name); err != nil {
		return s, err
	}
	d, err := net.InterfaceByName(name)
	if err != nil {
		return s, err
	}
	all := networkOrder(unix.ETH_P_ALL)
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return s, err
	}
	s = segment{fd: fd, mac: d.HardwareAddr, tags: wireTags(l.VLAN)}
	toAll := unix.PacketMreq{Ifindex: int32(d.Index), Type: unix.PACKET_MR_MULTICAST, Alen: 6,
		Address: [8]byte{0x33, 0x33, 5: 1}} // ff02::1, to which neighbours answer
	err = errors.Join(unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &toAll),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1))
	if len(s.tags) > 0 { // cards drop frames whose tags no device has
		err = errors.Join(err, unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP,
			&unix.PacketMreq{Ifindex: int32(d.Index), Type: unix.PACKET_MR_PROMISC}))
	}
	err = errors.Join(err, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: d.Index}))
	if err != nil {
		s.Close()
	}
	return s, err
}

// ask asks who has an address.
func (s segment) ask(who netip.Addr) error {
	var to net.HardwareAddr
	var question []byte
	if who.Is4() {
		to = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
		question = append([]byte{0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 1}, s.mac...) // a request
		question = append(append(question, make([]byte, 4+6)...), who.AsSlice()...)
	} else {
		to = net.HardwareAddr{0x33, 0x33, 0xff}
		to = append(to, who.AsSlice()[13:]...)
		question = append([]byte{0x86, 0xdd}, solicitation(who)...)
	}
	frame := slices.Concat(to, s.mac, s.tags, question)
	frame = append(frame, make([]byte, max(0, 60-len(frame)))...) // the minimum of Ethernet
	_, err := unix.Write(s.fd, frame)
	return err
}

// solicitation returns an IPv6 packet that asks for a neighbour (RFC 4861, section 4.3), from no address.
func solicitation(who netip.Addr) []byte {
	address := who.As16()
	group := [16]byte{0: 0xff, 1: 0x02, 11: 1, 12: 0xff}
	copy(group[13:], address[13:])
	message := append([]byte{135, 0, 0, 0, 0, 0, 0, 0}, address[:]...)
	const icmp6 = 58
	pseudo := append(append(append(make([]byte, 16), group[:]...), 0, 0, 0, byte(len(message)), 0, 0, 0, icmp6),
		message...)
	binary.BigEndian.PutUint16(message[2:], checksum(pseudo))
	packet := append([]byte{0x60, 0, 0, 0, 0, byte(len(message)), icmp6, 255}, make([]byte, 16)...)
	return append(append(packet, group[:]...), message...)
}

// checksum computes the checksum of RFC 1071 of an even number of bytes.
func checksum(of []byte) uint16 {
	var sum uint32
	for ; len(of) > 1; of = of[2:] {
		sum += uint32(binary.BigEndian.Uint16(of))
	}
	for sum>>16 > 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// drain is how long frames are read that arrived in time.
const drain = 50 * time.Millisecond

// answer waits for somebody who has one of the addresses. It returns the zero address for nobody.
func (s segment) answer(
	ctx context.Context, until time.Time, addresses []lane.Address,
) (who netip.Addr, mac net.HardwareAddr, err error) {
	frame, control := make([]byte, 2048), make([]byte, 128)
	for {
		left := time.Until(until)
		if err = ctx.Err(); err != nil || left < -drain {
			return who, nil, err
		}
		wait := 0 // frames that came while this process did not run are read after the time too
		if left > 0 {
			wait = int(left.Milliseconds()) + 1
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}, wait)
		if err != nil && !errors.Is(err, unix.EINTR) || n == 0 && wait == 0 {
			return who, nil, err
		}
		if n < 1 {
			continue
		}
		n, c, _, from, err := unix.Recvmsg(s.fd, frame, control, 0)
		if err != nil {
			if errors.Is(err, unix.EAGAIN) {
				continue
			}
			return who, nil, err
		}
		if l, is := from.(*unix.SockaddrLinklayer); is && l.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		claimed, mac := s.claim(frame[:n], control[:c])
		if slices.Contains(s.leaving, mac.String()) {
			continue
		}
		for _, a := range addresses {
			if a.Addr() == claimed {
				return claimed, mac, nil
			}
		}
	}
}

// claim returns the address that the sender of a frame with the lane's tags claims to have, if any. The
// kernel has taken the outer tag out of the frame, and passes it separately (packet(7)).
func (s segment) claim(frame, control []byte) (who netip.Addr, mac net.HardwareAddr) {
	const macs = 12
	if len(frame) < macs {
		return who, nil
	}
	mac, rest := net.HardwareAddr(frame[6:macs]), slices.Concat(outerTag(control), frame[macs:])
	if len(rest) < len(s.tags)+2 {
		return who, nil
	}
	for i, b := range s.tags {
		if i%4 == 2 {
			rest[i] &= 0x0f // without the priority
		}
		if rest[i] != b {
			return who, nil
		}
	}
	rest = rest[len(s.tags):]
	protocol, rest := binary.BigEndian.Uint16(rest), rest[2:]
	switch {
	case protocol == unix.ETH_P_ARP && len(rest) >= 28:
		return netip.AddrFrom4([4]byte(rest[14:])), mac // the sender's, in requests and replies
	case protocol == unix.ETH_P_IPV6 && len(rest) >= 64 && rest[6] == unix.IPPROTO_ICMPV6 && rest[40] == 136:
		return netip.AddrFrom16([16]byte(rest[48:])), mac // the target of a neighbour advertisement
	}
	return who, nil
}

// outerTag returns the tag that the kernel took out of a frame; none if it took none.
func outerTag(control []byte) []byte {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		var aux unix.TpacketAuxdata
		if m.Header.Level != unix.SOL_PACKET || m.Header.Type != unix.PACKET_AUXDATA ||
			len(m.Data) < int(unsafe.Sizeof(aux)) {
			continue
		}
		aux = *(*unix.TpacketAuxdata)(unsafe.Pointer(&m.Data[0]))
		if aux.Status&unix.TP_STATUS_VLAN_VALID != 0 {
			return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, aux.Vlan_tpid), aux.Vlan_tci)
		}
	}
	return nil
}
