package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/cpuset"
)

// UnitTarget names a property of a slice or scope of systemd for a step of kind unit.
func UnitTarget(name, property string) string { return name + ":" + property }

// unit is which CPUs or memory nodes a slice or scope of systemd may use: a list, or "" where that is not
// set (AllowedCPUs and AllowedMemoryNodes of systemd.resource-control(5)). It holds until the next boot. What
// stays of one that is unset again is an empty drop-in below /run.
type unit struct{ kernel }

// unitOf returns the unit, the property, and the file in which the kernel is told of it.
func unitOf(s Step) (name, property, file string) {
	name, property, _ = strings.Cut(s.Target, ":")
	attribute := map[string]string{"AllowedCPUs": "cpuset.cpus", "AllowedMemoryNodes": "cpuset.mems"}[property]
	return name, property, path.Join("/sys/fs/cgroup", name, attribute) // where systemd mounts it
}

func (unit) Check(s Step) error {
	name, property, file := unitOf(s)
	stem, isSlice := strings.CutSuffix(name, ".slice")
	if !isSlice {
		stem, _ = strings.CutSuffix(name, ".scope")
	}
	if stem == name || strings.HasPrefix(name, "-") || checkName(stem) != nil {
		return fmt.Errorf("%q: expected a slice or scope", name)
	}
	if path.Base(file) == name {
		return fmt.Errorf("%q: expected AllowedCPUs or AllowedMemoryNodes", property)
	}
	for _, value := range []string{s.Before, s.After} {
		if _, err := cpuset.Parse(value); err != nil {
			return fmt.Errorf("%s: %w", s.Target, err)
		}
	}
	return nil
}

// Read asks systemd only where the kernel does not show what the step wants: isolane watch looks every
// second.
func (u unit) Read(ctx context.Context, s Step) (string, error) {
	name, property, file := unitOf(s)
	told, err := u.read(file)
	if !u.live() || err == nil && told != "" && told == s.After {
		return told, err
	}
	text, err := systemctl(ctx, "show", "--property="+property, "--value", "--", name)
	return strings.ReplaceAll(text, " ", ","), err
}

func (u unit) Write(ctx context.Context, s Step, value string) error {
	name, property, file := unitOf(s)
	if !u.live() {
		return u.write(file, value)
	}
	_, err := systemctl(ctx, "set-property", "--runtime", "--", name, property+"="+value)
	if err == nil && value == "" {
		err = u.widen(file)
	}
	return err
}

// widen gives a unit all there is. systemd lets go of the file as it is, and where others below have the
// controller too, as Docker and libvirt do, the file stays and so did its CPUs (seen with systemd 257). The
// kernel empties none of a cgroup with processes (kernel/cgroup/cpuset.c, validate_change).
func (u unit) widen(file string) error {
	err := u.write(file, "")
	if errors.Is(err, unix.ENOSPC) {
		all := "/sys/devices/system/cpu/possible"
		if path.Base(file) == "cpuset.mems" {
			all = "/sys/devices/system/node/has_memory"
		}
		var list string
		if list, err = u.read(all); err == nil {
			err = u.write(file, list)
		}
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) { // nobody has it
		return nil
	}
	return err
}

// systemctl speaks to systemd by its own program: what it sets is also set after a daemon-reload.
func systemctl(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "/bin/systemctl", args...) // also where /bin is a link to /usr/bin
	cmd.Env = []string{"LC_ALL=C"}
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(said.String()))
	}
	return strings.TrimSpace(string(out)), nil
}
