package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// crun is the container runtime. runc insists on a cgroup of its own, which would move the container out of
// the caller's.
const crun = "crun"

// The parts of an OCI bundle's config.json that are used here (opencontainers/runtime-spec, v1.0.2, config.md
// and config-linux.md).
type (
	bundle struct {
		Version  string  `json:"ociVersion"`
		Process  program `json:"process"`
		Root     root    `json:"root"`
		Hostname string  `json:"hostname"`
		Mounts   []mount `json:"mounts"`
		Linux    linux   `json:"linux"`
	}
	program struct {
		User         user                `json:"user"`
		Args         []string            `json:"args"`
		Env          []string            `json:"env"`
		Cwd          string              `json:"cwd"`
		Capabilities map[string][]string `json:"capabilities"`
		NoNew        bool                `json:"noNewPrivileges"`
	}
	user struct {
		UID int `json:"uid"`
		GID int `json:"gid"`
	}
	root struct {
		Path     string `json:"path"`
		Readonly bool   `json:"readonly"`
	}
	mount struct {
		Destination string   `json:"destination"`
		Type        string   `json:"type"`
		Source      string   `json:"source"`
		Options     []string `json:"options,omitempty"`
	}
	linux struct {
		Namespaces []namespace `json:"namespaces"`
	}
	namespace struct {
		Type string `json:"type"`
	}
)

// contain runs argv in a container. Its mounts are in a namespace that ends with it. What crun records of it
// is in the guest's directory.
func (g Guest) contain(ctx context.Context, argv []string) (int, error) {
	if err := g.bundle(argv); err != nil {
		return 1, err
	}
	name := fmt.Sprintf("isolane-%d", os.Getpid())
	global := []string{"--root", filepath.Join(g.Dir, "state"), "--cgroup-manager=disabled"}
	runtime.LockOSThread() // never unlocked: the thread ends, with all that it has changed
	if err := noHybrid(); err != nil {
		return 1, err
	}
	cmd := child(ctx, crun, append(global, "run", "--bundle", g.Dir, name)...)
	// Copied instead of inherited: whoever waits for the end of the output must not wait for a container whose
	// runtime was killed.
	cmd.Stdout, cmd.Stderr = writer{os.Stdout}, writer{os.Stderr}
	cmd.WaitDelay = time.Second
	code, err := exitCode(cmd.Run())
	if ctx.Err() == nil {
		return code, err
	}
	// A killed crun leaves the container behind.
	_ = child(context.WithoutCancel(ctx), crun, append(global, "delete", "--force", name)...).Run()
	return 1, ctx.Err()
}

// noHybrid hides the second hierarchy of a host that has both cgroups v1 and v2. crun refuses such a host if
// v2 has a controller, even if it is not to use cgroups. Only this thread, and what it starts, is affected.
func noHybrid() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("a mount namespace of its own: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("/: private mounts: %w", err)
	}
	const second = "/sys/fs/cgroup/unified"
	err := unix.Unmount(second, unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // there is none
		return fmt.Errorf("%s: %w", second, err)
	}
	return nil
}

// writer hides that it is a file, so that package exec copies.
type writer struct{ f *os.File }

func (w writer) Write(p []byte) (int, error) { return w.f.Write(p) }

// bundle writes config.json and the root, whose folders are mount points.
func (g Guest) bundle(argv []string) error {
	rootfs := filepath.Join(g.Dir, "rootfs")
	mounts, err := hostMounts(rootfs, argv[0])
	if err != nil {
		return err
	}
	// Priorities and locked memory, whatever the limits are, and root's right to read files.
	may := []string{"CAP_SYS_NICE", "CAP_IPC_LOCK", "CAP_DAC_OVERRIDE"}
	namespaces := []namespace{{"pid"}, {"mount"}, {"ipc"}, {"uts"}}
	if s := g.Serve; s == nil {
		namespaces = append(namespaces, namespace{"network"})
	} else {
		mounts = append(mounts, s.mounts()...)
		may = append(may, usual()...)
		for _, c := range s.Capabilities {
			may = append(may, "CAP_"+c)
		}
	}
	config := bundle{Version: "1.0.2",
		Process: program{Args: argv, Env: os.Environ(), Cwd: "/", NoNew: true,
			Capabilities: map[string][]string{"bounding": may, "effective": may, "permitted": may}},
		Root: root{"rootfs", true}, Hostname: "isolane", Mounts: mounts,
		Linux: linux{namespaces}}
	data, err := json.MarshalIndent(config, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(g.Dir, "config.json"), data, 0o600)
}

// usual returns the capabilities that serving programs usually have in containers (the defaults of moby and
// containerd): they may use ports below 1024, and become other users.
func usual() []string {
	return []string{"CAP_CHOWN", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_NET_BIND_SERVICE", "CAP_NET_RAW",
		"CAP_SETGID", "CAP_SETUID"}
}

// usersFiles have the names of users, which serving programs look up.
func usersFiles() []string { return []string{"/etc/passwd", "/etc/group"} }

// mounts returns the mounts for a serving program: user names, its folder, and the tunnel device if the host
// has it.
func (s Serve) mounts() []mount {
	all := []mount{{"/run", "tmpfs", "tmpfs", []string{"nosuid", "nodev", "mode=755"}}}
	for _, file := range usersFiles() {
		all = append(all, mount{file, "bind", file, []string{"bind", "ro", "nosuid"}})
	}
	const tunnels = "/dev/net/tun"
	if _, err := os.Stat(tunnels); err == nil {
		all = append(all, mount{tunnels, "bind", tunnels, []string{"bind", "nosuid"}})
	}
	if s.Folder != "" { // it may be in /tmp, which is mounted before
		all = append(all, mount{s.Folder, "bind", s.Folder, []string{"rbind", "nosuid"}})
	}
	return all
}

// hostMounts returns the mounts of the host's programs and libraries. A folder that is a link, such as /bin
// on hosts with a merged /usr, is the same link there.
func hostMounts(rootfs, program string) ([]mount, error) {
	mounts := []mount{
		{"/proc", "proc", "proc", []string{"nosuid", "noexec", "nodev"}},
		{"/dev", "tmpfs", "tmpfs", []string{"nosuid", "strictatime", "mode=755", "size=64k"}},
		{"/sys", "sysfs", "sysfs", []string{"nosuid", "noexec", "nodev", "ro"}},
		{"/tmp", "tmpfs", "tmpfs", []string{"nosuid", "nodev", "mode=1777"}},
	}
	err := os.MkdirAll(rootfs+"/var", 0o755)
	if err == nil {
		err = os.Symlink("/run", rootfs+"/var/run") // where older programs look for it
	}
	if err != nil {
		return nil, err
	}
	bind := func(path string) {
		mounts = append(mounts, mount{path, "bind", path, []string{"rbind", "ro", "nosuid"}})
	}
	for _, dir := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64"} {
		if to, err := os.Readlink(dir); err == nil {
			if err = os.Symlink(to, rootfs+dir); err != nil {
				return nil, err
			}
		} else if _, err = os.Stat(dir); err == nil {
			bind(dir)
		}
	}
	if !strings.HasPrefix(program, "/usr/") {
		bind(program)
	}
	// With this device a program keeps CPUs out of deep idle states.
	const idle = "/dev/cpu_dma_latency"
	if _, err := os.Stat(idle); err == nil {
		mounts = append(mounts, mount{idle, "bind", idle, []string{"bind", "nosuid"}})
	}
	return mounts, nil
}
