package frames

import (
	"encoding/binary"
	"net"
	"net/netip"
)

// Offsets of the fields of a frame: Ethernet, IPv4 without options (RFC 791), UDP (RFC 768), and our own.
const (
	atProtocol = 12
	atIP       = 14
	atLength   = atIP + 2
	atTTL      = atIP + 8
	atChecksum = atIP + 10
	atSource   = atIP + 12
	atUDP      = atIP + 20
	atMagic    = atUDP + 8
	atNumber   = atMagic + 4
	atTime     = atNumber + 6
	least      = atTime + 8 // the shortest Ethernet frame, without its FCS
)

// fcs is the length of the frame check sequence, which the device adds and removes.
const fcs = 4

// ttl is the time to live of the generator's frames.
const ttl = 64

// What a frame of ours is, by its magic.
const (
	isFrame    = 0x49534c46 // "ISLF"
	isQuestion = 0x49534c51 // "ISLQ": to the forwarder, for its counts
	isAnswer   = 0x49534c41 // "ISLA"
)

// Payload is the offset of the UDP payload in a frame.
const Payload = atMagic

// Ends are the two ends of a UDP stream, as seen by one sender.
type Ends struct {
	FromMAC, ToMAC net.HardwareAddr
	From, To       netip.AddrPort
}

// Blank returns a frame of that size, including the FCS, with zeros as its payload. It has no UDP checksum,
// so its payload may change.
func (e Ends) Blank(size int) []byte {
	b := make([]byte, size-fcs)
	copy(b, e.ToMAC)
	copy(b[6:], e.FromMAC)
	binary.BigEndian.PutUint16(b[atProtocol:], 0x0800)
	b[atIP] = 0x45
	binary.BigEndian.PutUint16(b[atLength:], uint16(len(b)-atIP))
	binary.BigEndian.PutUint16(b[atIP+6:], 0x4000) // not to be fragmented
	b[atTTL], b[atTTL+1] = ttl, 17
	copy(b[atSource:], e.From.Addr().AsSlice())
	copy(b[atSource+4:], e.To.Addr().AsSlice())
	binary.BigEndian.PutUint16(b[atUDP:], e.From.Port())
	binary.BigEndian.PutUint16(b[atUDP+2:], e.To.Port())
	binary.BigEndian.PutUint16(b[atUDP+4:], uint16(len(b)-atUDP))
	binary.BigEndian.PutUint16(b[atChecksum:], ^sum(b[atIP:atUDP]))
	return b
}

// sum is the sum of RFC 1071. For a header with a correct checksum it is 0xffff.
func sum(b []byte) uint16 {
	var s uint32
	for ; len(b) > 1; b = b[2:] {
		s += uint32(binary.BigEndian.Uint16(b))
	}
	s = s&0xffff + s>>16
	return uint16(s + s>>16)
}

// stamp writes the kind of a frame, its number and its intended time.
func stamp(b []byte, magic uint32, number uint64, at int64) {
	binary.BigEndian.PutUint32(b[atMagic:], magic)
	binary.BigEndian.PutUint16(b[atNumber:], uint16(number>>32))
	binary.BigEndian.PutUint32(b[atNumber+2:], uint32(number))
	binary.BigEndian.PutUint64(b[atTime:], uint64(at))
}

// stamped is what stamp has written, and the size including the FCS.
type stamped struct {
	magic  uint32
	number uint64
	at     int64
	size   int
}

// read parses a frame. ok is false if it cannot be ours.
func read(b []byte) (s stamped, ok bool) {
	n, ok := packet(b)
	if !ok || n < least {
		return s, false
	}
	s = unstamped(b)
	s.size = n + fcs
	return s, true
}

// unstamped reads what stamp has written.
func unstamped(b []byte) stamped {
	return stamped{magic: binary.BigEndian.Uint32(b[atMagic:]),
		number: uint64(binary.BigEndian.Uint16(b[atNumber:]))<<32 | uint64(binary.BigEndian.Uint32(b[atNumber+2:])),
		at:     int64(binary.BigEndian.Uint64(b[atTime:]))}
}

// packet reports whether a frame is UDP over IPv4 with a complete and correct header, and its length without
// the padding after the packet.
func packet(b []byte) (n int, ok bool) {
	if len(b) < atMagic || binary.BigEndian.Uint16(b[atProtocol:]) != 0x0800 || b[atIP] != 0x45 ||
		b[atTTL+1] != 17 || binary.BigEndian.Uint16(b[atIP+6:])&0x3fff != 0 || sum(b[atIP:atUDP]) != 0xffff {
		return 0, false
	}
	n = atIP + int(binary.BigEndian.Uint16(b[atLength:]))
	return n, n >= atMagic && n <= len(b)
}

// turn makes a frame go back, as a router with swapped ends would: it swaps the addresses of Ethernet, IPv4
// and UDP, and decrements the time to live. It returns false if the frame cannot be forwarded. The swaps
// change no checksum; that of IPv4 is updated for the time to live (RFC 1624).
func turn(b []byte) bool {
	if _, ok := packet(b); !ok || b[atTTL] <= 1 {
		return false
	}
	swap(b[:6], b[6:12])
	swap(b[atSource:atSource+4], b[atSource+4:atUDP])
	swap(b[atUDP:atUDP+2], b[atUDP+2:atUDP+4])
	b[atTTL]--
	check := uint32(binary.BigEndian.Uint16(b[atChecksum:])) + 0x100
	binary.BigEndian.PutUint16(b[atChecksum:], uint16(check+check>>16))
	return true
}

func swap(a, b []byte) {
	for i := range a {
		a[i], b[i] = b[i], a[i]
	}
}
