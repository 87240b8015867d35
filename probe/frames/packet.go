package frames

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// packetPort is an AF_PACKET socket. The kernel's stack sees the same frames, and drops them (see local).
type packetPort struct {
	fd       int
	out, in  messages
	from, to int // of out: pushed and not yet sent
	lost     uint64
	calls    uint64
}

// messages are the arguments of sendmmsg(2) and recvmmsg(2), with a buffer each.
type messages struct {
	headers [batch]message
	vectors [batch]unix.Iovec
	buffers [batch][bufferSize]byte
}

// message is struct mmsghdr.
type message struct {
	header unix.Msghdr
	length uint32
	_      uint32
}

// arm points the headers to their buffers.
func (m *messages) arm() {
	for i := range m.headers {
		m.vectors[i].Base = &m.buffers[i][0]
		m.vectors[i].SetLen(bufferSize)
		m.headers[i].header.Iov = &m.vectors[i]
		m.headers[i].header.SetIovlen(1)
	}
}

func openPacket(l local) (_ *packetPort, err error) {
	// Without a protocol the socket receives nothing before it has its filter.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("AF_PACKET: %w: expected CAP_NET_RAW", err)
	}
	p := &packetPort{fd: fd}
	filter := forPort(l.at.Port())
	err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	for _, set := range []func() error{
		func() error { return force(fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF) },
		func() error { return force(fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF) },
		func() error { return unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1) },
		func() error {
			return unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: l.device.Index,
				Protocol: binary.NativeEndian.Uint16([]byte{0x08, 0x00})})
		},
	} {
		if err == nil {
			err = set()
		}
	}
	if err != nil {
		p.close()
		return nil, fmt.Errorf("AF_PACKET at %s: %w", l.device.Name, err)
	}
	p.out.arm()
	p.in.arm()
	return p, nil
}

// forPort returns a classic BPF filter for UDP over IPv4 without options, to this port.
func forPort(port uint16) []unix.SockFilter {
	load := func(size uint16, at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_ABS | size, K: at}
	}
	unless := func(value uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: skip, K: value}
	}
	return []unix.SockFilter{
		load(unix.BPF_B, atIP), unless(0x45, 5),
		load(unix.BPF_B, atTTL+1), unless(unix.IPPROTO_UDP, 3),
		load(unix.BPF_H, atUDP+2), unless(uint32(port), 1),
		{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff}, {Code: unix.BPF_RET | unix.BPF_K},
	}
}

func (p *packetPort) buffer() []byte {
	if p.to == batch {
		return nil
	}
	return p.out.buffers[p.to][:]
}

func (p *packetPort) push(n int) {
	p.out.vectors[p.to].SetLen(n)
	p.to++
}

func (p *packetPort) flush() error {
	if p.from == p.to {
		return nil
	}
	n, errno := p.call(unix.SYS_SENDMMSG, &p.out.headers[p.from], p.to-p.from)
	if errno == 0 {
		p.from += n
	}
	if p.from == p.to {
		p.from, p.to = 0, 0
	}
	return unlessBusy(errno)
}

func (p *packetPort) pull(take func([]byte)) (int, error) {
	n, errno := p.call(unix.SYS_RECVMMSG, &p.in.headers[0], batch)
	if errno != 0 {
		return 0, unlessBusy(errno)
	}
	for i := range n {
		take(p.in.buffers[i][:min(p.in.headers[i].length, bufferSize)])
	}
	return n, nil
}

// call never waits, so it may be raw: see package echo.
func (p *packetPort) call(number uintptr, first *message, n int) (int, unix.Errno) {
	call := unix.RawSyscall6
	if p.calls++; p.calls%tickEvery == 0 {
		call = unix.Syscall6
	}
	r, _, errno := call(number, uintptr(p.fd), uintptr(unsafe.Pointer(first)), uintptr(n), unix.MSG_DONTWAIT, 0,
		0)
	return int(r), errno
}

func (p *packetPort) drops() (uint64, error) {
	s, err := unix.GetsockoptTpacketStats(p.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0, err
	}
	p.lost += uint64(s.Drops) // each read resets the kernel's count
	return p.lost, nil
}

func (p *packetPort) descriptor() int { return p.fd }

func (p *packetPort) close() { _ = unix.Close(p.fd) }
