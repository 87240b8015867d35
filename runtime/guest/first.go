package guest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// firstProgram is the argument that the kernel gives its first program.
const firstProgram = "isolane-first"

// report is what the first program sends when the command has ended: one line on the second serial port.
type report struct {
	Stdout []byte `json:"stdout"`
	Stderr []byte `json:"stderr"`
	Code   int    `json:"code"`
}

// reportPort is the serial port of the report. The kernel's messages are on the first one.
const reportPort = "/dev/ttyS1"

// boot is the first program of the virtual machine. It ends the machine, and returns only where that fails:
// the kernel ends it then.
func boot() error {
	for _, m := range [][2]string{{"devtmpfs", "/dev"}, {"proc", "/proc"}, {"sysfs", "/sys"}} {
		if err := unix.Mount(m[0], m[1], m[0], 0, ""); err != nil {
			return fmt.Errorf("%s: %w", m[1], err)
		}
	}
	// as udev has them
	for name, to := range map[string]string{"fd": "", "stdin": "/0", "stdout": "/1", "stderr": "/2"} {
		if err := os.Symlink("/proc/self/fd"+to, "/dev/"+name); err != nil {
			return err
		}
	}
	port, err := os.OpenFile(reportPort, os.O_WRONLY|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	fd := int(port.Fd())
	if err = send(port, fd, runCommand()); err != nil {
		return err
	}
	unix.Sync()
	return unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART) // QEMU ends where the machine would start again
}

// runCommand runs what commandFile says.
func runCommand() (r report) {
	var argv []string
	data, err := os.ReadFile(commandFile)
	if err == nil {
		err = json.Unmarshal(data, &argv)
	}
	if err == nil {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/"}
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

// send writes the report, and waits until it is out.
func send(port *os.File, fd int, r report) error {
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return err
	}
	t.Oflag &^= unix.OPOST // as it is, cfmakeraw(3)
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
