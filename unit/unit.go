// Package unit has systemd start a service in its lane.
package unit

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
)

// LanesDir has the files whose lanes isolane.service puts in force at boot.
const LanesDir = "/etc/isolane/lanes.d"

// Written is the drop-in of a service.
type Written struct{ File, Service string }

// InputError says that there is no such lane or service.
type InputError struct{ error }

func (e *InputError) Unwrap() error { return e.error }

// Write writes the drop-in by which a service comes into a lane of LanesDir from its next start on, and has
// systemd read it.
func Write(ctx context.Context, name, service string, paths []netpath.Path) (w Written, err error) {
	l, err := laneOfFile(name)
	if err != nil {
		return w, &InputError{err}
	}
	var group string
	w.Service, group, err = serviceOf(ctx, service)
	if err != nil {
		return w, &InputError{err}
	}
	w.File = filepath.Join("/etc/systemd/system", w.Service+".d", "isolane.conf")
	if err = os.MkdirAll(filepath.Dir(w.File), 0o755); err == nil {
		err = os.WriteFile(w.File, []byte(dropIn(l, w.Service, group, paths)), 0o644)
	}
	if err == nil {
		_, err = systemctl(ctx, "daemon-reload")
	}
	return w, err
}

// dropIn is what brings a lane to a service, in its cgroup, before its program begins.
func dropIn(l lane.Lane, service, group string, paths []netpath.Path) string {
	name := l.Metadata.Name
	escaped := strings.NewReplacer(`\`, `\\`, "%", "%%", "$", "$$").Replace(group)
	attach, more := "", ""
	if netpath.Namespaced(paths, l.Spec.Network) {
		attach = "/usr/bin/nsenter --net=/proc/1/ns/net " // where the host's devices are
		more = "NetworkNamespacePath=" + filepath.Join(netdev.Dir, netpath.Lane{Name: name}.Netns()) + "\n"
	}
	if s := l.Spec.Scheduling; s.Policy != "" {
		more += fmt.Sprintf("CPUSchedulingPolicy=%s\nCPUSchedulingPriority=%d\n", s.Policy, s.Priority)
	}
	return fmt.Sprintf("# Written by isolane unit: %s starts in lane %s.\n[Unit]\nAfter=isolane.service\n\n"+
		"[Service]\nExecStartPre=-+%s/usr/bin/isolane attach --lane %[2]s --cgroup %[4]s\n%[5]s",
		service, name, attach, escaped, more)
}

// laneOfFile is a lane of LanesDir.
func laneOfFile(name string) (lane.Lane, error) {
	files, _ := lane.ReadEach([]string{LanesDir}, nil) // of the others isolane.service tells
	for _, l := range slices.Concat(files...) {
		if l.Metadata.Name == name {
			return l, nil
		}
	}
	return lane.Lane{}, fmt.Errorf("lane %s: expected a lane of a file in %s", name, LanesDir)
}

// serviceOf returns the name of a service that systemd knows, and its cgroup.
func serviceOf(ctx context.Context, name string) (service, group string, err error) {
	text, err := systemctl(ctx, "show", "--property=Id,LoadState,Slice", "--", name)
	if err != nil {
		return "", "", err
	}
	properties := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		properties[key] = value
	}
	service, slice := properties["Id"], strings.TrimSuffix(properties["Slice"], ".slice")
	if properties["LoadState"] != "loaded" || filepath.Ext(service) != ".service" || slice == "" {
		return "", "", fmt.Errorf("%s: expected a service that systemd knows (systemctl list-unit-files)", name)
	}
	for at, c := range slice + "-" { // a-b.slice is in a.slice, -.slice is the root: systemd.slice(5)
		if c == '-' && at > 0 && slice != "-" {
			group += slice[:at] + ".slice/"
		}
	}
	return service, group + service, nil
}

func systemctl(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "systemctl", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("systemctl %s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}
