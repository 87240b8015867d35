package guest

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Machine is a virtual machine that serves. It takes the place of devices in the network of its caller, with
// their MAC and IP addresses.
type Machine struct {
	Programs []Program         `json:"programs"`
	Also     []string          `json:"also,omitempty"`    // programs of the host that these run
	Modules  []string          `json:"modules,omitempty"` // of the machine's kernel, that these need
	Taps     map[string]string `json:"taps"`              // by device: the tap with its frames
	// VhostUser is a device that the caller's network does not have; nil: none.
	VhostUser *VhostUser `json:"vhostUser,omitempty"`
}

// VhostUser is a device of a virtual machine that speaks with a switch directly (QEMU, Vhost-user Protocol).
// The switch reads and writes the machine's memory.
type VhostUser struct {
	Device    string         `json:"device"`
	Socket    string         `json:"socket"` // the file that the machine makes
	MAC       string         `json:"mac"`
	MTU       int            `json:"mtu"`
	Addresses []netip.Prefix `json:"addresses"`
}

// Program serves in a virtual machine until that ends.
type Program struct {
	Argv   []string `json:"argv"`
	Ready  string   `json:"ready,omitempty"`  // what it prints when it can be used
	Folder string   `json:"folder,omitempty"` // to which it writes, in the machine's memory
}

// Ready is what a virtual machine prints when all its programs can be used.
const Ready = "the virtual machine's programs are ready"

// command returns what the machine is to do, and the programs that it needs.
func (m Machine) command() (c command, programs []string, err error) {
	if c.Network, err = networkOf(m.Taps); err == nil && m.VhostUser != nil {
		err = c.Network.add(*m.VhostUser)
	}
	if err != nil {
		return c, nil, err
	}
	for _, p := range m.Programs {
		if len(p.Argv) == 0 {
			return c, nil, errors.New("a program of the virtual machine: expected its command line")
		}
		if p.Argv, err = found(p.Argv); err != nil {
			return c, nil, err
		}
		c.Programs, programs = append(c.Programs, p), append(programs, p.Argv[0])
	}
	for _, name := range m.Also {
		argv, ferr := found([]string{name})
		if ferr != nil {
			return c, nil, ferr
		}
		programs = append(programs, argv[0])
	}
	c.Modules = append([]string{"virtio_pci", "virtio_net"}, m.Modules...)
	if cc := c.Network.CongestionControl; cc != "reno" && cc != "cubic" { // these are built in
		c.Modules = append(c.Modules, "tcp_"+cc)
	}
	return c, programs, nil
}

// found returns a command line with the absolute path of its program.
func found(argv []string) ([]string, error) {
	program, err := exec.LookPath(argv[0])
	if err == nil {
		program, err = filepath.Abs(program)
	}
	return append([]string{program}, argv[1:]...), err
}

// modprobe is the usual path of the program that kernels run (/proc/sys/kernel/modprobe).
const modprobe = "/sbin/modprobe"

// modules returns the files of a kernel's modules, of those that they depend on, and those that modprobe
// reads, by their names in the machine. For a kernel in boot they are in lib/modules next to that folder.
func modules(ctx context.Context, kernel string, names []string) (map[string]string, error) {
	release, root := strings.TrimPrefix(filepath.Base(kernel), "vmlinuz-"), filepath.Dir(filepath.Dir(kernel))
	program, err := filepath.EvalSymlinks(modprobe)
	if err != nil {
		return nil, err
	}
	files := map[string]string{modprobe: program}
	for _, name := range names {
		// "insmod FILE", or "builtin NAME" (modprobe(8))
		out, perr := child(ctx, modprobe, "--show-depends", "--dirname", root, "--set-version", release,
			name).Output()
		if perr != nil {
			return nil, fmt.Errorf("module %s: %w: expected those of the kernel in %s", name, perr,
				filepath.Join(root, "lib/modules", release))
		}
		for _, file := range listed(string(out)) {
			files[within(root, file)] = file
		}
	}
	lists, err := filepath.Glob(filepath.Join(root, "lib/modules", release, "modules.*"))
	for _, file := range lists {
		files[within(root, file)] = file
	}
	return files, err
}

// within returns a file's path below a folder, as if that were the root.
func within(root, file string) string {
	return "/" + strings.Trim(strings.TrimPrefix(filepath.Clean(file), root), "/")
}

// follow reads the machine's reports as QEMU writes them. why then returns what ended the programs.
func follow() (to io.Writer, why func() error) {
	reports, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- until(reports)
		_, _ = io.Copy(io.Discard, reports) // until it is closed
	}()
	return w, func() error {
		_ = w.Close() // a pipe in memory
		return <-ended
	}
}

// errSilent says that a machine ended and did not say why.
var errSilent = errors.New("the virtual machine ended without a report")

// until follows the machine's reports. It tells the caller when the programs can be used, and returns why
// they ended.
func until(reports io.Reader) error {
	for d := json.NewDecoder(reports); ; {
		var r report
		if err := d.Decode(&r); err != nil {
			return errSilent
		}
		if !r.Ready {
			return errors.New(strings.TrimSpace(string(r.Stderr)))
		}
		fmt.Fprintln(os.Stdout, Ready)
	}
}

// serve is the machine's side: it starts the programs one after the other, and returns why the first of them
// ended.
func (c command) serve(ready func() error) error {
	text, err := exec.Command(modprobe, append([]string{"-a"}, c.Modules...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("modules: %w: %s", err, lastLine(text))
	}
	if err = c.Network.setUp(); err != nil {
		return fmt.Errorf("network: %w", err)
	}
	ended := make(chan error, len(c.Programs))
	for _, p := range c.Programs {
		if err = p.begin(ended); err != nil {
			return err
		}
	}
	if err = ready(); err != nil {
		return err
	}
	return <-ended
}

// begin starts a program, and returns when it can be used.
func (p Program) begin(ended chan<- error) error {
	var said bytes.Buffer
	cmd := exec.Command(p.Argv[0], p.Argv[1:]...)
	cmd.Env, cmd.Stderr = environment(), &said
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	ready := p.Ready == ""
	for lines := bufio.NewScanner(out); !ready && lines.Scan(); {
		ready = strings.Contains(lines.Text(), p.Ready)
	}
	end := func(when string) error {
		_, _ = io.Copy(io.Discard, out) // until it ends
		why := cmp.Or(cmd.Wait(), errEnded)
		return fmt.Errorf("%s ended%s: %w: %s", p.Argv[0], when, why, lastLine(said.Bytes()))
	}
	if !ready {
		return end(" before it was ready")
	}
	go func() { ended <- end("") }()
	return nil
}

// errEnded says that a serving program ended without an error.
var errEnded = errors.New("exit status 0")
