// Package busypoll lets the sockets of some processes look for packets before they sleep
// (Documentation/networking/napi.rst, "Busy polling"), and nobody else's.
//
// The kernel has no switch for that which is a cgroup's or a namespace's: net.core.busy_read and busy_poll
// are the whole host's, and by the latter every epoll of the host polls, whatever its sockets have asked for.
// BPF programs may not set the option either (bpf_setsockopt in bpf-helpers(7)). So each socket and each
// epoll is set by itself, through a copy of its descriptor (pidfd_getfd(2)).
//
//	p := busypoll.New(root)
//	defer p.End()
//	p.Once(pids) // again and again: they open others
//
// The sockets in an epoll are left alone. It polls for them, and a copy would keep one that its program
// closes there for a moment: programs may rely on it that no event comes then (epoll(7), "Questions and
// answers").
package busypoll

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/host/task"
)

// microseconds is how long a read or an epoll_wait looks for packets before it sleeps. The 50 of
// Documentation/admin-guide/sysctl/net.rst are shorter than the gaps of most traffic, so each message would
// find the program asleep. The odd number marks the sockets that Isolane has set.
const microseconds = 1001

// packets is how many packets an epoll takes at a time: BUSY_POLL_BUDGET of net/core/dev.c.
const packets = 8

// Poller has the processes whose sockets poll.
type Poller struct {
	root  fs.FS
	known map[int]*process
}

// process is a process whose sockets poll.
type process struct {
	fd   int            // pidfd: the ID may be reused
	seen map[int]string // the sockets that have been checked, by descriptor
}

// New returns a Poller for the host that root shows.
func New(root fs.FS) *Poller { return &Poller{root, map[int]*process{}} }

// Once enables polling for what these processes have opened since, unless it has polling already, and
// disables it for processes that are no longer among them. A process that it may not inspect (ptrace(2))
// stays as it is.
func (p *Poller) Once(pids []int) {
	now := map[int]bool{}
	for _, pid := range pids {
		now[pid] = true
		if p.known[pid] != nil {
			continue
		}
		if fd, err := unix.PidfdOpen(pid, 0); err == nil { // else it has ended, or is in another PID namespace
			p.known[pid] = &process{fd: fd}
		}
	}
	for pid, known := range p.known {
		value := microseconds
		if !now[pid] {
			value = 0
		}
		if alive := known.set(p.root, pid, value); !alive || !now[pid] {
			_ = unix.Close(known.fd) // nothing was written to it
			delete(p.known, pid)
		}
	}
}

// End disables polling for all of them.
func (p *Poller) End() { p.Once(nil) }

// set sets the polling of the process's sockets and epolls to value; 0 disables it.
func (p *process) set(root fs.FS, pid, value int) (alive bool) {
	files, err := descriptors(root, pid)
	if err != nil {
		return false
	}
	for fd, is := range files.sockets {
		if value > 0 && p.seen[fd] == is {
			continue
		}
		if err = p.with(fd, func(own int) { setSocket(own, value) }); errors.Is(err, unix.ESRCH) {
			return false
		}
	}
	for _, fd := range files.epolls {
		if err = p.with(fd, func(own int) { setEpoll(own, value) }); errors.Is(err, unix.ESRCH) {
			return false
		}
	}
	p.seen = files.sockets
	return true
}

// with calls do with a copy of one of the process's descriptors.
func (p *process) with(fd int, do func(own int)) error {
	own, err := unix.PidfdGetfd(p.fd, fd, 0)
	if err != nil {
		return err
	}
	do(own)
	return unix.Close(own)
}

// before returns the value that this one replaces. Any other value was not set by this package.
func before(value int) int { return microseconds - value }

// setSocket sets SO_BUSY_POLL of a socket that carries packets.
func setSocket(fd, value int) {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil || domain != unix.AF_INET && domain != unix.AF_INET6 && domain != unix.AF_PACKET {
		return
	}
	now, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BUSY_POLL)
	if err == nil && now == before(value) {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BUSY_POLL, value) // the kernel may not support it
	}
}

// epollParams is struct epoll_params of include/uapi/linux/eventpoll.h.
type epollParams struct {
	microseconds uint32
	packets      uint16
	prefer, _    uint8
}

// setEpoll sets how an epoll polls before it sleeps, since Linux 6.9.
func setEpoll(fd, value int) {
	var p epollParams
	if !ioctl(fd, unix.EPIOCGPARAMS, &p) || int(p.microseconds) != before(value) {
		return
	}
	p.microseconds, p.packets = uint32(value), packets
	if value == 0 {
		p.packets = 0
	}
	ioctl(fd, unix.EPIOCSPARAMS, &p)
}

func ioctl(fd int, request uintptr, p *epollParams) bool {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(p)))
	return errno == 0
}

// open has the descriptors of a process that can poll.
type open struct {
	sockets map[int]string // those in no epoll, by number
	epolls  []int
}

func descriptors(root fs.FS, pid int) (o open, err error) {
	dir := task.Dir(pid)
	entries, err := fs.ReadDir(root, dir+"/fd")
	o.sockets = map[int]string{}
	watched := map[string]bool{}
	for _, e := range entries {
		is, lerr := fs.ReadLink(root, dir+"/fd/"+e.Name())
		fd, nerr := strconv.Atoi(e.Name())
		if lerr != nil || nerr != nil {
			continue // closed meanwhile
		}
		switch {
		case strings.HasPrefix(is, "socket:"):
			o.sockets[fd] = is
		case is == "anon_inode:[eventpoll]":
			o.epolls = append(o.epolls, fd)
			text, _ := fs.ReadFile(root, dir+"/fdinfo/"+e.Name()) // closed meanwhile: none
			watch(string(text), watched)
		}
	}
	maps.DeleteFunc(o.sockets, func(_ int, is string) bool { return watched[is] })
	return o, err
}

// watch adds the sockets that an epoll watches according to proc_pid_fdinfo(5), in the form of the links in
// /proc/PID/fd.
func watch(fdinfo string, watched map[string]bool) {
	for field := range strings.FieldsSeq(fdinfo) {
		hex, is := strings.CutPrefix(field, "ino:")
		if inode, err := strconv.ParseUint(hex, 16, 64); is && err == nil {
			watched[fmt.Sprintf("socket:[%d]", inode)] = true
		}
	}
}
