// Package guest runs a command in a container or a virtual machine that is made for it and removed
// afterwards.
//
// Both stay in the cgroup of their caller, with all processes and threads, so they run where a plain process
// of the caller would. Standard output, standard error and the exit code are the command's. The container's
// root has the host's own programs and libraries, read-only. The virtual machine boots a kernel of the host,
// with the command, its libraries and this program in its memory. Neither has a network, except for programs
// that serve others, which use the caller's.
package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// The values of Guest.Runtime.
const (
	Container = "container"
	VM        = "vm"
)

// Kind is a value of Guest.Runtime, and what it means.
type Kind struct {
	Name, Text       string
	Program, Package string        // that it needs of the host, and the Debian package with it
	overhead         time.Duration // see Overhead
	run              func(Guest, context.Context, []string) (code int, err error)
}

// Kinds returns all kinds.
func Kinds() []Kind {
	return []Kind{
		{Container, "a container with the host's programs (crun)", crun, crun, 10 * time.Second, Guest.contain},
		{VM, "a virtual machine (QEMU)", QEMU, qemuPackage, 2 * time.Minute, Guest.emulate},
	}
}

// kind returns the kind of a guest; the zero Kind if there is none of that name.
func (g Guest) kind() (none Kind) {
	for _, k := range Kinds() {
		if k.Name == g.Runtime {
			return k
		}
	}
	return none
}

// Guest is what a command runs in. The zero value means the host.
type Guest struct {
	Runtime string `json:"runtime,omitempty"`
	Kernel  string `json:"kernel,omitempty"` // of the virtual machine, a file; "": see findKernel
	Memory  int    `json:"memory,omitempty"` // of the virtual machine, in MiB; 0: 512
	// CPUs of the virtual machine. 0: as many as this process may use.
	CPUs int `json:"cpus,omitempty"`
	// PageBytes is the size of the huge pages for the virtual machine's memory; 0: ordinary pages.
	PageBytes uint64 `json:"pageBytes,omitempty"`
	// Bind gives each virtual CPU a CPU of its own among those that this process may use, in their order. The
	// emulator's other threads get the rest, if any.
	Bind bool   `json:"bind,omitempty"`
	Dir  string `json:"dir,omitempty"` // for its files, which the caller removes
	// Serve is for a container, and Machine for a virtual machine, whose programs others reach. If nil, the
	// guest has its own empty network.
	Serve   *Serve   `json:"serve,omitempty"`
	Machine *Machine `json:"machine,omitempty"`
}

// Serve gives a container its caller's network, and what else programs that serve there need.
type Serve struct {
	Capabilities []string `json:"capabilities,omitempty"` // in addition to those that containers usually have
	Folder       string   `json:"folder,omitempty"`       // of the host, to which it may write
}

// entry is the first argument of this program when it is to run a guest.
const entry = "isolane-guest"

// Command returns the command line that runs argv in the guest; argv is nil if that is a Machine. self is the
// path of a program that calls Entry.
func Command(self string, g Guest, argv []string) []string {
	settings, err := json.Marshal(g)
	if err != nil {
		panic(err) // only strings and numbers
	}
	return append([]string{self, entry, string(settings)}, argv...)
}

// Entry does what Command, or the virtual machine's kernel, started this program for. It returns false if
// they did not. code is the exit code for the program.
func Entry(ctx context.Context, args []string) (did bool, code int, err error) {
	switch {
	case os.Getpid() == 1 && len(args) == 2 && args[1] == firstProgram:
		return true, 0, boot() // it ends the machine
	case len(args) < 2 || args[1] != entry:
		return false, 0, nil
	case len(args) < 3:
		return true, 1, fmt.Errorf("%s: expected what to run in", entry)
	}
	var g Guest
	d := json.NewDecoder(bytes.NewReader([]byte(args[2])))
	d.DisallowUnknownFields()
	if err = d.Decode(&g); err != nil {
		return true, 1, fmt.Errorf("%s: %w", entry, err)
	}
	code, err = g.run(ctx, args[3:])
	return true, code, err
}

// Overhead returns how much longer than on the host a command may take to start and end. A kernel may boot
// under software emulation on a busy machine.
func (g Guest) Overhead() time.Duration { return g.kind().overhead }

// OwnClock reports whether the command's monotonic clock is not the host's.
func (g Guest) OwnClock() bool { return g.Runtime == VM }

// Facts returns what the guest found out about itself, such as the accelerator of a virtual machine. dir is
// the guest's. There may be none.
func Facts(dir string) (map[string]string, error) {
	data, err := os.ReadFile(filepath.Join(dir, factsFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // none is no error
	}
	var facts map[string]string
	if err == nil {
		err = json.Unmarshal(data, &facts)
	}
	return facts, err
}

const factsFile = "facts.json"

func (g Guest) run(ctx context.Context, argv []string) (code int, err error) {
	if g.Machine == nil {
		if len(argv) == 0 {
			return 1, errors.New("expected a command")
		}
		if argv, err = found(argv); err != nil {
			return 1, err
		}
	}
	k := g.kind()
	if k.run == nil {
		return 1, fmt.Errorf("runtime %q: expected %s or %s", g.Runtime, Container, VM)
	}
	return k.run(g, ctx, argv)
}

// child returns a command that ends with this process.
func child(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// exitCode translates the end of a command for its caller. The command has printed its own error.
func exitCode(err error) (int, error) {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() >= 0 {
		return exit.ExitCode(), nil
	}
	if err != nil {
		return 1, err
	}
	return 0, nil
}
