package inside

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// overlaid returns the folders of the host that a node sees, and changes only for itself. A restart drops the
// changes.
func overlaid() []string { return []string{"/etc", "/opt", "/var/lib", "/var/log"} }

// kept returns the folders on a node's disk.
func kept() []string {
	return []string{"/var/lib/kubelet", "/var/lib/containerd", "/var/lib/cni", "/var/log/pods", "/etc/cni",
		"/etc/containerd"}
}

// sysctls returns what the kubelet sets for the whole kernel: a node writes to copies.
func sysctls() []string {
	return []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
		"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"}
}

// Journals is the only folder of /run that nodes share with their host: a journal of changes of the host must
// outlive the node.
const Journals = "/run/isolane"

// mounter mounts until something fails.
type mounter struct{ err error }

func (m *mounter) mount(source, target, kind string, flags uintptr, options string) {
	if m.err != nil {
		return
	}
	if err := unix.Mount(source, target, kind, flags, options); err != nil {
		m.err = fmt.Errorf("mount %s at %s: %w", source, target, err)
	}
}

func (m *mounter) bind(source, target string) {
	m.mount(source, target, "", unix.MS_BIND|unix.MS_REC, "")
}

func (m *mounter) mkdir(dirs ...string) {
	for _, dir := range dirs {
		if m.err == nil {
			m.err = os.MkdirAll(dir, 0o755)
		}
	}
}

// copied replaces a file by a copy.
func (m *mounter) copied(name, copied string) {
	m.mkdir(filepath.Dir(copied))
	data, err := os.ReadFile(name)
	if err == nil {
		err = os.WriteFile(copied, data, 0o644)
	}
	if m.err == nil {
		m.err = err
	}
	m.bind(copied, name)
}

// unmountBelow unmounts what another mount is about to hide: network namespaces of the host would live as
// long as the node.
func (m *mounter) unmountBelow(prefix string) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if m.err == nil {
		m.err = err
	}
	for line := range strings.Lines(string(mounts)) {
		if target := strings.Fields(line)[1]; strings.HasPrefix(target, prefix) && m.err == nil {
			// A mount below another one went with it.
			err = unix.Unmount(target, unix.MNT_DETACH)
			if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
				m.err = fmt.Errorf("umount %s: %w", target, err)
			}
		}
	}
}

// mount makes the node's view: the host's files, with its own /run, /proc, /etc and /var.
func (c Config) mount() error {
	m := &mounter{}
	// Nothing of this reaches the host, and what the host unmounts disappears here too.
	m.mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, "")
	m.unmountBelow("/run/")
	m.mount("proc", "/proc", "proc", 0, "")
	memory := filepath.Join(c.State, "memory")
	m.mkdir(memory)
	m.mount("tmpfs", memory, "tmpfs", 0, "mode=755")
	for _, dir := range overlaid() {
		if _, err := os.Stat(dir); err != nil {
			continue
		}
		upper, work := filepath.Join(memory, "upper", dir), filepath.Join(memory, "work", dir)
		m.mkdir(upper, work)
		m.mount("overlay", dir, "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", dir, upper, work))
	}
	for _, dir := range kept() {
		own := filepath.Join(c.State, "disk", dir)
		m.mkdir(own, dir)
		m.bind(own, dir)
	}
	run := filepath.Join(memory, "run")
	m.mkdir(filepath.Join(memory, Journals), filepath.Join(run, "lock"))
	m.bind(Journals, filepath.Join(memory, Journals))
	if c.Systemd {
		for _, dir := range []string{"systemd", "dbus"} { // its sockets, and the sign that it is process 1
			if _, err := os.Stat("/run/" + dir); err == nil {
				m.mkdir(filepath.Join(run, dir))
				m.bind("/run/"+dir, filepath.Join(run, dir))
			}
		}
	}
	m.bind(run, "/run")
	for _, name := range sysctls() {
		m.copied("/proc/sys/"+name, filepath.Join(c.State, "sysctl", strings.ReplaceAll(name, "/", ".")))
	}
	if c.Topology != "" {
		for _, dir := range []string{"cpu", "node"} {
			m.bind(filepath.Join(c.Topology, dir), "/sys/devices/system/"+dir)
		}
	}
	m.mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "") // mounts of the kubelet reach containers
	return m.err
}
