package guest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// firstProgram is the argument that the kernel gives to its first program.
const firstProgram = "isolane-first"

// command is what the first program is to do: run one command, or let programs serve.
type command struct {
	Argv     []string  `json:"argv,omitempty"`
	Programs []Program `json:"programs,omitempty"`
	Modules  []string  `json:"modules,omitempty"`
	Network  network   `json:"network,omitzero"`
}

// report is what the first program sends on the second serial port, as one line, when the command has ended.
// If programs serve, it sends one when they are ready, and one when one of them has ended.
type report struct {
	Ready  bool   `json:"ready,omitempty"`
	Stdout []byte `json:"stdout"`
	Stderr []byte `json:"stderr"`
	Code   int    `json:"code"`
}

// reportPort is the serial port for reports. The first one has the kernel's messages.
const reportPort = "/dev/ttyS1"

// boot is the first program of the virtual machine. It ends the machine, and returns only if that fails: then
// the kernel ends it.
func boot() error {
	for at, kind := range map[string]string{"/dev": "devtmpfs", "/proc": "proc", "/sys": "sysfs"} {
		if err := unix.Mount(kind, at, kind, 0, ""); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
	}
	// as udev makes them
	for name, to := range map[string]string{"fd": "", "stdin": "/0", "stdout": "/1", "stderr": "/2"} {
		if err := os.Symlink("/proc/self/fd"+to, "/dev/"+name); err != nil {
			return err
		}
	}
	port, err := os.OpenFile(reportPort, os.O_WRONLY|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	tell := func(r report) error { return send(port, int(port.Fd()), r) }
	if err = tell(runCommand(tell)); err != nil {
		return err
	}
	unix.Sync()
	return unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART) // QEMU ends instead of restarting the machine
}

// environment is that of the machine's programs.
func environment() []string { return []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/"} }

// runCommand does what commandFile says.
func runCommand(tell func(report) error) (r report) {
	var c command
	data, err := os.ReadFile(commandFile)
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	switch {
	case err != nil:
	case len(c.Programs) > 0:
		err = c.serve(func() error { return tell(report{Ready: true}) })
	default:
		cmd := exec.Command(c.Argv[0], c.Argv[1:]...)
		cmd.Env = environment()
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		r.Code, err = exitCode(cmd.Run())
		r.Stdout, r.Stderr = stdout.Bytes(), stderr.Bytes()
	}
	if err != nil {
		r.Code, r.Stderr = 1, fmt.Appendf(r.Stderr, "%v\n", err)
	}
	return r
}

// send writes the report, and waits until it is sent.
func send(port *os.File, fd int, r report) error {
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return err
	}
	t.Oflag &^= unix.OPOST // unprocessed, see cfmakeraw(3)
	if err = unix.IoctlSetTermios(fd, unix.TCSETS, t); err != nil {
		return err
	}
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if _, err = port.Write(append(line, '\n')); err != nil {
		return err
	}
	return unix.IoctlSetInt(fd, unix.TCSBRK, 1) // tcdrain(3)
}
