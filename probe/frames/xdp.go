package frames

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// The rings of an AF_XDP socket, and its memory: a buffer for each place in the two rings that hold frames.
const (
	toReceive = 4096
	toSend    = 2048
	memory    = (toReceive + toSend) * bufferSize
)

// xdpPort is an AF_XDP socket with its own rings (Documentation/networking/af_xdp.rst), at the device's only
// queue. The kernel copies each frame, because that works on every device.
//
// The program that gives it frames is attached in generic mode, which every device has. Frames that a tc
// program has redirected do not get here (see open).
type xdpPort struct {
	fd       int
	maps     [][]byte
	umem     []byte
	rx, tx   ring[unix.XDPDesc]
	fill     ring[uint64]
	done     ring[uint64]
	free     []uint64 // buffers to send from
	program  *ebpf.Program
	sockets  *ebpf.Map
	attached link.Link
	kicks    uint64
}

// ring is a ring that the kernel shares: one side produces what the other consumes.
type ring[T any] struct {
	producer, consumer *uint32
	places             []T
}

// level returns how many places are full.
func (r *ring[T]) level() uint32 {
	return atomic.LoadUint32(r.producer) - atomic.LoadUint32(r.consumer)
}

func (r *ring[T]) place(i uint32) *T { return &r.places[i&uint32(len(r.places)-1)] }

// put fills a place. The caller must know that one is empty.
func (r *ring[T]) put(v T) {
	at := *r.producer
	*r.place(at) = v
	atomic.StoreUint32(r.producer, at+1)
}

func openXDP(l local) (_ *xdpPort, err error) {
	n, err := queuesOf(l)
	if err == nil && n > 1 {
		err = fmt.Errorf("%s has %d queues: AF_XDP here expects one", l.device.Name, n)
	}
	if err != nil {
		return nil, err
	}
	p := &xdpPort{}
	defer func() {
		if err != nil {
			p.close()
			err = fmt.Errorf("AF_XDP at %s: %w", l.device.Name, err)
		}
	}()
	if p.fd, err = unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		p.fd = -1
		return nil, err
	}
	if err = p.share(); err != nil {
		return nil, err
	}
	at := &unix.SockaddrXDP{Flags: unix.XDP_COPY, Ifindex: uint32(l.device.Index)}
	err = unix.Bind(p.fd, at)
	for tries := 0; errors.Is(err, unix.EBUSY) && tries < 100; tries++ { // of a socket that was just closed
		<-time.After(10 * time.Millisecond)
		err = unix.Bind(p.fd, at)
	}
	if err != nil {
		return nil, fmt.Errorf("bind: %w", err)
	}
	return p, p.attach(l)
}

// queuesOf returns how many queues of a device receive frames (ETHTOOL_GCHANNELS of ethtool(8)); 1 if the
// device cannot tell.
func queuesOf(l local) (int, error) {
	channels := struct{ command, maxRx, maxTx, maxOther, maxCombined, rx, tx, other, combined uint32 }{
		command: unix.ETHTOOL_GCHANNELS}
	var request struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	copy(request.name[:unix.IFNAMSIZ-1], l.device.Name)
	request.data = unsafe.Pointer(&channels)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(l.socket), unix.SIOCETHTOOL,
		uintptr(unsafe.Pointer(&request)))
	if errno == unix.EOPNOTSUPP {
		return 1, nil
	}
	if errno != 0 {
		return 0, fmt.Errorf("queues of %s: %w", l.device.Name, errno)
	}
	return int(channels.rx + channels.combined), nil
}

// share makes the memory and the rings.
func (p *xdpPort) share() (err error) {
	if p.umem, err = unix.Mmap(-1, 0, memory, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE); err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	reg := unix.XDPUmemReg{Addr: uint64(uintptr(unsafe.Pointer(&p.umem[0]))), Len: memory, Size: bufferSize}
	if _, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(p.fd), unix.SOL_XDP, unix.XDP_UMEM_REG,
		uintptr(unsafe.Pointer(&reg)), unsafe.Sizeof(reg), 0); errno != 0 {
		return fmt.Errorf("XDP_UMEM_REG: %w", errno)
	}
	for option, n := range map[int]int{unix.XDP_UMEM_FILL_RING: toReceive, unix.XDP_RX_RING: toReceive,
		unix.XDP_UMEM_COMPLETION_RING: toSend, unix.XDP_TX_RING: toSend} {
		err = errors.Join(err, unix.SetsockoptInt(p.fd, unix.SOL_XDP, option, n))
	}
	var at unix.XDPMmapOffsets
	if err = errors.Join(err, force(p.fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF),
		xdpOption(p.fd, unix.XDP_MMAP_OFFSETS, &at)); err != nil {
		return fmt.Errorf("rings: %w", err)
	}
	if p.rx, err = mapRing[unix.XDPDesc](p, unix.XDP_PGOFF_RX_RING, at.Rx, toReceive); err != nil {
		return err
	}
	if p.tx, err = mapRing[unix.XDPDesc](p, unix.XDP_PGOFF_TX_RING, at.Tx, toSend); err != nil {
		return err
	}
	if p.fill, err = mapRing[uint64](p, unix.XDP_UMEM_PGOFF_FILL_RING, at.Fr, toReceive); err != nil {
		return err
	}
	if p.done, err = mapRing[uint64](p, unix.XDP_UMEM_PGOFF_COMPLETION_RING, at.Cr, toSend); err != nil {
		return err
	}
	for i := range uint64(toReceive) {
		p.fill.put(i * bufferSize)
	}
	for i := range uint64(toSend) {
		p.free = append(p.free, (toReceive+i)*bufferSize)
	}
	return nil
}

func mapRing[T any](p *xdpPort, offset int64, at unix.XDPRingOffset, n int) (r ring[T], err error) {
	var one T
	m, err := unix.Mmap(p.fd, offset, int(at.Desc)+n*int(unsafe.Sizeof(one)), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return r, fmt.Errorf("ring: %w", err)
	}
	p.maps = append(p.maps, m)
	return ring[T]{(*uint32)(unsafe.Pointer(&m[at.Producer])), (*uint32)(unsafe.Pointer(&m[at.Consumer])),
		unsafe.Slice((*T)(unsafe.Pointer(&m[at.Desc])), n)}, nil
}

// attach directs the frames for our port to the socket.
func (p *xdpPort) attach(l local) (err error) {
	p.sockets, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.XSKMap, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		return err
	}
	if err = p.sockets.Put(uint32(0), uint32(p.fd)); err != nil {
		return err
	}
	p.program, err = ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "Dual MIT/GPL",
		Instructions: redirect(p.sockets.FD(), l.at.Port())})
	if err != nil {
		return err
	}
	p.attached, err = link.AttachXDP(link.XDPOptions{Program: p.program, Interface: l.device.Index,
		Flags: link.XDPGenericMode})
	return err
}

// redirect returns the program: UDP frames over IPv4 to the port go to the socket, all others continue.
func redirect(sockets int, port uint16) asm.Instructions {
	const pass = 2 // XDP_PASS
	swapped := int32(port>>8 | port<<8)
	return asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R2, asm.R6, 0, asm.Word), // data
		asm.LoadMem(asm.R3, asm.R6, 4, asm.Word), // its end
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, atMagic),
		asm.JGT.Reg(asm.R4, asm.R3, "pass"),
		asm.LoadMem(asm.R5, asm.R2, atProtocol, asm.Half),
		asm.JNE.Imm(asm.R5, 0x0008, "pass"),
		asm.LoadMem(asm.R5, asm.R2, atIP, asm.Byte),
		asm.JNE.Imm(asm.R5, 0x45, "pass"),
		asm.LoadMem(asm.R5, asm.R2, atTTL+1, asm.Byte),
		asm.JNE.Imm(asm.R5, unix.IPPROTO_UDP, "pass"),
		asm.LoadMem(asm.R5, asm.R2, atUDP+2, asm.Half),
		asm.JNE.Imm(asm.R5, swapped, "pass"),
		asm.LoadMem(asm.R2, asm.R6, 16, asm.Word), // the queue
		asm.LoadMapPtr(asm.R1, sockets),
		asm.Mov.Imm(asm.R3, pass),
		asm.FnRedirectMap.Call(),
		asm.Return(),
		asm.Mov.Imm(asm.R0, pass).WithSymbol("pass"),
		asm.Return(),
	}
}

func (p *xdpPort) buffer() []byte {
	if len(p.free) == 0 {
		for n := p.done.level(); n > 0; n-- { // sent
			at := *p.done.consumer
			p.free = append(p.free, *p.done.place(at))
			atomic.StoreUint32(p.done.consumer, at+1)
		}
	}
	if len(p.free) == 0 {
		return nil
	}
	at := p.free[len(p.free)-1]
	return p.umem[at : at+bufferSize]
}

func (p *xdpPort) push(n int) {
	at := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	p.tx.put(unix.XDPDesc{Addr: at, Len: uint32(n)})
}

// flush tells the kernel to send, which then sends some 32 frames. The system call never sleeps, so it may be
// raw: see package echo.
func (p *xdpPort) flush() error {
	if p.tx.level() == 0 {
		return nil
	}
	call := unix.RawSyscall6
	if p.kicks++; p.kicks%tickEvery == 0 {
		call = unix.Syscall6
	}
	_, _, errno := call(unix.SYS_SENDTO, uintptr(p.fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	return unlessBusy(errno)
}

// tickEvery is how often a loop of raw system calls makes a normal one: see package echo.
const tickEvery = 256

// unlessBusy returns the error, or nil if it only means to try again.
func unlessBusy(errno unix.Errno) error {
	again := []unix.Errno{0, unix.EAGAIN, unix.EBUSY, unix.ENOBUFS, unix.EINTR}
	if slices.Contains(again, errno) {
		return nil
	}
	return errno
}

func (p *xdpPort) pull(take func([]byte)) (int, error) {
	n := int(min(p.rx.level(), batch))
	for range n {
		at := *p.rx.consumer
		d := *p.rx.place(at)
		take(p.umem[d.Addr : d.Addr+uint64(d.Len)])
		atomic.StoreUint32(p.rx.consumer, at+1)
		p.fill.put(d.Addr &^ (bufferSize - 1))
	}
	return n, nil
}

func (p *xdpPort) drops() (uint64, error) {
	var s unix.XDPStatistics
	err := xdpOption(p.fd, unix.XDP_STATISTICS, &s)
	return s.Rx_dropped + s.Rx_ring_full, err // an empty fill ring is one cause of the former
}

func (p *xdpPort) descriptor() int { return p.fd }

func (p *xdpPort) close() {
	if p.attached != nil {
		_ = p.attached.Close()
	}
	if p.program != nil {
		_ = p.program.Close()
	}
	if p.sockets != nil {
		_ = p.sockets.Close()
	}
	for _, m := range p.maps {
		_ = unix.Munmap(m)
	}
	if p.fd >= 0 {
		_ = unix.Close(p.fd)
	}
	if p.umem != nil {
		_ = unix.Munmap(p.umem)
	}
}
