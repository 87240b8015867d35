package lab

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
)

// suite is the Debian release that everything in the lab comes from.
const suite = "trixie"

//go:embed init-ram.sh
var initRAM []byte

//go:embed init-root.sh
var initRoot []byte

// packages of the guest, and those with QEMU, which runs with its own libraries.
func guestPackages() []string {
	return []string{"busybox-static", "iproute2", "iputils-ping", "iperf3", "ethtool", "pciutils", "util-linux", "mount", "hostname", "kmod",
		"procps", "numactl", "rt-tests", "stress-ng", "nftables", "hwloc-nox"}
}

func qemuPackages() []string { return []string{"qemu-system-x86", "ipxe-qemu", "libc6"} }

// folders of kernel modules that the guest gets.
func moduleFolders() []string {
	return []string{"net", "lib", "crypto", "kernel", "mm", "arch", "block", "fs/9p", "fs/ext4", "fs/jbd2", "fs/overlayfs", "fs/netfs", "fs/nls",
		"drivers/net/ethernet/intel", "drivers/net/phy", "drivers/net/mdio", "drivers/net/ipvlan", "drivers/net/vxlan", "drivers/vfio",
		"drivers/iommu", "drivers/virtio", "drivers/block", "drivers/nvme", "drivers/char", "drivers/vhost", "drivers/ptp", "drivers/dca",
		"drivers/i2c", "drivers/pci", "drivers/acpi", "drivers/cpufreq", "virt", "fs/fuse"}
}

// Lab is what machines are made of: a folder with QEMU, kernels and the root image.
type Lab struct{ dir string }

// Cache returns the folder for labs: $ISOLANE_LAB_CACHE, or isolane-lab in the user's cache.
func Cache() (string, error) {
	if dir := os.Getenv("ISOLANE_LAB_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "isolane-lab"), err
}

// Open returns the lab that was built last.
func Open(cache string) (Lab, error) {
	dir, err := filepath.EvalSymlinks(filepath.Join(cache, "current"))
	if err != nil {
		return Lab{}, fmt.Errorf("%s: there is no lab yet: build it with isolane-lab build (root, and the network once)", cache)
	}
	return Lab{dir}, nil
}

// qemu is QEMU's command line through its own loader: nothing of it is installed.
func (l Lab) qemu(args []string) (string, []string) {
	root := filepath.Join(l.dir, "qemu")
	lib := root + "/usr/lib/x86_64-linux-gnu"
	return root + "/usr/lib64/ld-linux-x86-64.so.2", append([]string{"--library-path", lib + ":" + lib + "/pulseaudio", "--argv0", "qemu-system-x86_64",
		root + "/usr/bin/qemu-system-x86_64", "-L", root + "/usr/share/qemu", "-L", root + "/usr/share/seabios", "-L", root + "/usr/lib/ipxe/qemu"}, args...)
}

// builder makes a lab in a folder of its own, which gets its name when all is there.
type builder struct {
	ctx  context.Context //nolint:containedctx // one call, many steps
	dir  string
	apt  []string // options that keep apt off the machine's own lists
	log  io.Writer
	from time.Time
}

// Build makes the lab of the newest packages, unless it is there. It needs root, mmdebstrap and the
// network.
func Build(ctx context.Context, cache string, log io.Writer) (Lab, error) {
	for _, program := range []string{"mmdebstrap", "mkfs.ext4", "xz", "apt-get"} {
		if _, err := exec.LookPath(program); err != nil {
			return Lab{}, fmt.Errorf("%s is missing: apt-get install mmdebstrap e2fsprogs xz-utils", program)
		}
	}
	if os.Geteuid() != 0 {
		return Lab{}, errors.New("building the lab needs root; running it does not")
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return Lab{}, err
	}
	var disk unix.Statfs_t
	const need = 3 << 30
	if err := unix.Statfs(cache, &disk); err == nil && disk.Bavail*uint64(disk.Bsize) < need { //nolint:gosec // G115: a block size
		return Lab{}, fmt.Errorf("%s: %d MiB are free, the lab needs %d: set ISOLANE_LAB_CACHE to a larger disk", cache, disk.Bavail*uint64(disk.Bsize)>>20, need>>20) //nolint:gosec // G115: as above
	}
	dir, err := os.MkdirTemp(cache, ".building-")
	if err != nil {
		return Lab{}, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // gone after the rename
	b := &builder{ctx: ctx, dir: dir, log: log, from: time.Now()}
	key, kernels, err := b.versions()
	if err != nil {
		return Lab{}, err
	}
	final := filepath.Join(cache, key)
	if _, err := os.Stat(final); err != nil {
		for _, step := range []func() error{b.qemu, func() error { return b.kernels(kernels) }, func() error { return b.root(kernels) }} {
			if err := step(); err != nil {
				return Lab{}, err
			}
		}
		_ = os.RemoveAll(filepath.Join(dir, "apt"))
		if err := os.Chmod(dir, 0o755); err != nil {
			return Lab{}, err
		}
		if err := os.Rename(dir, final); err != nil {
			return Lab{}, err
		}
	}
	link := filepath.Join(cache, ".current")
	_ = os.Remove(link)
	if err := os.Symlink(key, link); err != nil {
		return Lab{}, err
	}
	b.say("lab %s is ready", key)
	return Lab{final}, os.Rename(link, filepath.Join(cache, "current"))
}

func (b *builder) say(format string, args ...any) {
	fmt.Fprintf(b.log, "%3.0f s  %s\n", time.Since(b.from).Seconds(), fmt.Sprintf(format, args...))
}

// run runs a program; its error has the end of what the program said.
func (b *builder) run(name string, args ...string) (string, error) {
	cmd := exec.CommandContext(b.ctx, name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		lines := strings.Split(strings.TrimSpace(said.String()), "\n")
		return "", fmt.Errorf("%s: %w: %s", name, err, strings.Join(lines[max(0, len(lines)-3):], " | "))
	}
	return out.String(), nil
}

// versions reads the suite's lists, whose signature apt checks, from the mirror that the machine itself
// uses. It returns a name for the lab, made from the versions of its packages and its own files, and
// the kernels' releases.
func (b *builder) versions() (key string, kernels map[string]string, err error) {
	mirrors, err := b.run("apt-get", "indextargets", "--format", "$(REPO_URI) $(COMPONENT) $(LABEL)", "Identifier: Packages")
	if err != nil {
		return "", nil, err
	}
	mirror := ""
	for line := range strings.Lines(mirrors) {
		if f := strings.Fields(line); len(f) == 3 && f[1] == "main" && f[2] == "Debian" {
			mirror = f[0]
			break
		}
	}
	if mirror == "" {
		return "", nil, errors.New("apt-get indextargets: no mirror with Debian's main among the machine's sources: run apt-get update")
	}
	apt := filepath.Join(b.dir, "apt")
	for _, d := range []string{"lists/partial", "cache/archives/partial"} {
		if err = os.MkdirAll(filepath.Join(apt, d), 0o755); err != nil {
			return "", nil, err
		}
	}
	sources := fmt.Sprintf("Types: deb\nURIs: %s\nSuites: %s\nComponents: main\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n", mirror, suite)
	if err = os.WriteFile(filepath.Join(apt, "lab.sources"), []byte(sources), 0o600); err != nil {
		return "", nil, err
	}
	b.apt = []string{"-qq", "-oDir::Etc::SourceList=" + apt + "/lab.sources", "-oDir::Etc::SourceParts=/dev/null", "-oDir::Etc::Preferences=/dev/null",
		"-oDir::Etc::PreferencesParts=/dev/null", "-oDir::State::Lists=" + apt + "/lists", "-oDir::Cache=" + apt + "/cache", "-oAPT::Sandbox::User=root"}
	if _, err = b.run("apt-get", append(slices.Clone(b.apt), "update")...); err != nil {
		return "", nil, err
	}
	kernels = map[string]string{}
	for name, meta := range map[string]string{"generic": "linux-image-amd64", "rt": "linux-image-rt-amd64"} {
		text, derr := b.run("apt-cache", append(slices.Clone(b.apt), "depends", meta)...)
		if derr != nil {
			return "", nil, derr
		}
		_, rest, _ := strings.Cut(text, "Depends: linux-image-")
		kernels[name] = strings.TrimSpace(strings.SplitN(rest, "\n", 2)[0])
		if kernels[name] == "" {
			return "", nil, fmt.Errorf("apt-cache depends %s: names no kernel", meta)
		}
	}
	all := slices.Concat(guestPackages(), qemuPackages(), []string{"linux-image-" + kernels["generic"], "linux-image-" + kernels["rt"]})
	text, err := b.run("apt-cache", append(slices.Clone(b.apt), append([]string{"policy"}, all...)...)...)
	if err != nil {
		return "", nil, err
	}
	sum := sha256.New()
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, " ") || strings.Contains(line, "Candidate:") {
			fmt.Fprint(sum, line)
		}
	}
	fmt.Fprintf(sum, "%s %s %v", initRAM, initRoot, moduleFolders())
	b.say("versions known: kernels %s and %s", kernels["generic"], kernels["rt"])
	return fmt.Sprintf("%s-%x", suite, sum.Sum(nil)[:6]), kernels, nil
}

// bootstrap unpacks packages with all they depend on.
func (b *builder) bootstrap(into, variant string, packages []string) error {
	_, err := b.run("mmdebstrap", "--quiet", "--variant="+variant, "--include="+strings.Join(packages, ","), "--aptopt=Apt::Install-Recommends \"false\"",
		"--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
		suite, into, filepath.Join(b.dir, "apt/lab.sources"))
	return err
}

func (b *builder) qemu() error {
	defer b.say("QEMU unpacked")
	return b.bootstrap(filepath.Join(b.dir, "qemu"), "extract", qemuPackages())
}

// kernels downloads and unpacks both, and takes the uncompressed kernel out of its wrapper: QEMU boots
// that directly (PVH), and the guest saves seconds.
func (b *builder) kernels(releases map[string]string) error {
	for name, release := range releases {
		apt := filepath.Join(b.dir, "apt")
		cmd := exec.CommandContext(b.ctx, "apt-get", append(slices.Clone(b.apt), "download", "linux-image-"+release)...)
		cmd.Dir = apt
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get download linux-image-%s: %w: %s", release, err, bytes.TrimSpace(out))
		}
		debs, err := filepath.Glob(filepath.Join(apt, "linux-image-"+release+"_*.deb"))
		if err != nil || len(debs) != 1 {
			return fmt.Errorf("linux-image-%s: expected one package, found %d", release, len(debs))
		}
		into := filepath.Join(apt, name)
		if _, err = b.run("dpkg", "-x", debs[0], into); err != nil {
			return err
		}
		packed, err := os.ReadFile(filepath.Join(into, "boot/vmlinuz-"+release))
		if err != nil {
			return err
		}
		elf, err := unwrap(packed)
		if err != nil {
			return fmt.Errorf("vmlinuz-%s: %w", release, err)
		}
		if err := os.WriteFile(filepath.Join(b.dir, "vmlinux-"+name), elf, 0o644); err != nil { //nolint:gosec // G306: everyone may run machines
			return err
		}
	}
	b.say("kernels unpacked")
	return nil
}

// unwrap finds the zstd stream in a bzImage that holds an ELF file.
func unwrap(image []byte) ([]byte, error) {
	magic := []byte{0x28, 0xb5, 0x2f, 0xfd}
	for at := bytes.Index(image, magic); at >= 0; {
		r, err := zstd.NewReader(bytes.NewReader(image[at:]), zstd.WithDecoderMaxMemory(1<<30))
		if err == nil {
			data, _ := io.ReadAll(io.LimitReader(r, 256<<20)) // what follows the stream is no part of it
			r.Close()
			if bytes.HasPrefix(data, []byte("\x7fELF")) {
				return data, nil
			}
		}
		next := bytes.Index(image[at+1:], magic)
		if next < 0 {
			break
		}
		at += 1 + next
	}
	return nil, errors.New("found no kernel compressed with zstd in it")
}

// root makes the root image, which all machines share, and for each kernel the first file system.
func (b *builder) root(releases map[string]string) error {
	root := filepath.Join(b.dir, "apt/root")
	if err := b.bootstrap(root, "apt", guestPackages()); err != nil {
		return err
	}
	b.say("root unpacked")
	if err := os.WriteFile(filepath.Join(root, "sbin/lab-init"), initRoot, 0o755); err != nil {
		return err
	}
	for name, release := range releases {
		if err := b.modules(filepath.Join(b.dir, "apt", name), root, release); err != nil {
			return err
		}
		if err := b.initrd(root, release, filepath.Join(b.dir, "initrd-"+name)); err != nil {
			return err
		}
	}
	image := filepath.Join(b.dir, "root.ext4")
	for file, size := range map[string]int64{image: 1200 << 20, filepath.Join(b.dir, "nvme.img"): 64 << 20} {
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			return err
		}
		if err := os.Truncate(file, size); err != nil {
			return err
		}
	}
	_, err := b.run("mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-m", "0", "-d", root, image)
	b.say("image made")
	return err
}

// modules copies a kernel's modules, without those that no machine here has, and uncompressed: the
// emulated processor would be slow at it.
func (b *builder) modules(kernel, root, release string) error {
	from, to := filepath.Join(kernel, "usr/lib/modules", release), filepath.Join(root, "usr/lib/modules", release)
	keep := func(name string) bool {
		rest, ok := strings.CutPrefix(name, "kernel/")
		if !ok {
			return strings.HasPrefix(name, "modules.")
		}
		dir := filepath.Dir(rest)
		return dir == "drivers/net" || dir == "fs" || slices.ContainsFunc(moduleFolders(), func(f string) bool { return strings.HasPrefix(rest, f+"/") })
	}
	err := fs.WalkDir(os.DirFS(from), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !keep(name) {
			return err
		}
		data, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return err
		}
		file := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		return os.WriteFile(file, data, 0o644) //nolint:gosec // G306: as in the package
	})
	if err != nil {
		return err
	}
	if _, err = b.run("sh", "-c", `find "$1" -name '*.ko.xz' -print0 | xargs -0 -r -n 64 -P 2 xz -d`, "sh", to); err != nil {
		return err
	}
	_, err = b.run("chroot", root, "depmod", release)
	return err
}

// initrd packs busybox, the modules that it takes to mount the root image, and the first program.
func (b *builder) initrd(root, release, file string) error {
	var c cpio
	c.dir("bin")
	c.dir("m")
	busybox, err := os.ReadFile(filepath.Join(root, "bin/busybox"))
	if err != nil {
		return err
	}
	c.file("bin/busybox", busybox, 0o755)
	c.file("init", initRAM, 0o755)
	var order []string
	for _, module := range []string{"virtio_pci", "virtio_blk", "crc32c_generic", "ext4", "overlay"} {
		text, err := b.run("chroot", root, "modprobe", "-S", release, "--show-depends", module)
		if err != nil {
			return err
		}
		for line := range strings.Lines(text) {
			f := strings.Fields(line)
			if len(f) < 2 || f[0] != "insmod" {
				continue // built in
			}
			name := "m/" + filepath.Base(f[1])
			if slices.Contains(order, "/"+name) {
				continue
			}
			data, err := os.ReadFile(filepath.Join(root, f[1]))
			if err != nil {
				return err
			}
			c.file(name, data, 0o644)
			order = append(order, "/"+name)
		}
	}
	c.file("modules.order", []byte(strings.Join(order, "\n")+"\n"), 0o644)
	return os.WriteFile(file, c.end(), 0o644)
}

// cpio is an archive as the kernel unpacks it (Documentation/driver-api/early-userspace/buffer-format.rst).
type cpio struct {
	out   bytes.Buffer
	inode int
}

func (c *cpio) dir(name string) { c.entry(name, nil, 0o040755) }

func (c *cpio) file(name string, data []byte, mode int) { c.entry(name, data, 0o100000|mode) }

func (c *cpio) entry(name string, data []byte, mode int) {
	c.inode++
	fmt.Fprintf(&c.out, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X", c.inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
	c.out.WriteString(name + "\x00")
	c.pad()
	c.out.Write(data)
	c.pad()
}

func (c *cpio) pad() {
	for c.out.Len()%4 != 0 {
		c.out.WriteByte(0)
	}
}

func (c *cpio) end() []byte {
	c.entry("TRAILER!!!", nil, 0)
	return c.out.Bytes()
}
