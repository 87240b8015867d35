package router

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// leased is what a router gives to its customer.
type leased struct{ address, router netip.Addr }

// Offsets in a DHCP message (RFC 2131), and the options that this customer knows (RFC 2132).
const (
	atTransaction = 4
	atFlags       = 10
	atYours       = 16
	atHardware    = 28
	atMagic       = 236
	atOptions     = 240

	broadcast = 0x8000 // the customer has no address yet to which an answer could be sent
	magic     = 0x63825363

	optionRouter    = 3
	optionRequested = 50
	optionType      = 53
	optionServer    = 54
	optionEnd       = 255

	discover = 1
	offer    = 2
	request  = 3
	accepted = 5 // DHCPACK
)

// How long the router may take to answer, and when it is asked again.
const (
	leaseTime  = 5 * time.Second
	askedAgain = 500 * time.Millisecond
)

// ask gets an address from whoever answers at a device.
func ask(device *netlink.LinkAttrs) (leased, error) {
	if err := anySource(device.Name); err != nil {
		return leased{}, err
	}
	conn, err := listen(device.Name)
	if err != nil {
		return leased{}, err
	}
	defer conn.Close()
	id := uint32(time.Now().UnixNano())
	end := time.Now().Add(leaseTime)
	offered, err := exchange(conn, end, message(id, device.HardwareAddr, discover, nil), id, offer)
	if err != nil {
		return leased{}, err
	}
	wants := append(option(optionRequested, offered[atYours:atYours+4]),
		option(optionServer, find(offered, optionServer))...)
	given, err := exchange(conn, end, message(id, device.HardwareAddr, request, wants), id, accepted)
	if err != nil {
		return leased{}, err
	}
	address, _ := netip.AddrFromSlice(given[atYours : atYours+4])
	router, ok := netip.AddrFromSlice(find(given, optionRouter))
	if !ok {
		return leased{}, errors.New("expected a router in the answer, found none")
	}
	return leased{address, router}, nil
}

// anySource turns rp_filter off, if the host has it on: it would drop answers as spoofed while the device has
// no address.
func anySource(device string) error {
	for _, of := range []string{"all", device} {
		if err := os.WriteFile("/proc/sys/net/ipv4/conf/"+of+"/rp_filter", []byte("0"), 0); err != nil {
			return err
		}
	}
	return nil
}

// listen returns the socket of a client that has no address.
func listen(device string) (net.PacketConn, error) {
	set := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		cerr := raw.Control(func(fd uintptr) {
			err = errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 1),
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
				unix.BindToDevice(int(fd), device))
		})
		return errors.Join(cerr, err)
	}}
	return set.ListenPacket(context.Background(), "udp4", "0.0.0.0:68")
}

// exchange sends a message, repeats it if nobody answers, and waits for an answer of type want.
func exchange(conn net.PacketConn, end time.Time, send []byte, id uint32, want byte) ([]byte, error) {
	in := make([]byte, 2048)
	for time.Now().Before(end) {
		if _, err := conn.WriteTo(send, &net.UDPAddr{IP: net.IPv4bcast, Port: 67}); err != nil {
			return nil, err
		}
		if err := conn.SetReadDeadline(time.Now().Add(askedAgain)); err != nil {
			return nil, err
		}
		for {
			n, _, err := conn.ReadFrom(in)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				return nil, err
			}
			if answer := in[:n]; isAnswer(answer, id) && bytes.Equal(find(answer, optionType), []byte{want}) {
				return bytes.Clone(answer), nil
			}
		}
	}
	return nil, fmt.Errorf("the router did not answer within %s", leaseTime)
}

func isAnswer(m []byte, id uint32) bool {
	return len(m) >= atOptions && m[0] == 2 && binary.BigEndian.Uint32(m[atTransaction:]) == id &&
		binary.BigEndian.Uint32(m[atMagic:]) == magic
}

// message returns a message of a client.
func message(id uint32, mac net.HardwareAddr, what byte, options []byte) []byte {
	m := make([]byte, atOptions)
	m[0], m[1], m[2] = 1, 1, byte(len(mac)) // a request, on Ethernet
	binary.BigEndian.PutUint32(m[atTransaction:], id)
	binary.BigEndian.PutUint16(m[atFlags:], broadcast)
	copy(m[atHardware:], mac)
	binary.BigEndian.PutUint32(m[atMagic:], magic)
	m = append(append(m, option(optionType, []byte{what})...), options...)
	return append(m, optionEnd)
}

func option(code byte, value []byte) []byte { return append([]byte{code, byte(len(value))}, value...) }

// find returns the value of an option; nil: none.
func find(m []byte, code byte) []byte {
	for rest := m[min(len(m), atOptions):]; len(rest) > 0 && rest[0] != optionEnd; {
		if rest[0] == 0 { // padding
			rest = rest[1:]
			continue
		}
		if len(rest) < 2 || len(rest) < 2+int(rest[1]) {
			return nil
		}
		if rest[0] == code {
			return rest[2 : 2+int(rest[1])]
		}
		rest = rest[2+int(rest[1]):]
	}
	return nil
}
