package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// restarts is how often a guest is restarted: emulated machines with several threads sometimes hang or crash.
const restarts = 3

// VM is a running machine.
type VM struct {
	dir  string // its files: control socket, console, pid
	conn net.Conn
	in   *bufio.Reader
	done chan error // of QEMU; nil if another process waits for it
	cmd  *exec.Cmd
}

// Options are what a machine gets from the host.
type Options struct {
	Runner  string        // folder with the program isolane-lab, whose agent runs in the guest
	Share   string        // folder at /host in the guest
	Dir     string        // folder for the machine's files
	Wire    Wire          // to another machine
	Detach  bool          // the machine outlives this process
	Silence time.Duration // how long a starting guest may be silent; 0: a minute
	Log     io.Writer     // is told when a guest had to be restarted
}

// Start boots a machine, and waits until it takes commands. If the guest is silent, or its emulation crashes,
// Start restarts it and logs that.
func (l Lab) Start(ctx context.Context, m Machine, o Options) (*VM, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	const longest = 107 // bytes of the path of a Unix socket, unix(7)
	if path := filepath.Join(o.Dir, "control"); max(len(path), len(o.Wire.Socket)) > longest {
		return nil, fmt.Errorf("%s: longer than the %d bytes that a socket's path can have: "+
			"set TMPDIR to a shorter folder", path, longest)
	}
	if o.Silence == 0 {
		o.Silence = time.Minute
	}
	for try := 0; ; try++ {
		vm, err := l.boot(ctx, m, o)
		if err == nil {
			return vm, nil
		}
		if try == restarts || ctx.Err() != nil || !errors.Is(err, errHangs) && !errors.Is(err, errCrashed) {
			return nil, err
		}
		fmt.Fprintf(o.Log, "isolane-lab: %v; started again (%d of %d)\n", err, try+1, restarts)
	}
}

var (
	errHangs   = errors.New("the guest hangs") // threads of the emulation wait for each other, silently or not
	errCrashed = errors.New("QEMU crashed")    // threads of the emulation race while the guest maps its devices
)

func (l Lab) boot(ctx context.Context, m Machine, o Options) (*VM, error) {
	file := func(name string) string { return filepath.Join(l.dir, name) }
	f := files{kernel: file("vmlinux-" + m.Kernel), initrd: file("initrd-" + m.Kernel),
		root: file("root.ext4"), nvme: file("nvme.img"),
		control: filepath.Join(o.Dir, "control"), console: filepath.Join(o.Dir, "console"),
		runner: o.Runner, share: o.Share, wire: o.Wire, power: filepath.Join(o.Dir, "ssdt.aml")}
	if _, err := os.Stat(f.kernel); err != nil && slices.Contains(suites(), m.Kernel) {
		return nil, fmt.Errorf("kernel %s: the mirror had no suite of that name when the lab was built: "+
			"isolane-lab build --update", m.Kernel)
	}
	for _, old := range []string{f.control, f.console} {
		_ = os.Remove(old)
	}
	if err := os.WriteFile(f.power, m.powerTable(), 0o600); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(o.Dir, "qemu.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	vm := &VM{dir: o.Dir, done: make(chan error, 1)}
	vm.cmd = l.qemu(context.WithoutCancel(ctx), m.args(f)) // ended by Stop
	vm.cmd.Stdout, vm.cmd.Stderr = log, log
	vm.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if !o.Detach {
		vm.cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	if err = vm.start(); err != nil {
		return nil, err
	}
	pid := strconv.Itoa(vm.cmd.Process.Pid)
	if err = os.WriteFile(filepath.Join(o.Dir, "pid"), []byte(pid+" "+startTime(pid)), 0o600); err == nil {
		err = vm.connect(ctx, f.console, o.Silence)
	}
	if err != nil {
		vm.Stop()
		return nil, fmt.Errorf("%w; %s", err, lastLines(o.Dir))
	}
	return vm, nil
}

// start starts QEMU on a thread of its own. The death signal is sent when the thread that started QEMU ends,
// so that thread is kept.
func (vm *VM) start() error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := vm.cmd.Start()
		started <- err
		if err == nil {
			vm.done <- vm.cmd.Wait()
		}
	}()
	return <-started
}

// connect waits for the agent. While the console grows, the guest is not silent, but a kernel that only
// reports its stalls nevertheless hangs.
func (vm *VM) connect(ctx context.Context, console string, silence time.Duration) error {
	size, deadline, last := int64(0), time.Now().Add(silence), time.Now().Add(2*silence)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if info, err := os.Stat(console); err == nil && info.Size() > size {
			size, deadline = info.Size(), time.Now().Add(silence)
		}
		if vm.conn == nil {
			vm.conn, _ = net.Dial("unix", filepath.Join(vm.dir, "control")) // fails until it is there
		}
		if vm.conn != nil && vm.ping(time.Second) == nil {
			return nil
		}
		select {
		case err := <-vm.done:
			vm.done <- err
			var exit *exec.ExitError
			if errors.As(err, &exit) && exit.ExitCode() < 0 {
				return fmt.Errorf("%w: %w", errCrashed, err)
			}
			if err == nil {
				return errors.New("the guest ended before it took commands: look at its command line and kernel")
			}
			return fmt.Errorf("QEMU ended: %w", err)
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		switch now := time.Now(); {
		case now.After(deadline):
			return fmt.Errorf("%w: silent for %v", errHangs, silence)
		case now.After(last):
			return fmt.Errorf("%w: no commands taken after %v (look at its command line and kernel)",
				errHangs, 2*silence)
		}
	}
}

// ping finds the start of the stream.
func (vm *VM) ping(within time.Duration) error {
	if err := vm.conn.SetDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	vm.in = bufio.NewReaderSize(vm.conn, 1<<20)
	nonce := strconv.FormatInt(time.Now().UnixNano(), 36)
	if err := (&wire{w: vm.conn}).send(message{Ping: nonce}); err != nil {
		return err
	}
	for {
		line, err := vm.in.ReadBytes('\n')
		if err != nil {
			return err
		}
		var m message
		if json.Unmarshal(line, &m) == nil && m.Pong == nonce {
			return vm.conn.SetDeadline(time.Time{})
		}
	}
}

// Exec runs a command in the guest and returns its exit code; if a signal ended it, 128 plus the number of
// the signal. Processes that it leaves behind stay, without its output. The error means that the machine does
// not answer, or that the command has not ended before ctx: then no other command can follow.
func (vm *VM) Exec(ctx context.Context, argv []string, stdout, stderr io.Writer) (int, error) {
	stop := context.AfterFunc(ctx, func() { _ = vm.conn.SetDeadline(time.Now()) })
	defer stop()
	if err := (&wire{w: vm.conn}).send(message{Argv: argv}); err != nil {
		return 0, err
	}
	for {
		line, err := vm.in.ReadBytes('\n')
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return 0, fmt.Errorf("%s: did not end in time: give it longer, or see what it waits for; %s",
				strings.Join(argv, " "), lastLines(vm.dir))
		}
		if ctx.Err() != nil {
			return 0, fmt.Errorf("%s: %w", strings.Join(argv, " "), ctx.Err())
		}
		if err != nil {
			return 0, fmt.Errorf("%s: the guest is gone: %w; %s", strings.Join(argv, " "), err, lastLines(vm.dir))
		}
		var m message
		if len(line) > 1 {
			err = json.Unmarshal(line, &m)
		}
		if err != nil {
			return 0, fmt.Errorf("the guest does not make sense: %w", err)
		}
		if _, err = stdout.Write(m.Out); err == nil {
			_, err = stderr.Write(m.Err)
		}
		if err != nil {
			return 0, err
		}
		if m.Code != nil {
			return *m.Code, nil
		}
	}
}

// Stop ends a machine that this process has started. Only what it wrote to the share is kept.
func (vm *VM) Stop() {
	vm.Close()
	_ = syscall.Kill(-vm.cmd.Process.Pid, syscall.SIGKILL)
	<-vm.done //nolint:errcheck // how it ended is no news
	_ = os.Remove(filepath.Join(vm.dir, "pid"))
}

// Close leaves the machine running.
func (vm *VM) Close() {
	if vm.conn != nil {
		_ = vm.conn.Close()
	}
}

// traceLines is enough to see in which function a kernel went wrong, and who called it.
const traceLines = 40

// says returns a test whether a line has one of these texts.
func says(texts ...string) func(line string) bool {
	return func(line string) bool {
		return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(line, text) })
	}
}

// wrong reports whether a line is the kernel's report of a fault of its own, or of a CPU that no longer runs.
func wrong(line string) bool {
	return says("Oops: ", "BUG: ", "cut here", "detected stall", "blocked for more than")(line)
}

// lastLines returns the end of the output of QEMU and of the guest, in one line. For a kernel that went
// wrong, it returns how that came about: after an oops, programs may wait for ever for the thread that ended
// with it.
func lastLines(dir string) string {
	var last []string
	for _, name := range []string{"qemu.log", "console"} {
		data, _ := os.ReadFile(filepath.Join(dir, name)) // none: there was no output
		lines := strings.Split(strings.TrimSpace(strings.ReplaceAll(string(data), "\r", "")), "\n")
		lines = slices.DeleteFunc(lines, func(l string) bool { // the hub of the cards is meant to be alone
			return l == "" || strings.Contains(l, "is not connected to host network")
		})
		if i := slices.IndexFunc(lines, says("Kernel panic")); i >= 0 {
			lines = lines[:i+1]
		}
		end := max(0, len(lines)-3)
		if i := slices.IndexFunc(lines[:end], wrong); i >= 0 {
			trace := lines[i:min(i+traceLines, end)]
			lines, end = append(slices.Clip(trace), lines[end:]...), 0
		}
		if len(lines) > 0 {
			last = append(last, name+": "+strings.Join(lines[end:], " | "))
		}
	}
	if len(last) == 0 {
		return "it said nothing"
	}
	return strings.Join(last, "; ")
}
