package frames

import (
	"encoding/binary"
	"net"
	"net/netip"
)

// Where the fields of a frame begin: Ethernet, IPv4 without options (RFC 791), UDP (RFC 768), and ours.
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
	least      = atTime + 8 // the shortest frame of Ethernet, without its FCS
)

// fcs is the frame check sequence, which the device adds and takes off.
const fcs = 4

// ttl is that of frames which the generator sends.
const ttl = 64

// What a frame of ours is, as its magic says.
const (
	isFrame    = 0x49534c46 // "ISLF"
	isQuestion = 0x49534c51 // "ISLQ": to the forwarder, for its counts
	isAnswer   = 0x49534c41 // "ISLA"
)

// Payload is where that of UDP begins in a frame.
const Payload = atMagic

// Ends are the two ends of a stream of UDP as one of them sends it.
type Ends struct {
	FromMAC, ToMAC net.HardwareAddr
	From, To       netip.AddrPort
}

// Blank is a frame of that size with the FCS, and zeros for its payload. It has no checksum of UDP: what is
// in it may change.
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

// sum is that of RFC 1071; of a header with a checksum that is right it is 0xffff.
func sum(b []byte) uint16 {
	var s uint32
	for ; len(b) > 1; b = b[2:] {
		s += uint32(binary.BigEndian.Uint16(b))
	}
	s = s&0xffff + s>>16
	return uint16(s + s>>16)
}

// stamp writes what a frame is, its number and its intended time.
func stamp(b []byte, magic uint32, number uint64, at int64) {
	binary.BigEndian.PutUint32(b[atMagic:], magic)
	binary.BigEndian.PutUint16(b[atNumber:], uint16(number>>32))
	binary.BigEndian.PutUint32(b[atNumber+2:], uint32(number))
	binary.BigEndian.PutUint64(b[atTime:], uint64(at))
}

// stamped is what stamp has written, and the size with the FCS.
type stamped struct {
	magic  uint32
	number uint64
	at     int64
	size   int
}

// read takes a frame apart; ok is false for one that cannot be ours.
func read(b []byte) (s stamped, ok bool) {
	n, ok := packet(b)
	if !ok || n < least {
		return s, false
	}
	s = unstamped(b)
	s.size = n + fcs
	return s, true
}

// unstamped is what stamp has written.
func unstamped(b []byte) stamped {
	return stamped{magic: binary.BigEndian.Uint32(b[atMagic:]),
		number: uint64(binary.BigEndian.Uint16(b[atNumber:]))<<32 | uint64(binary.BigEndian.Uint32(b[atNumber+2:])),
		at:     int64(binary.BigEndian.Uint64(b[atTime:]))}
}

// packet says whether a frame is UDP over IPv4 with a whole and right header, and how long it is without what
// was filled up behind the packet.
func packet(b []byte) (n int, ok bool) {
	if len(b) < atMagic || binary.BigEndian.Uint16(b[atProtocol:]) != 0x0800 || b[atIP] != 0x45 ||
		b[atTTL+1] != 17 || binary.BigEndian.Uint16(b[atIP+6:])&0x3fff != 0 || sum(b[atIP:atUDP]) != 0xffff {
		return 0, false
	}
	n = atIP + int(binary.BigEndian.Uint16(b[atLength:]))
	return n, n >= atMagic && n <= len(b)
}

// turn makes of a frame the one that goes back, as a router does that has swapped its ends: the addresses of
// Ethernet, IPv4 and UDP change places, and the time to live falls. It is false for what cannot be forwarded.
// No checksum changes by a swap; that of IPv4 is mended for the time to live (RFC 1624).
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
