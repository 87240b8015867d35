package guest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/task"
)

// QEMU is the program that runs virtual machines, and qemuPackage its Debian package.
const (
	QEMU        = "qemu-system-x86_64"
	qemuPackage = "qemu-system-x86"
)

// usualMemory is the default memory of a virtual machine, in MiB.
const usualMemory = 512

// The files of a virtual machine in its directory.
const (
	initrdFile  = "initrd"
	consoleFile = "console" // the kernel's messages
	reportFile  = "report"
)

// emulate runs argv in a virtual machine, or lets its programs serve there until ctx ends.
func (g Guest) emulate(ctx context.Context, argv []string) (int, error) {
	kernel, err := g.FileOfKernel(host.Live())
	if err != nil {
		return 1, err
	}
	if g.CPUs == 0 {
		may, aerr := task.Affinity(0)
		if aerr != nil {
			return 1, aerr
		}
		g.CPUs = may.Len()
	}
	c, err := g.unpacked(ctx, kernel, argv)
	if err != nil {
		return 1, err
	}
	var facts map[string]string
	noKVM := g.tryKVM(ctx)
	if facts, err = g.note(kernel, noKVM); err != nil {
		return 1, err
	}
	// The death signal depends on the thread that starts the child (PR_SET_PDEATHSIG(2const)).
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var said bytes.Buffer
	cmd := child(ctx, QEMU, append(g.args(kernel, noKVM == nil), c.Network.args(noKVM == nil)...)...)
	cmd.Stdout, cmd.Stderr = &said, &said
	why := func() error { return nil }
	if g.Machine != nil {
		cmd.Stdout, why = follow()
	}
	if err = cmd.Start(); err != nil {
		return 1, err
	}
	if g.Bind {
		err = g.bind(ctx, cmd.Process.Pid)
	}
	if err != nil {
		_ = cmd.Process.Kill()
	}
	werr := cmd.Wait()
	if err = cmp.Or(ctx.Err(), err); err != nil {
		return 1, err
	}
	if werr != nil {
		return 1, fmt.Errorf("%s (%s): %w: %s", QEMU, facts[accelerator], werr, lastLine(said.Bytes()))
	}
	if g.Machine != nil {
		return 1, g.last(why())
	}
	return g.deliver()
}

// unpacked writes the file that the machine's kernel unpacks.
func (g Guest) unpacked(ctx context.Context, kernel string, argv []string) (c command, err error) {
	c, programs := command{Argv: argv}, slices.Clone(argv[:min(len(argv), 1)])
	var other map[string]string
	if g.Machine != nil {
		if c, programs, err = g.Machine.command(); err != nil {
			return c, err
		}
		if other, err = modules(ctx, kernel, c.Modules); err != nil {
			return c, err
		}
		for _, file := range usersFiles() {
			other[file] = file
		}
	}
	return c, initramfs(ctx, filepath.Join(g.Dir, initrdFile), c, programs, other)
}

// last adds the last message of the machine's kernel to an error, if the machine itself gave no reason.
func (g Guest) last(err error) error {
	if !errors.Is(err, errSilent) {
		return err
	}
	console, _ := os.ReadFile(filepath.Join(g.Dir, consoleFile))
	return fmt.Errorf("%w: its kernel's last message: %s", err, lastLine(console))
}

// deliver passes on what the command printed in the machine, and returns its exit code.
func (g Guest) deliver() (int, error) {
	data, err := os.ReadFile(filepath.Join(g.Dir, reportFile))
	if err != nil {
		return 1, err
	}
	var r report
	if err = json.Unmarshal(data, &r); err != nil {
		return 1, g.last(errSilent)
	}
	_, err = os.Stdout.Write(r.Stdout)
	_, eerr := os.Stderr.Write(r.Stderr)
	return r.Code, errors.Join(err, eerr)
}

// accelerator is the name of the fact that says how the virtual CPUs are run.
const accelerator = "accelerator"

// note writes the facts.
func (g Guest) note(kernel string, noKVM error) (map[string]string, error) {
	facts := map[string]string{accelerator: "kvm", "virtualCPUs": strconv.Itoa(g.CPUs),
		"guestKernel": strings.TrimPrefix(filepath.Base(kernel), "vmlinuz-")}
	if g.PageBytes > 0 {
		facts["hugePages"] = fmt.Sprintf("%d KiB", g.PageBytes>>10)
	}
	if noKVM != nil {
		facts[accelerator] = "tcg: software emulation, figures only comparable within this runtime"
		facts["noKVM"] = noKVM.Error()
	}
	data, err := json.Marshal(facts)
	if err != nil {
		return nil, err
	}
	return facts, os.WriteFile(filepath.Join(g.Dir, factsFile), data, 0o600)
}

// lastLine returns the last line that is not empty.
func lastLine(text []byte) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	last := strings.TrimSpace(lines[len(lines)-1])
	return last[:min(len(last), 300)]
}

// tryKVM runs three instructions in a virtual machine with hardware support. /dev/kvm may exist and not work,
// as on cloud machines, or work without hardware, as with PVM, where Debian's kernels do not start. The error
// says why there is no KVM.
func (g Guest) tryKVM(ctx context.Context) error {
	if _, err := os.Stat("/dev/kvm"); err != nil {
		return err
	}
	hardware := regexp.MustCompile(`(?m)^flags\s*:.*\s(vmx|svm)\b`)
	if cpu, err := os.ReadFile("/proc/cpuinfo"); err != nil || !hardware.Match(cpu) {
		return cmp.Or(err, errors.New("/proc/cpuinfo: no flag vmx or svm: /dev/kvm has no hardware virtualization"))
	}
	// The processor starts 16 bytes before the end: mov al, 16; out 0xf4, al; hlt. The device at that port ends
	// QEMU with twice the value, plus 1.
	const size, first, wanted = 64 << 10, 16, 2*16 + 1
	image := make([]byte, size)
	copy(image[size-first:], "\xb0\x10\xe6\xf4\xf4")
	file := filepath.Join(g.Dir, "try")
	if err := os.WriteFile(file, image, 0o600); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Second, errors.New("KVM does not answer within 5 s"))
	defer cancel()
	cmd := exec.CommandContext(ctx, QEMU, append(machine(true), "-m", "64", "-bios", file, "-device",
		"isa-debug-exit,iobase=0xf4,iosize=1")...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == wanted {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("KVM: %w: %s", err, lastLine(out))
}

// machine returns the QEMU options for every machine here: nothing but what is asked for.
func machine(kvm bool) []string {
	args := []string{"-machine", "q35", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"}
	if kvm {
		return append(args, "-accel", "kvm", "-cpu", "host")
	}
	return append(args, "-accel", "tcg,thread=multi", "-cpu", "max")
}

// memory returns the QEMU options for memory: of huge pages, or shared with a switch, if that is asked for.
func (g Guest) memory() []string {
	args := []string{"-m", strconv.Itoa(g.MemoryMiB())}
	if g.PageBytes == 0 && (g.Machine == nil || g.Machine.VhostUser == nil) {
		return args
	}
	backend := fmt.Sprintf("memory-backend-memfd,id=memory,size=%dM,share=on", g.MemoryMiB())
	if g.PageBytes > 0 {
		backend += fmt.Sprint(",prealloc=on,hugetlb=on,hugetlbsize=", g.PageBytes)
	}
	return append(args, "-object", backend, "-machine", "memory-backend=memory")
}

// MemoryMiB returns how much memory a virtual machine has.
func (g Guest) MemoryMiB() int { return cmp.Or(g.Memory, usualMemory) }

// args returns QEMU's arguments. They name its threads, so that isolane attach and the witness recognize
// them.
func (g Guest) args(kernel string, kvm bool) []string {
	path := func(name string) string {
		return strings.ReplaceAll(filepath.Join(g.Dir, name), ",", ",,") // QEMU's options want commas doubled
	}
	line := "console=ttyS0 panic=-1"
	if !kvm {
		line += " no_timer_check tsc=reliable" // the emulated clock is late, and the kernel would distrust it
	}
	report := "file,id=report,path=" + path(reportFile)
	if g.Machine != nil {
		report = "stdio,id=report,signal=off"
	}
	return append(append(machine(kvm), g.memory()...), "-name", "isolane,debug-threads=on", "-smp",
		strconv.Itoa(g.CPUs),
		"-chardev", "file,id=console,path="+path(consoleFile), "-serial", "chardev:console",
		"-chardev", report, "-serial", "chardev:report",
		"-kernel", kernel, "-initrd", filepath.Join(g.Dir, initrdFile), "-append", line+" -- "+firstProgram)
}
