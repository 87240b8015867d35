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

	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/journal"
)

// Dir is where ip-netns(8) keeps its names.
const Dir = "/run/netns"

// KindNamespace is a named network namespace: "", Present with its loopback up, or that of a process, as
// OfProcess returns it.
const KindNamespace = "netns"

// Present is the value of a namespace that is there.
const Present = "present"

// Ops returns the operation of each kind.
func Ops() map[string]journal.Op {
	return map[string]journal.Op{KindLink: link{}, KindMaster: master{}, KindNamespace: netNS{},
		kindRate: rate{}, KindPolice: police{}, kindTap: tap{}, kindUnicast: unicast(), kindStation: station(),
		kindPromiscuous: promiscuous{}}
}

type netNS struct{}

func (netNS) Check(s journal.Step) error {
	if _, err := parseOwner(s.After); s.After != "" && s.After != Present && err != nil {
		return err
	}
	return CheckName(s.Target)
}

// owner is a process and its network namespace.
type owner struct {
	inode uint64
	pid   int
	start uint64 // see task.StartTime: its number may become another's
}

func parseOwner(value string) (o owner, err error) {
	if _, err = fmt.Sscanf(value, "%d:%d:%d", &o.inode, &o.pid, &o.start); err != nil {
		err = fmt.Errorf("network namespace %q: expected INODE:PID:START", value)
	}
	return o, err
}

// OfProcess is the value of a step that names the network namespace which a process has.
func OfProcess(root fs.FS, pid int) (string, error) {
	var inode uint64
	dir := task.Dir(pid)
	link, err := fs.ReadLink(root, dir+"/ns/net")
	if err != nil {
		return "", err
	}
	if _, err = fmt.Sscanf(link, "net:[%d]", &inode); err != nil { // namespaces(7)
		return "", fmt.Errorf("/%s/ns/net: expected net:[INODE], found %q", dir, link)
	}
	start, err := task.StartTime(root, pid)
	return fmt.Sprintf("%d:%d:%d", inode, pid, start), err
}

// Inode is that of a namespace of OfProcess; 0 of others.
func Inode(value string) uint64 {
	o, _ := parseOwner(value)
	return o.inode
}

// NamedInode is that of a named namespace.
func NamedInode(name string) (uint64, error) {
	ns, err := openNamespace(name)
	if err != nil {
		return 0, err
	}
	inode, err := inodeOf(ns)
	return inode, errors.Join(err, ns.Close())
}

// HasDevice says whether the namespace of a process, of OfProcess, has a device of this name.
func HasDevice(of, device string) (bool, error) {
	o, err := parseOwner(of)
	if err != nil {
		return false, err
	}
	ns, err := o.open()
	if err != nil {
		return false, err
	}
	defer ns.Close()
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return false, err
	}
	defer h.Close()
	_, err = h.LinkByName(device)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return false, nil
	}
	return err == nil, err
}

// open opens the namespace, if the process still has it.
func (o owner) open() (netns.NsHandle, error) {
	ns, err := netns.GetFromPid(o.pid)
	if err != nil {
		return ns, err
	}
	inode, err := inodeOf(ns)
	start, serr := task.StartTime(os.DirFS("/"), o.pid) // after it is open: so it was of this process
	if err = errors.Join(err, serr); err == nil && (inode != o.inode || start != o.start) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return ns, errors.Join(fmt.Errorf("process %d and its network namespace have ended: %w", o.pid, err),
			ns.Close())
	}
	return ns, nil
}

func inodeOf(ns netns.NsHandle) (uint64, error) {
	var at unix.Stat_t
	err := unix.Fstat(int(ns), &at)
	return at.Ino, err
}

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
	if o, err := parseOwner(s.After); err == nil {
		return fmt.Sprint("ip netns attach ", s.Target, " ", o.pid)
	}
	return "ip netns add " + s.Target
}

// bare is what a crash before or after the mount leaves: a file at which no namespace is.
const bare = "a file without a namespace"

func (netNS) Read(_ context.Context, s journal.Step) (string, error) {
	ns, err := openNamespace(s.Target)
	if err == nil {
		inode, ierr := inodeOf(ns)
		value := Present
		for _, v := range []string{s.Before, s.After} {
			if Inode(v) == inode {
				value = v
			}
		}
		return value, errors.Join(ierr, ns.Close())
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if _, err = os.Lstat(filepath.Join(Dir, s.Target)); err == nil {
		return bare, nil
	}
	return "", nil
}

// MayOverwrite says that what a crash has left is ours.
func (netNS) MayOverwrite(_ journal.Step, now string) bool { return now == bare }

// Write makes the namespace as ip-netns(8) does, but with its loopback up before it has its name; that of a
// process gets the name, and is left as it is.
func (netNS) Write(_ context.Context, s journal.Step, value string) error {
	file := filepath.Join(Dir, s.Target)
	if value != Present {
		if err := unix.Unmount(file, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil &&
			!errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // what a crash has left
			return err
		}
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if value == "" {
		return nil
	}
	if err := errors.Join(os.MkdirAll(Dir, 0o755), shareDir()); err != nil {
		return err
	}
	if o, err := parseOwner(value); err == nil {
		ns, err := o.open()
		if err != nil {
			return err
		}
		defer ns.Close()
		return bind(fmt.Sprint("/proc/self/fd/", int(ns)), file)
	}
	return InNew(func() error {
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			err = netlink.LinkSetUp(lo)
		}
		if err != nil {
			return err
		}
		return bind("/proc/thread-self/ns/net", file)
	})
}

// shareDir makes the directory of names a mount of its own, which other mount namespaces follow, as the first
// "ip netns add" does, and leaves it. After a name of ours that would mount over it, and nobody could take
// the name away.
func shareDir() error {
	err := unix.Mount("", Dir, "", unix.MS_SHARED|unix.MS_REC, "")
	if errors.Is(err, unix.EINVAL) { // no mount yet
		if err = unix.Mount(Dir, Dir, "", unix.MS_BIND|unix.MS_REC, ""); err == nil {
			err = unix.Mount("", Dir, "", unix.MS_SHARED|unix.MS_REC, "")
		}
	}
	return err
}

// bind gives a namespace a name.
func bind(ns, file string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), unix.Mount(ns, file, "", unix.MS_BIND, ""))
}

// openNamespace opens a namespace by its name; a file that is none is not there.
func openNamespace(name string) (netns.NsHandle, error) {
	ns, err := netns.GetFromPath(filepath.Join(Dir, name))
	if err != nil {
		return ns, err
	}
	var at unix.Statfs_t
	if err = unix.Fstatfs(int(ns), &at); err == nil && at.Type != unix.NSFS_MAGIC {
		err = fs.ErrNotExist
	}
	if err != nil {
		return ns, errors.Join(err, ns.Close())
	}
	return ns, nil
}

// InNew calls f in a thread of its own inside a new namespace, which nobody else sees. There the functions of
// package netlink act on it.
func InNew(f func() error) error {
	return inThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		return f()
	})
}

// In calls f in a thread of its own inside the namespace.
func In(name string, f func() error) error {
	return inThread(func() error {
		ns, err := openNamespace(name)
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
	ns, err := openNamespace(name)
	if err != nil {
		return nil, fmt.Errorf("network namespace %s: %w", name, err)
	}
	defer ns.Close()
	return netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
}
