// Package netdev has the kinds of step that make network namespaces and devices, and set the latter.
package netdev

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/journal"
)

// Dir is where ip-netns(8) keeps its names.
const Dir = "/run/netns"

// KindNamespace is a named network namespace with its loopback up: "" or Present.
const KindNamespace = "netns"

// Present is the value of a namespace that is there.
const Present = "present"

// Ops returns the operation of each kind.
func Ops() map[string]journal.Op {
	return map[string]journal.Op{KindLink: link{}, KindMaster: master{}, KindNamespace: netNS{},
		KindRate: rate{}}
}

type netNS struct{}

func (netNS) Check(s journal.Step) error { return CheckName(s.Target) }

// CheckName says whether a name can be that of a network namespace or device, and no path.
func CheckName(name string) error {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
	if strings.Trim(name, ".") == "" || len(name) > 80 || strings.Trim(name, allowed) != "" {
		return fmt.Errorf("%q: expected a name of letters, digits, dots, - and _", name)
	}
	return nil
}

// Shell is ip-netns(8).
func (netNS) Shell(s journal.Step) string {
	if s.After == "" {
		return "ip netns del " + s.Target
	}
	return "ip netns add " + s.Target
}

func (netNS) Read(_ context.Context, s journal.Step) (string, error) {
	ns, err := netns.GetFromPath(filepath.Join(Dir, s.Target))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return Present, ns.Close()
}

func (netNS) Write(_ context.Context, s journal.Step, value string) error {
	if value == "" {
		return netns.DeleteNamed(s.Target)
	}
	if err := os.MkdirAll(Dir, 0o755); err != nil {
		return err
	}
	return inThread(func() error {
		ns, err := netns.NewNamed(s.Target) // and enters it
		if err != nil {
			return err
		}
		defer ns.Close()
		return withLoopback((*netlink.Handle).LinkSetUp)
	})
}

// withLoopback calls f with the loopback device of the namespace that this thread is in.
func withLoopback(f func(*netlink.Handle, netlink.Link) error) error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err != nil {
		return err
	}
	return f(h, lo)
}

// In calls f in a thread of its own inside the namespace.
func In(name string, f func() error) error {
	return inThread(func() error {
		ns, err := netns.GetFromPath(filepath.Join(Dir, name))
		if err != nil {
			return err
		}
		defer ns.Close()
		if err = netns.Set(ns); err != nil {
			return err
		}
		return f()
	})
}

// inThread calls f in a thread of its own, which ends with it: what f changes of the thread, such
// as its namespace, does not reach another goroutine.
func inThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- f()
	}()
	return <-done
}

// Open opens the netlink socket of a named namespace, or that of the host for "".
func Open(name string) (*netlink.Handle, error) {
	if name == "" {
		return netlink.NewHandle(unix.NETLINK_ROUTE)
	}
	ns, err := netns.GetFromPath(filepath.Join(Dir, name))
	if err != nil {
		return nil, fmt.Errorf("network namespace %s: %w", name, err)
	}
	defer ns.Close()
	return netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
}
