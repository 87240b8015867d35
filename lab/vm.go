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
	"strconv"
	"strings"
	"syscall"
	"time"
)

// silence is how long a guest may say nothing while it starts, and restarts how often it is started
// again: emulated machines with several threads hang now and then, or crash.
const (
	silence  = 60 * time.Second
	restarts = 3
)

// VM is a running machine.
type VM struct {
	dir  string // its files: control socket, console, pid
	conn net.Conn
	in   *bufio.Reader
	done chan error // of QEMU; nil where another process waits for it
	cmd  *exec.Cmd
}

// Options are what a machine gets of the host.
type Options struct {
	Runner string    // folder with the program isolane-lab, whose agent runs in the guest
	Share  string    // folder at /host in the guest
	Dir    string    // folder for the machine's files
	Detach bool      // the machine outlives this process
	Log    io.Writer // says when a guest had to be started again
}

// Start boots a machine and waits until it takes commands.
func (l Lab) Start(ctx context.Context, m Machine, o Options) (*VM, error) {
	if err := m.validate(); err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		vm, err := l.boot(ctx, m, o)
		if err == nil {
			return vm, nil
		}
		if try == restarts || ctx.Err() != nil || !errors.Is(err, errSilent) && !errors.Is(err, errCrashed) {
			return nil, err
		}
		fmt.Fprintf(o.Log, "isolane-lab: %v; started again (%d of %d)\n", err, try+1, restarts)
	}
}

var (
	errSilent  = errors.New("the guest is silent")
	errCrashed = errors.New("QEMU crashed") // threads of the emulation race while the guest maps its devices
)

func (l Lab) boot(ctx context.Context, m Machine, o Options) (*VM, error) {
	vm := &VM{dir: o.Dir, done: make(chan error, 1)}
	f := files{kernel: filepath.Join(l.dir, "vmlinux-"+m.Kernel), initrd: filepath.Join(l.dir, "initrd-"+m.Kernel), root: filepath.Join(l.dir, "root.ext4"),
		nvme: filepath.Join(l.dir, "nvme.img"), control: filepath.Join(o.Dir, "control"), console: filepath.Join(o.Dir, "console"),
		runner: o.Runner, share: o.Share}
	_ = os.Remove(f.control)
	program, args := l.qemu(m.args(f))
	vm.cmd = exec.Command(program, args...) //nolint:noctx // ended by Stop, or with this process
	vm.cmd.Env = append(os.Environ(), "QEMU_MODULE_DIR="+filepath.Join(l.dir, "qemu/usr/lib/x86_64-linux-gnu/qemu"))
	vm.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if !o.Detach {
		vm.cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	log, err := os.Create(filepath.Join(o.Dir, "qemu.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // QEMU has its own
	vm.cmd.Stdout, vm.cmd.Stderr = log, log
	started := make(chan error)
	go func() { // the death signal comes when the thread that started QEMU ends, so it is kept
		runtime.LockOSThread()
		serr := vm.cmd.Start()
		started <- serr
		if serr == nil {
			vm.done <- vm.cmd.Wait()
		}
	}()
	if err = <-started; err != nil {
		return nil, err
	}
	pid := strconv.Itoa(vm.cmd.Process.Pid)
	if err = os.WriteFile(filepath.Join(o.Dir, "pid"), []byte(pid+" "+startTime(pid)), 0o600); err == nil {
		err = vm.connect(ctx, f.console)
	}
	if err != nil {
		vm.kill()
		return nil, fmt.Errorf("%w; %s", err, l.lastLines(o.Dir))
	}
	return vm, nil
}

// connect waits for the agent. A console that grows is not silent.
func (vm *VM) connect(ctx context.Context, console string) error {
	size, deadline := int64(0), time.Now().Add(silence)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if info, err := os.Stat(console); err == nil && info.Size() > size {
			size, deadline = info.Size(), time.Now().Add(silence)
		}
		if vm.conn == nil {
			vm.conn, _ = net.Dial("unix", filepath.Join(vm.dir, "control")) // not there yet
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
			return fmt.Errorf("QEMU ended: %w", orEnded(err))
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%w for %v", errSilent, silence)
		}
	}
}

func orEnded(err error) error {
	if err == nil {
		return errors.New("exit code 0")
	}
	return err
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

// Exec runs a command in the guest and returns its exit code. The error is for a machine that does not
// answer any more.
func (vm *VM) Exec(ctx context.Context, argv []string, stdout, stderr io.Writer) (int, error) {
	stop := context.AfterFunc(ctx, func() { _ = vm.conn.SetDeadline(time.Now()) })
	defer stop()
	if err := (&wire{w: vm.conn}).send(message{Argv: argv}); err != nil {
		return 0, err
	}
	for {
		line, err := vm.in.ReadBytes('\n')
		if ctx.Err() != nil {
			return 0, fmt.Errorf("%s: %w; the console is in %s", strings.Join(argv, " "), ctx.Err(), filepath.Join(vm.dir, "console"))
		}
		if err != nil {
			return 0, fmt.Errorf("the guest is gone: %w", err)
		}
		var m message
		if err = json.Unmarshal(line, &m); err != nil {
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

// Attach connects to a machine that another process started. It waits up to a limit while a command of
// somebody else runs there.
func Attach(dir string, limit time.Duration) (*VM, error) {
	vm := &VM{dir: dir}
	if _, ok := running(dir); !ok {
		return nil, fmt.Errorf("%s: no machine runs there", dir)
	}
	var err error
	if vm.conn, err = net.Dial("unix", filepath.Join(dir, "control")); err != nil {
		return nil, err
	}
	if err = vm.ping(limit); err != nil {
		return nil, fmt.Errorf("%s: the guest has not answered for %v: does another command run in it? %w", dir, limit, err)
	}
	return vm, nil
}

// Close leaves the machine running.
func (vm *VM) Close() { _ = vm.conn.Close() }

// Stop ends the machine; nothing in it is kept but what it wrote to the share.
func (vm *VM) Stop() {
	if vm.conn != nil {
		_ = vm.conn.Close()
	}
	vm.kill()
}

func (vm *VM) kill() {
	_ = vm.cmd.Process.Kill()
	<-vm.done //nolint:errcheck // how it ended is no news
	_ = os.Remove(filepath.Join(vm.dir, "pid"))
}

// Down ends a machine that another process started.
func Down(dir string) error {
	pid, ok := running(dir)
	if !ok {
		return fmt.Errorf("%s: no machine runs there", dir)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return err
	}
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		if _, ok := running(dir); !ok {
			return os.Remove(filepath.Join(dir, "pid"))
		}
		runtime.Gosched()
	}
	return fmt.Errorf("process %d does not end", pid)
}

// Running says whether a machine's process is there.
func Running(dir string) bool {
	_, ok := running(dir)
	return ok
}

// running returns the process of a machine, if it is the one that was started: numbers are used again.
func running(dir string) (int, bool) {
	data, err := os.ReadFile(filepath.Join(dir, "pid"))
	pid, start, ok := strings.Cut(string(data), " ")
	n, perr := strconv.Atoi(pid)
	return n, err == nil && ok && perr == nil && start != "" && startTime(pid) == start
}

// startTime is when a process started, in ticks since boot (proc_pid_stat(5), field 22); "" of one that
// is gone or a zombie.
func startTime(pid string) string {
	data, err := os.ReadFile("/proc/" + pid + "/stat") //nolint:gosec // G703: pid is a number, its caller has seen to it
	f := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	if err != nil || len(f) < 20 || f[0] == "Z" {
		return ""
	}
	return f[19]
}

// lastLines are the end of what the guest and QEMU said, in one line.
func (l Lab) lastLines(dir string) string {
	var last []string
	for _, name := range []string{"qemu.log", "console"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		lines := strings.Split(strings.TrimSpace(string(data)), "\n")
		if err == nil && len(data) > 0 {
			last = append(last, name+": "+strings.ReplaceAll(strings.Join(lines[max(0, len(lines)-3):], " | "), "\r", ""))
		}
	}
	return strings.Join(last, "; ")
}
