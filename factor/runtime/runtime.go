// Package runtime is the factor of what the program of a probe inside the application runs in: a plain
// process, a container, a virtual machine or, in a session with pods, a pod.
package runtime

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	goruntime "runtime"
	"slices"

	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/runtime/guest"
)

// Driver is the factor "runtime".
type Driver struct{}

// Name returns "runtime".
func (Driver) Name() string { return "runtime" }

// settings are those of the virtual machine. The levels stand beside them.
type settings struct {
	Kernel string `json:"kernel,omitempty"` // a file; "": the newest of /boot
	Memory int    `json:"memoryMiB,omitempty"`
	CPUs   int    `json:"virtualCPUs,omitempty"` // 0: as many as the lane has CPUs
	// Hugepages is the size of the lane's hugepages that hold the memory, as in spec.memory.hugepages; "":
	// ordinary pages.
	Hugepages string `json:"hugepages,omitempty"`
}

const (
	host = "host"
	pod  = "pod"
)

// Read reads the levels host, container, vm and pod, and the settings of the virtual machine.
func (Driver) Read(text []byte) (factor.Factor, error) {
	var all struct {
		settings
		Levels json.RawMessage `json:"levels,omitempty"`
	}
	if err := probe.Decode(text, &all); err != nil {
		return nil, err
	}
	levels, err := json.Marshal(map[string]json.RawMessage{"levels": all.Levels})
	if err != nil {
		return nil, err
	}
	f := runtimes{settings: all.settings}
	words := map[string]string{host: "a process of the host", pod: "a pod of this node"}
	for _, k := range guest.Kinds() {
		words[k.Name] = k.Text
	}
	f.Base, err = factor.Read(levels, factor.Named(words))
	if err != nil {
		return nil, err
	}
	return f, f.validate()
}

// Limits of the memory in MiB, and of the virtual CPUs of QEMU's machine q35.
const (
	minMemory = 128
	maxMemory = 1 << 20
	maxCPUs   = 255
)

func (f runtimes) validate() error {
	switch {
	case f.settings != settings{} && !f.has(guest.VM):
		return errors.New("kernel, memoryMiB, virtualCPUs, hugepages: expected none without the level vm")
	case f.Kernel != "" && (!path.IsAbs(f.Kernel) || path.Clean(f.Kernel) != f.Kernel):
		return fmt.Errorf("kernel: %q: expected the absolute path of a kernel image", f.Kernel)
	case f.Memory != 0 && (f.Memory < minMemory || f.Memory > maxMemory):
		return fmt.Errorf("memoryMiB: %d: expected %d to %d", f.Memory, minMemory, maxMemory)
	case f.CPUs < 0 || f.CPUs > maxCPUs:
		return fmt.Errorf("virtualCPUs: %d: expected 1 to %d, or 0 for the lane's", f.CPUs, maxCPUs)
	}
	return nil
}

type runtimes struct {
	factor.Base
	settings
}

func (f runtimes) has(level string) bool {
	return slices.ContainsFunc(f.All, func(l factor.Level) bool { return l.Name == level })
}

// Programs are what a level needs of the host.
func (f runtimes) Programs(level string) []string {
	for _, k := range guest.Kinds() {
		if k.Name == level {
			return []string{k.Program}
		}
	}
	return nil
}

// Package returns the Debian package that holds one of the programs.
func (runtimes) Package(program string) string {
	for _, k := range guest.Kinds() {
		if k.Program == program {
			return k.Package
		}
	}
	return program
}

// Missing says what the host lacks for a level beside programs, and the command that installs it; "": nothing
// is missing.
func (f runtimes) Missing(level string, root fs.FS) (what, remedy string) {
	if level != guest.VM {
		return "", ""
	}
	if arch := goruntime.GOARCH; arch != "amd64" {
		return "runtime vm: expected an x86-64 machine, found " + arch, ""
	}
	if _, err := (guest.Guest{Kernel: f.Kernel}).FileOfKernel(root); err != nil {
		return "runtime vm: " + err.Error(), "apt-get install " + guest.KernelPackage
	}
	return "", ""
}

func (f runtimes) Set(c *factor.Conditions, level string) {
	c.Guest, c.Process, c.Pod = guest.Guest{}, level == host, level == pod
	if level != host && level != pod {
		c.Guest.Runtime = level
	}
	if level == guest.VM {
		c.Guest.Kernel, c.Guest.Memory, c.Guest.CPUs = f.Kernel, f.Memory, f.CPUs
		if f.Hugepages != "" {
			c.Lane.Memory.Hugepages = map[string]quantity.Bytes{
				f.Hugepages: quantity.Bytes(c.Guest.MemoryMiB()) << 20}
		}
	}
}
