package lab

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// mark is on the kernel's command line of every machine, and so in everything that records it: figures
// measured under software emulation mean nothing.
const mark = "isolane.lab=emulated"

// oldest is the first QEMU with everything that the machines need: igb since 8.0, wires that reconnect since
// 9.2.
func oldest() [2]int { return [2]int{9, 2} }

// traced returns kernel options that keep two users on each tracepoint to which Isolane's witness attaches.
// They record nothing. Without them the kernel would patch the code of its scheduler when the witness comes
// and goes, and an emulated CPU that runs that code at the moment may keep the temporary breakpoint: "Oops:
// int3". Kernels before 6.10 do not know "^traceoff".
func traced() string {
	const events = "^traceoff,sched:sched_switch,sched:sched_waking,irq,irq_vectors,timer:tick_stop"
	return "trace_buf_size=4k trace_instance=lab1" + events + " trace_instance=lab2" + events
}

// qemu returns QEMU's command line through its own loader, because nothing of it is installed.
func (l Lab) qemu(ctx context.Context, args []string) *exec.Cmd {
	root := filepath.Join(l.dir, "qemu")
	lib := root + "/usr/lib/x86_64-linux-gnu"
	cmd := exec.CommandContext(ctx, root+"/usr/lib64/ld-linux-x86-64.so.2", append([]string{
		"--library-path", lib + ":" + lib + "/pulseaudio", "--argv0", "qemu-system-x86_64",
		root + "/usr/bin/qemu-system-x86_64", "-L", root + "/usr/share/qemu", "-L", root + "/usr/share/seabios",
		"-L", root + "/usr/lib/ipxe/qemu"}, args...)...)
	cmd.Env = append(os.Environ(), "QEMU_MODULE_DIR="+lib+"/qemu") // modules of another version crash it
	return cmd
}

// checkQEMU returns an error if QEMU does not run, or is too old.
func (l Lab) checkQEMU(ctx context.Context) error {
	out, err := l.qemu(ctx, []string{"--version"}).CombinedOutput()
	said, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if err != nil {
		return fmt.Errorf("qemu-system-x86_64 --version: %w: %s", err, said)
	}
	var is [2]int
	want := oldest()
	if _, err = fmt.Sscanf(said, "QEMU emulator version %d.%d", &is[0], &is[1]); err != nil {
		return fmt.Errorf("qemu-system-x86_64 --version: expected a version, found %q", said)
	}
	if is[0] < want[0] || is[0] == want[0] && is[1] < want[1] {
		return fmt.Errorf("QEMU %d.%d is too old, the lab needs %d.%d (igb cards, wires between machines): "+
			"use a mirror with a newer suite than %s", is[0], is[1], want[0], want[1], suite)
	}
	return nil
}

// files are what a running machine needs from the host.
type files struct {
	kernel, initrd, root string
	nvme                 string // image that all NVMes show and never write
	control, console     string
	runner, share        string // folders
	power                string // ACPI table, used if the machine has Power
	wire                 Wire
}

// command collects QEMU's options.
type command []string

func (c *command) add(option, format string, values ...any) {
	*c = append(*c, option, fmt.Sprintf(format, values...))
}

// args returns QEMU's options. docs/lab.md explains each of them.
func (m Machine) args(f files) []string {
	kernel, initrd := f.kernel, f.initrd
	for _, path := range []*string{&f.root, &f.nvme, &f.control, &f.console, &f.runner, &f.share, &f.power,
		&f.wire.Socket, &f.wire.Tap} {
		*path = strings.ReplaceAll(*path, ",", ",,") // as QEMU's options require
	}
	c := command{"-machine", "q35,kernel-irqchip=split", "-accel", "tcg,thread=multi,tb-size=256",
		"-cpu", "max,vendor=GenuineIntel,monitor=off"}
	m.processors(&c)
	c = append(c, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-device", "intel-iommu,intremap=on,caching-mode=on")
	c.add("-chardev", "file,id=console,path=%s", f.console)
	c.add("-serial", "chardev:console")
	if m.Power {
		c.add("-acpitable", "sig=SSDT,rev=2,data=%s", f.power)
	}
	m.devices(&c, f)
	f.wire.args(&c)
	c.add("-drive", "if=none,id=root,file=%s,format=raw,readonly=on,cache=unsafe", f.root)
	c.add("-device", "virtio-blk-pci,drive=root,bus=pcie.0")
	c.add("-device", "virtio-serial-pci,bus=pcie.0")
	c.add("-chardev", "socket,id=ctl,path=%s,server=on,wait=off", f.control)
	c.add("-device", "virtserialport,chardev=ctl,name=lab.0")
	c.add("-fsdev", "local,id=lab,path=%s,security_model=none,multidevs=remap,readonly=on", f.runner)
	c.add("-fsdev", "local,id=host,path=%s,security_model=none,multidevs=remap", f.share)
	for _, share := range []string{"lab", "host"} {
		c.add("-device", "virtio-9p-pci,fsdev=%s,mount_tag=%[1]s,bus=pcie.0", share)
	}
	c.add("-object", "rng-random,id=rng,filename=/dev/urandom")
	c.add("-device", "virtio-rng-pci,rng=rng,bus=pcie.0")
	cmdline := m.Cmdline
	if m.Init == "systemd" {
		cmdline = "isolane.lab.init=systemd " + cmdline // for init-root.sh
	}
	return append(c, "-kernel", kernel, "-initrd", initrd, "-append", strings.TrimSpace(
		"console=ttyS0 panic=-1 loglevel=7 nokaslr no_timer_check intel_iommu=on tsc=reliable "+
			traced()+" "+mark+" "+cmdline))
}

func (m Machine) processors(c *command) {
	total, per := 0, m.CPUs()/len(m.Nodes)
	for i, n := range m.Nodes {
		total += n.MemoryMiB
		c.add("-object", "memory-backend-ram,id=m%d,size=%dM", i, n.MemoryMiB)
		c.add("-numa", "node,nodeid=%d,cpus=%d-%d,memdev=m%[1]d", i, i*per, i*per+per-1)
	}
	for i, n := range m.Nodes {
		for j, d := range n.Distances {
			if i != j {
				c.add("-numa", "dist,src=%d,dst=%d,val=%d", i, j, d)
			}
		}
	}
	c.add("-smp", "%d,sockets=%d,cores=%d,threads=%d", m.CPUs(), m.Sockets, m.Cores, m.Threads)
	c.add("-m", "%dM", total)
}

// devices puts the devices of each node behind a bridge of that node: devices on pcie.0 itself have no node.
func (m Machine) devices(c *command, f files) {
	for i, n := range m.Nodes {
		c.add("-device", "pxb-pcie,id=pxb%d,bus=pcie.0,bus_nr=%d,numa_node=%[1]d", i, 24*(i+1))
		slot := 0
		port := func() string {
			id := fmt.Sprintf("rp%d%d", i, slot)
			c.add("-device", "pcie-root-port,id=%s,bus=pxb%d,chassis=%d,slot=%[3]d", id, i, 10*(i+1)+slot)
			slot++
			return id
		}
		for nic := range n.NICs {
			c.add("-netdev", "hubport,id=n%d%d,hubid=1", i, nic)
			c.add("-device", "%[5]s,id=nic%[1]d%[2]d,bus=%[3]s,netdev=n%[1]d%[2]d,"+
				"mac=52:54:00:%02[4]x:%02[1]x:%02[2]x,romfile=", i, nic, port(), f.wire.End,
				cmp.Or(n.Cards, cardNames()[0]))
		}
		for nvme := range n.NVMes {
			c.add("-drive", "if=none,id=nv%d%d,file=%s,format=raw,snapshot=on", i, nvme, f.nvme)
			c.add("-device", "nvme,serial=lab%d%d,drive=nv%[1]d%[2]d,bus=%s", i, nvme, port())
		}
	}
}

// Wire joins the network cards of two machines, or of one and its host, in one Ethernet segment. The cards of
// one machine are always joined; the zero Wire joins no others.
type Wire struct {
	Socket string // made by end 0
	End    int    // 0 or 1; also in the MAC addresses of the cards, 52:54:00:END:NODE:CARD

	Tap string // a tap device of the host, instead of another machine
}

func (w Wire) args(c *command) {
	if w.Tap != "" {
		c.add("-netdev", "tap,id=wire,ifname=%s,script=no,downscript=no,vnet_hdr=off", w.Tap)
		c.add("-netdev", "hubport,id=n-wire,hubid=1,netdev=wire")
		return
	}
	if w.Socket == "" {
		return
	}
	server := "server=on"
	if w.End != 0 {
		server = "server=off,reconnect-ms=500"
	}
	c.add("-netdev", "stream,id=wire,%s,addr.type=unix,addr.path=%s", server, w.Socket)
	c.add("-netdev", "hubport,id=n-wire,hubid=1,netdev=wire")
}
