// Package netdev has the kinds of step that make network namespaces and devices, and set up devices.
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

// Dir is where ip-netns(8) keeps the names of namespaces.
const Dir = "/run/netns"

// KindNamespace is a named network namespace. A value is "", Present (a new one, with its loopback up), or
// the namespace of a process, as OfProcess returns it.
const KindNamespace = "netns"

// Present is the value of something that exists.
const Present = "present"

// Ops returns the operation of each kind.
func Ops() map[string]journal.Op {
	return map[string]journal.Op{KindLink: link{}, KindMaster: master{}, KindNamespace: netNS{},
		kindRate: rate{}, KindPolice: police{}, kindTap: tap{}, kindLent: lent{}, kindUnicast: unicast(),
		kindStation: station(), kindPromiscuous: promiscuous{}}
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
	start uint64 // see task.StartTime: another process may get the same pid
}

func parseOwner(value string) (o owner, err error) {
	if _, err = fmt.Sscanf(value, "%d:%d:%d", &o.inode, &o.pid, &o.start); err != nil {
		err = fmt.Errorf("network namespace %q: expected INODE:PID:START", value)
	}
	return o, err
}

// OfProcess returns the value of a step that names the network namespace of a process: INODE:PID:START.
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

// Inode returns the inode of a namespace as OfProcess returns it; 0 for other values.
func Inode(value string) uint64 {
	o, _ := parseOwner(value)
	return o.inode
}

// NamedInode returns the inode of a named namespace.
func NamedInode(name string) (uint64, error) {
	ns, err := openNamespace(name)
	if err != nil {
		return 0, err
	}
	inode, err := inodeOf(ns)
	return inode, errors.Join(err, ns.Close())
}

// HasDevice reports whether a namespace, as OfProcess returns it, has a device of this name.
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

// open opens the namespace. It fails with fs.ErrNotExist if the process has ended or has left it.
func (o owner) open() (netns.NsHandle, error) {
	ns, err := netns.GetFromPid(o.pid)
	if err != nil {
		return ns, err
	}
	inode, err := inodeOf(ns)
	start, serr := task.StartTime(os.DirFS("/"), o.pid) // after opening: so the namespace was this process's
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

// CheckName returns an error unless name can be that of a network namespace or device, and is no path.
func CheckName(name string) error {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
	if strings.Trim(name, ".") == "" || len(name) > 80 || strings.Trim(name, allowed) != "" {
		return fmt.Errorf("%q: expected a name of letters, digits, dots, - and _", name)
	}
	return nil
}

// Shell returns an ip-netns(8) command.
func (netNS) Shell(s journal.Step) string {
	if s.After == "" {
		return "ip netns del " + s.Target
	}
	if o, err := parseOwner(s.After); err == nil {
		return fmt.Sprint("ip netns attach ", s.Target, " ", o.pid)
	}
	return "ip netns add " + s.Target
}

// bare is the value of a file without a mounted namespace, which a crash leaves before or after the mount.
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

// MayOverwrite reports whether a crash has left the file. Then it is Isolane's.
func (netNS) MayOverwrite(_ journal.Step, now string) bool { return now == bare }

// Write makes the namespace as ip-netns(8) does, but sets its loopback up before giving it a name. The
// namespace of a process only gets a name.
func (netNS) Write(_ context.Context, s journal.Step, value string) error {
	file := filepath.Join(Dir, s.Target)
	if value != Present {
		if err := unix.Unmount(file, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil &&
			!errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // left by a crash
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

// shareDir makes the directory of names a shared mount, as the first "ip netns add" does, and leaves it so.
// If that first call came after Isolane had made a name, it would mount over the name, and nobody could
// remove it.
func shareDir() error {
	err := unix.Mount("", Dir, "", unix.MS_SHARED|unix.MS_REC, "")
	if errors.Is(err, unix.EINVAL) { // not a mount yet
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

// openNamespace opens a namespace by its name. It fails with fs.ErrNotExist for a file that is no namespace.
func openNamespace(name string) (netns.NsHandle, error) { return openBelow("/proc/1/root", name) }

// openBelow is openNamespace with the root of the machine. A container that began before the namespace may
// see only the file. To remove that, as one that a crash has left, would take the namespace from the machine.
func openBelow(machine, name string) (netns.NsHandle, error) {
	file := filepath.Join(Dir, name)
	ns, err := openFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		if _, lerr := os.Lstat(file); lerr != nil { // no file either
			return ns, err
		}
		if machines, merr := openFile(machine + file); merr == nil {
			return machines, nil
		}
	}
	return ns, err
}

// openFile opens a namespace. It fails with fs.ErrNotExist for a file that is none.
func openFile(file string) (netns.NsHandle, error) {
	ns, err := netns.GetFromPath(file)
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

// InNew calls f in a new network namespace, which nobody else sees, on a thread of its own. In f the
// functions of package netlink act on that namespace.
func InNew(f func() error) error {
	return inThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		return f()
	})
}

// In calls f inside the namespace, on a thread of its own.
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

// inThread calls f on a thread that ends with f: so what f changes of the thread, such as its namespace,
// affects no other goroutine.
func inThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- f()
	}()
	return <-done
}

// Open opens the netlink socket of a named namespace, or of the host for "".
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
