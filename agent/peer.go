package agent

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"slices"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Group is the group whose members may change lanes through the socket, if the host has it.
const Group = "isolane"

// group returns its id, or root's if the host has no such group.
func group() int {
	if g, err := user.LookupGroup(Group); err == nil {
		if id, aerr := strconv.Atoi(g.Gid); aerr == nil {
			return id
		}
	}
	return 0
}

// peer is the process at the other end of the socket; nil for TCP.
type peer struct {
	pid, uid int
	groups   []int
}

// changes reports whether the peer may change lanes.
func (p *peer) changes(group int) bool {
	return p != nil && (p.uid == 0 || slices.Contains(p.groups, group))
}

type peerKey struct{}

// withPeer stores the peer of a connection in its context.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return ctx
	}
	p, err := peerOf(u)
	if err != nil {
		p = &peer{uid: -1} // nobody
	}
	return context.WithValue(ctx, peerKey{}, p)
}

// peerOf asks the kernel for the peer (SO_PEERCRED and SO_PEERGROUPS, unix(7)), as it was when it connected.
func peerOf(c *net.UnixConn) (*peer, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var p peer
	var cerr error
	err = raw.Control(func(fd uintptr) {
		var cred *unix.Ucred
		if cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); cerr != nil {
			return
		}
		p = peer{int(cred.Pid), int(cred.Uid), []int{int(cred.Gid)}}
		var buffer [4 << 10]byte
		size := uint32(len(buffer))
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&buffer[0])), uintptr(unsafe.Pointer(&size)), 0)
		if errno != 0 { // Linux before 4.13, or a thousand groups: only the primary group is known
			return
		}
		for at := 0; at+4 <= int(size); at += 4 {
			p.groups = append(p.groups, int(binary.NativeEndian.Uint32(buffer[at:])))
		}
	})
	return &p, errors.Join(err, cerr)
}

// ServedError says that another program already serves the agent's socket.
type ServedError struct{ Socket, By string }

func (e *ServedError) Error() string {
	return fmt.Sprintf("%s: %s serves it: end that, or name another --socket", e.Socket, e.By)
}

// listenUnix listens at a path. It replaces the socket of an agent that has ended.
func listenUnix(path string, mode fs.FileMode) (net.Listener, error) {
	info, err := os.Lstat(path)
	if err == nil && info.Mode().Type() != fs.ModeSocket {
		return nil, fmt.Errorf("%s: expected a socket or nothing, found %s: name another --socket", path,
			info.Mode())
	}
	if err == nil {
		c, cerr := net.Dial("unix", path)
		if cerr == nil {
			defer c.Close()
			who := "another program"
			if p, perr := peerOf(c.(*net.UnixConn)); perr == nil {
				who = fmt.Sprintf("process %d", p.pid)
			}
			return nil, &ServedError{path, who}
		}
		if !errors.Is(cerr, syscall.ECONNREFUSED) {
			return nil, cerr
		}
		if err = os.Remove(path); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err = errors.Join(os.Chown(path, 0, group()), os.Chmod(path, mode)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}
