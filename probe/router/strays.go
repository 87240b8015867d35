package router

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/probe/frames"
)

// stray counts frames at a customer's device that do not belong to the customer. The kernel filters them, so
// that nothing reads the other frames.
type stray struct{ fd int }

// found is how long the kernel has to know the MAC address of the router, to which it has just spoken.
const found = time.Second

// watchStrays starts to count.
func watchStrays(device *netlink.LinkAttrs, l leased) (stray, error) {
	mac, err := macOf(device.Index, l.router)
	if err != nil {
		return stray{}, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0) // receives nothing yet
	if err != nil {
		return stray{}, fmt.Errorf("packet socket: %w", err)
	}
	s := stray{fd}
	program := filter(mac, l.address)
	err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
	if err == nil {
		all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: device.Index})
	}
	if err == nil { // also receive frames for other MAC addresses
		err = unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP,
			&unix.PacketMreq{Ifindex: int32(device.Index), Type: unix.PACKET_MR_PROMISC})
	}
	if err != nil {
		s.close()
		return s, fmt.Errorf("packet socket: %w", err)
	}
	return s, nil
}

func (s stray) close() { _ = unix.Close(s.fd) }

// count returns how many such frames there were so far, including those for which the socket had no room, and
// the beginning of the first one in hexadecimal.
func (s stray) count() (n uint64, first string, err error) {
	t, err := unix.GetsockoptTpacketStats(s.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0, "", fmt.Errorf("packet socket: %w", err)
	}
	if t.Packets == 0 {
		return 0, "", nil
	}
	frame := make([]byte, shown)
	got, _, err := unix.Recvfrom(s.fd, frame, unix.MSG_DONTWAIT)
	if err != nil {
		return 0, "", fmt.Errorf("packet socket: %w", err)
	}
	return uint64(t.Packets), hex.EncodeToString(frame[:got]), nil
}

// shown is how many bytes of a stray frame are shown: the headers of Ethernet, IPv4 and TCP.
const shown = 54

// macOf returns the MAC address of a neighbour that the kernel knows.
func macOf(device int, who netip.Addr) (net.HardwareAddr, error) {
	for end := time.Now().Add(found); time.Now().Before(end); <-time.After(time.Millisecond) {
		all, err := netlink.NeighList(device, netlink.FAMILY_V4)
		if err != nil {
			return nil, fmt.Errorf("neighbours: %w", err)
		}
		for _, n := range all {
			ip, _ := netip.AddrFromSlice(n.IP.To4())
			if ip == who && len(n.HardwareAddr) == 6 {
				return n.HardwareAddr, nil
			}
		}
	}
	return nil, fmt.Errorf("%s: the kernel does not know its MAC address", who)
}

// filter returns a program for packet sockets (bpf(4)). It accepts incoming frames of IPv4, IPv6 and ARP that
// are not from the router, IPv4 packets from the router that are not for the customer, frames with an
// attacker's mark, and IPv6 except ICMPv6: the router has no IPv6 for its customer, but its kernel looks for
// neighbours. A frame that is too short for a mark has none: a load beyond its end rejects it.
func filter(router net.HardwareAddr, customer netip.Addr) []unix.SockFilter {
	const (
		octet = unix.BPF_LD | unix.BPF_B | unix.BPF_ABS
		word  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		half  = unix.BPF_LD | unix.BPF_H | unix.BPF_ABS
		is    = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		end   = unix.BPF_RET | unix.BPF_K
	)
	packetType := uint32(0xfffff004) // SKF_AD_OFF + SKF_AD_PKTTYPE (include/uapi/linux/filter.h)
	to := customer.As4()
	return []unix.SockFilter{
		{Code: word, K: packetType},
		{Code: is, K: unix.PACKET_OUTGOING, Jt: 21}, // 1: not what the device sends
		{Code: half, K: 12},                         // the protocol
		{Code: is, K: unix.ETH_P_IP, Jt: 2},
		{Code: is, K: unix.ETH_P_ARP, Jt: 1},
		{Code: is, K: unix.ETH_P_IPV6, Jf: 17},
		{Code: word, K: 6}, // 6: its sender
		{Code: is, K: binary.BigEndian.Uint32(router), Jf: 16},
		{Code: half, K: 10},
		{Code: is, K: uint32(binary.BigEndian.Uint16(router[4:])), Jf: 14},
		{Code: half, K: 12},
		{Code: is, K: unix.ETH_P_IPV6, Jt: 8},
		{Code: is, K: unix.ETH_P_IP, Jf: 10},
		{Code: word, K: 30}, // 13: its destination; DHCP answers to all
		{Code: is, K: binary.BigEndian.Uint32(to[:]), Jt: 1},
		{Code: is, K: 0xffffffff, Jf: 8},
		{Code: octet, K: 23},
		{Code: is, K: unix.IPPROTO_UDP, Jf: 5}, // 17
		{Code: word, K: frames.Payload},
		{Code: is, K: binary.BigEndian.Uint32([]byte(mark)), Jt: 4, Jf: 3},
		{Code: octet, K: 20}, // 20: the header after that of IPv6
		{Code: is, K: unix.IPPROTO_ICMPV6, Jt: 1},
		{Code: is, K: unix.IPPROTO_HOPOPTS, Jf: 1}, // before multicast reports
		{Code: end, K: 0},                          // 23
		{Code: end, K: shown},                      // 24: that much of it
	}
}
