// Package systemd has the kinds of step that systemd carries out: the CPUs and memory nodes of its units, and
// what its service irqbalance leaves alone.
package systemd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change/machine"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/journal"
)

// KindUnit sets which CPUs or memory nodes a unit of systemd may use: a list, or "" if that is not set
// (AllowedCPUs and AllowedMemoryNodes of systemd.resource-control(5)). It holds until the next boot.
// Unsetting it leaves an empty drop-in below /run.
const KindUnit = "unit"

// UnitTarget names a property of a unit for a step of KindUnit. group is the unit's cgroup, relative to the
// root: system.slice/nginx.service.
func UnitTarget(group, property string) string { return group + ":" + property }

// Ops returns the operation of each kind. root is as in change.Ops; files accesses the kernel's files.
func Ops(root string, files journal.Op) map[string]journal.Op {
	return map[string]journal.Op{KindIrqbalance: balancer{root}, KindUnit: unit{files, root == "/"}}
}

type unit struct {
	files journal.Op
	live  bool // else a directory stands in for the kernel's files, and there is no systemd
}

// unitOf returns the unit, the property, and the kernel's file for it.
func unitOf(s journal.Step) (name, property, file string) {
	at := max(0, strings.LastIndex(s.Target, ":"))
	group, property := s.Target[:at], s.Target[min(at+1, len(s.Target)):]
	attribute := map[string]string{"AllowedCPUs": "cpuset.cpus", "AllowedMemoryNodes": "cpuset.mems"}[property]
	return path.Base(group), property, path.Join("/sys/fs/cgroup", group, attribute) // where systemd mounts it
}

// checkUnit returns an error unless a cgroup can be that of a unit: slices, the last of which holds a
// service, scope or slice (systemd.unit(5)).
func checkUnit(group string) error {
	parts := strings.Split(group, "/")
	for i, name := range parts {
		kind := path.Ext(name)
		known := kind == ".slice" || i == len(parts)-1 && (kind == ".scope" || kind == ".service")
		const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:-_.\\@"
		strange := strings.Trim(name, letters) != ""
		if !known || strange || name == kind || strings.HasPrefix(name, "-") || len(name) > 255 {
			return fmt.Errorf("%q: expected the cgroup of a slice, service or scope", group)
		}
	}
	return nil
}

func (unit) Check(s journal.Step) error {
	name, property, file := unitOf(s)
	if err := checkUnit(strings.TrimSuffix(s.Target, ":"+property)); err != nil {
		return err
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

// Read asks systemd only if the kernel's file differs from what the step wants, because isolane watch reads
// every second. It fails with fs.ErrNotExist if the unit no longer exists.
func (u unit) Read(ctx context.Context, s journal.Step) (string, error) {
	name, property, file := unitOf(s)
	told, err := u.files.Read(ctx, journal.Step{Target: file})
	if !u.live || err == nil && told != "" && told == s.After {
		return told, err
	}
	text, err := systemctl(ctx, "show", "--property=LoadState", "--property="+property, "--", name)
	if err != nil {
		return "", err
	}
	value := ""
	for line := range strings.Lines(text) {
		key, v, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch {
		case key == property:
			value = strings.ReplaceAll(v, " ", ",")
		// systemd makes a slice when it is needed.
		case key == "LoadState" && v == "not-found" && path.Ext(name) != ".slice":
			return "", fmt.Errorf("unit %s: %w", name, fs.ErrNotExist)
		}
	}
	return value, nil
}

func (u unit) Write(ctx context.Context, s journal.Step, value string) error {
	name, property, file := unitOf(s)
	if !u.live {
		return u.files.Write(ctx, journal.Step{Target: file}, value)
	}
	if value == "" {
		ended, err := u.ended(ctx, name)
		if err != nil {
			return err
		}
		if ended {
			return u.forget(ctx, name, property)
		}
	}
	_, err := systemctl(ctx, "set-property", "--runtime", "--", name, property+"="+value)
	if err == nil && value == "" {
		err = u.widen(ctx, file)
	}
	return err
}

// ended reports whether a service is not running.
func (u unit) ended(ctx context.Context, name string) (bool, error) {
	if path.Ext(name) != ".service" {
		return false, nil
	}
	state, err := systemctl(ctx, "show", "--property=ActiveState", "--value", "--", name)
	return state == "inactive" || state == "failed", err
}

// forget removes what set-property has written for a service that is not running. set-property itself would
// make its cgroup, which would then stay (bus_service_commit_properties in systemd's dbus-service.c; seen
// with 257). If systemd has the service loaded, forget has it reread.
func (u unit) forget(ctx context.Context, name, property string) error {
	dir := path.Join("/run/systemd/system.control", name+".d")
	if err := os.Remove(path.Join(dir, "50-"+property+".conf")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_ = os.Remove(dir) // unless something else is in it
	stale, err := systemctl(ctx, "show", "--property=NeedDaemonReload", "--value", "--", name)
	if err == nil && stale == "yes" {
		_, err = systemctl(ctx, "daemon-reload")
	}
	return err
}

// widen gives the cgroup of a unit all CPUs or nodes. Unsetting the property leaves systemd's last value in
// the kernel's file. The file stays, with that value, while other cgroups below have the controller, as
// Docker's and libvirt's do (seen with systemd 257).
func (u unit) widen(ctx context.Context, file string) error {
	err := u.files.Write(ctx, journal.Step{Target: file}, "")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) { // no cgroup has it
		return nil
	}
	return err
}

// systemctl runs systemd's own program: what it sets survives a daemon-reload.
func systemctl(ctx context.Context, args ...string) (string, error) {
	cmd := machine.Command(ctx, "systemctl", args...)
	cmd.Env = []string{"LC_ALL=C"}
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if errors.Is(err, exec.ErrNotFound) { // that is no unit that has gone
		return "", errors.New("systemctl: expected it here or on the machine: a unit of systemd is to be set")
	}
	if err != nil {
		return "", fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err,
			strings.TrimSpace(said.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// Shell returns a systemctl(1) command.
func (unit) Shell(s journal.Step) string {
	name, property, _ := unitOf(s)
	return fmt.Sprintf("systemctl set-property --runtime %s %s=%s", name, property, s.After)
}
