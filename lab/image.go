package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/u-root/u-root/pkg/cpio"
)

// suite is the Debian release of everything in the lab except the older kernels. keyring has the keys that
// sign all of it.
const (
	suite   = "trixie"
	keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
)

func guestPackages() []string {
	return []string{"busybox-static", "iproute2", "iputils-ping", "iperf3", "ethtool", "pciutils", "util-linux",
		"mount", "hostname", "kmod", "procps", "numactl", "rt-tests", "rtla", "stress-ng", "nftables", "hwloc-nox",
		"systemd", "dbus", "runc", "crun", "docker.io", "docker-cli", "podman", "lxc", "libvirt-daemon",
		"libvirt-daemon-driver-qemu", "libvirt-clients", "qemu-system-x86", "systemd-container", "nginx",
		"memcached", "python3-minimal", "openvswitch-switch", "openvswitch-switch-dpdk", "irqbalance", "tuned",
		"udev", "network-manager", "dnsmasq-base", "wireguard-tools", "tcpdump", "varnish", "wrk"}
}

// qemuPackages returns QEMU and the C library that it needs.
func qemuPackages() []string { return []string{"qemu-system-x86", "ipxe-qemu", "libc6"} }

// suites returns the suites from which the lab has packages. Each older one gives the kernel that has its
// name.
func suites() []string { return []string{suite, "bookworm", "bullseye"} }

func kernelPackages() map[string][]string {
	return map[string][]string{
		suite:      {"linux-image-amd64", "linux-image-rt-amd64"},
		"bookworm": {"linux-image-amd64"}, // Linux 6.1: Debian's last scheduler without a fair server (6.12)
		"bullseye": {"linux-image-amd64"}, // Linux 5.10: without isolated partitions (6.0)
	}
}

// KernelNames returns the kernels that a description can name: two of the newest suite, and the older suites.
func KernelNames() []string { return append([]string{"generic", "rt"}, suites()[1:]...) }

// moduleFolders returns the folders of the kernel modules that the guest gets.
func moduleFolders() []string {
	return []string{"net", "lib", "crypto", "kernel", "mm", "arch", "block", "virt",
		"fs/9p", "fs/fscache", "fs/ext4", "fs/jbd2", "fs/overlayfs", "fs/netfs", "fs/nls", "fs/fuse",
		"drivers/net/ethernet/intel", "drivers/net/phy", "drivers/net/mdio", "drivers/net/ipvlan",
		"drivers/net/vxlan", "drivers/net/wireguard", "drivers/vfio", "drivers/iommu", "drivers/virtio",
		"drivers/block", "drivers/nvme",
		"drivers/char", "drivers/vhost", "drivers/ptp", "drivers/pps",
		"drivers/dca", "drivers/i2c", "drivers/pci", "drivers/acpi", "drivers/cpufreq"}
}

// bootstrap unpacks packages with all their dependencies.
func (b *builder) bootstrap(into, variant string, packages []string) error {
	_, err := b.run("mmdebstrap", "--quiet", "--variant="+variant, "--include="+strings.Join(packages, ","),
		"--aptopt=Apt::Install-Recommends \"false\"", "--dpkgopt=path-exclude=/usr/share/man/*",
		"--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
		suite, into, filepath.Join(b.aptDir(suite), "lab.sources"))
	return err
}

func (b *builder) qemu() error {
	if err := b.bootstrap(filepath.Join(b.dir, "qemu"), "extract", qemuPackages()); err != nil {
		return err
	}
	b.say("QEMU unpacked")
	return Lab{b.dir}.checkQEMU(b.ctx)
}

// kernels downloads and unpacks all kernels, and unwraps the uncompressed images: QEMU boots those directly
// (PVH), which saves the guest seconds.
func (b *builder) kernels(releases map[string]release) error {
	for name, r := range releases {
		if _, err := b.run("apt-get", append(b.apt(r.suite), "download", "linux-image-"+r.name)...); err != nil {
			return err
		}
		debs, err := filepath.Glob(filepath.Join(b.dir, "linux-image-"+r.name+"_*.deb"))
		if err != nil || len(debs) != 1 {
			return fmt.Errorf("linux-image-%s: expected one package, found %d", r.name, len(debs))
		}
		into := b.kernelDir(name)
		if _, err = b.run("dpkg", "-x", debs[0], into); err != nil {
			return err
		}
		if err = os.Remove(debs[0]); err != nil {
			return err
		}
		packed, err := os.ReadFile(filepath.Join(into, "boot/vmlinuz-"+r.name))
		if err != nil {
			return err
		}
		elf, err := unwrap(b.ctx, packed)
		if err != nil {
			return fmt.Errorf("vmlinuz-%s: %w", r.name, err)
		}
		if err := os.WriteFile(filepath.Join(b.dir, "vmlinux-"+name), elf, 0o644); err != nil {
			return err
		}
	}
	b.say("kernels unpacked")
	return nil
}

func (b *builder) kernelDir(name string) string { return filepath.Join(b.dir, "apt/kernel-"+name) }

// unwrap finds the compressed ELF file in a bzImage.
func unwrap(ctx context.Context, image []byte) ([]byte, error) {
	for _, stream := range []struct {
		magic  string
		unpack func(context.Context, []byte) []byte
	}{{"\x28\xb5\x2f\xfd", unzstd}, {"\xfd7zXZ\x00", unxz}} {
		for rest := image; ; rest = rest[1:] {
			at := bytes.Index(rest, []byte(stream.magic))
			if at < 0 {
				break
			}
			rest = rest[at:]
			if elf := stream.unpack(ctx, rest); bytes.HasPrefix(elf, []byte("\x7fELF")) {
				return elf, nil
			}
		}
	}
	return nil, errors.New("found no kernel compressed with zstd or xz in it")
}

// unzstd unpacks the stream at the beginning of data. It ignores what follows the stream.
func unzstd(_ context.Context, data []byte) []byte {
	r, err := zstd.NewReader(bytes.NewReader(data), zstd.WithDecoderMaxMemory(1<<30))
	if err != nil {
		return nil
	}
	defer r.Close()
	unpacked, _ := io.ReadAll(io.LimitReader(r, 256<<20))
	return unpacked
}

// unxz does the same with the program xz: kernels use the filter for x86 code, which the Go package does not
// support.
func unxz(ctx context.Context, data []byte) []byte {
	cmd := exec.CommandContext(ctx, "xz", "-dc", "--single-stream")
	cmd.Stdin = bytes.NewReader(data)
	unpacked, _ := cmd.Output()
	return unpacked
}

// root makes the root image, which all machines share, and the first file system of each kernel.
func (b *builder) root(releases map[string]release) error {
	root := filepath.Join(b.dir, "apt/root")
	if err := b.bootstrap(root, "apt", guestPackages()); err != nil {
		return err
	}
	b.say("root unpacked")
	if err := os.WriteFile(filepath.Join(root, "sbin/lab-init"), initRoot, 0o755); err != nil {
		return err
	}
	for name, r := range releases {
		if err := b.modules(b.kernelDir(name), root, r.name); err != nil {
			return err
		}
		if err := b.initrd(root, r.name, filepath.Join(b.dir, "initrd-"+name)); err != nil {
			return err
		}
	}
	image := filepath.Join(b.dir, "root.ext4")
	for file, size := range map[string]int64{image: 1800 << 20, filepath.Join(b.dir, "nvme.img"): 64 << 20} {
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

// modules copies a kernel's modules, without those that no machine here needs, and uncompressed, because the
// emulated processor would be slow at uncompressing them.
func (b *builder) modules(kernel, root, release string) error {
	from := filepath.Join(kernel, "usr/lib/modules", release)
	to := filepath.Join(root, "usr/lib/modules", release)
	if _, err := os.Stat(from); err != nil {
		from = filepath.Join(kernel, "lib/modules", release) // from before the merged /usr
	}
	keep := func(name string) bool {
		rest, ok := strings.CutPrefix(name, "kernel/")
		if !ok {
			return strings.HasPrefix(name, "modules.")
		}
		dir := filepath.Dir(rest)
		return dir == "drivers/net" || dir == "fs" ||
			slices.ContainsFunc(moduleFolders(), func(f string) bool { return strings.HasPrefix(rest, f+"/") })
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
		return os.WriteFile(file, data, 0o644)
	})
	if err != nil {
		return err
	}
	const unpack = `find "$1" -name '*.ko.xz' -print0 | xargs -0 -r -n 64 -P 2 xz -d`
	if _, err = b.run("sh", "-c", unpack, "sh", to); err != nil {
		return err
	}
	_, err = b.run("chroot", root, "depmod", release)
	return err
}

// initrd packs busybox, the modules that mount the root image, and the first program.
func (b *builder) initrd(root, release, file string) error {
	busybox, err := os.ReadFile(filepath.Join(root, "bin/busybox"))
	if err != nil {
		return err
	}
	records := []cpio.Record{cpio.Directory("bin", 0o755), cpio.Directory("m", 0o755),
		cpio.StaticFile("bin/busybox", string(busybox), 0o755), cpio.StaticFile("init", string(initRAM), 0o755)}
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
			records = append(records, cpio.StaticFile(name, string(data), 0o644))
			order = append(order, "/"+name)
		}
	}
	list := strings.Join(order, "\n") + "\n"
	records = append(records, cpio.StaticFile("modules.order", list, 0o644), cpio.TrailerRecord)
	var archive bytes.Buffer
	if err := cpio.WriteRecords(cpio.Newc.Writer(&archive), records); err != nil {
		return err
	}
	return os.WriteFile(file, archive.Bytes(), 0o644)
}
