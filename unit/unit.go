// Package unit makes systemd start services in their lanes.
package unit

import (
	"cmp"
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

// LanesDir is the directory of the lanes that isolane.service puts in force at boot.
const LanesDir = "/etc/isolane/lanes.d"

// Written is the drop-in of a service.
type Written struct{ File, Service string }

// InputError says that there is no such lane or service.
type InputError struct{ error }

func (e *InputError) Unwrap() error { return e.error }

// Write writes the drop-in that puts a service into a lane of LanesDir from its next start on, and has
// systemd read it.
func Write(ctx context.Context, name, service string, paths []netpath.Path) (w Written, err error) {
	l, err := laneOfFile(name)
	if err != nil {
		return w, &InputError{err}
	}
	s, err := Find(ctx, service)
	if err != nil {
		return w, err
	}
	w.File, w.Service = filepath.Join("/etc/systemd/system", s.Name+".d", "isolane.conf"), s.Name
	text := fmt.Sprintf("# Written by isolane unit: %s starts in lane %s.\n[Unit]\nAfter=isolane.service\n\n%s",
		s.Name, name, s.InLane(l, "-", "/usr/bin/isolane attach --lane "+name+" --cgroup", paths))
	return w, AddDropIn(ctx, w.File, text)
}

// AddDropIn writes a drop-in, and has systemd read it.
func AddDropIn(ctx context.Context, file, text string) error {
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if err = cmp.Or(err, os.WriteFile(file, []byte(text), 0o644)); err != nil {
		return err
	}
	_, err = systemctl(ctx, "daemon-reload")
	return err
}

// RemoveDropIn removes a drop-in if there is one, and has systemd forget it.
func RemoveDropIn(ctx context.Context, file string) error {
	if err := os.RemoveAll(file); err != nil {
		return err
	}
	_ = os.Remove(filepath.Dir(file)) // fails if others have drop-ins there
	_, err := systemctl(ctx, "daemon-reload")
	return err
}

// InLane returns the [Service] section of a drop-in. Before the service's program starts, it runs a command,
// with the service's cgroup as the last argument, that brings the lane to that cgroup. otherwise is "-" if
// the service is to start without its lane when the command fails.
func (s Service) InLane(l lane.Lane, otherwise, command string, paths []netpath.Path) string {
	name := l.Metadata.Name
	escape := strings.NewReplacer(`\`, `\\`, "%", "%%", "$", "$$")
	enter, more := "", ""
	if netpath.Namespaced(paths, l.Spec.Network) {
		enter = "/usr/bin/nsenter --net=/proc/1/ns/net " // where the host's devices are
		more = "NetworkNamespacePath=" + filepath.Join(netdev.Dir, netpath.Lane{Name: name}.Netns()) + "\n"
	}
	if has := l.Spec.Scheduling; has.Policy != "" {
		more += fmt.Sprintf("CPUSchedulingPolicy=%s\nCPUSchedulingPriority=%d\n", has.Policy, has.Priority)
	}
	return fmt.Sprintf("[Service]\nExecStartPre=%s+%s%s %s\n%s", otherwise, enter, command,
		escape.Replace(s.Group), more)
}

// laneOfFile returns a lane of LanesDir.
func laneOfFile(name string) (lane.Lane, error) {
	files, _ := lane.ReadEach([]string{LanesDir}, nil) // isolane.service reports the other files
	for _, l := range slices.Concat(files...) {
		if l.Metadata.Name == name {
			return l, nil
		}
	}
	return lane.Lane{}, fmt.Errorf("lane %s: expected a lane of a file in %s", name, LanesDir)
}

// Service is a service that systemd knows.
type Service struct {
	Name            string // "web.service"
	Group           string // its cgroup, "system.slice/web.service"
	State, SubState string // active and running, activating and auto-restart, inactive, failed: systemctl(1)
}

// Find returns a service by its name. The error is an *InputError if systemd does not know it.
func Find(ctx context.Context, name string) (s Service, err error) {
	text, err := systemctl(ctx, "show", "--property=Id,LoadState,ActiveState,SubState,Slice", "--", name)
	if err != nil {
		return s, err
	}
	properties := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		properties[key] = value
	}
	s.Name, s.State, s.SubState = properties["Id"], properties["ActiveState"], properties["SubState"]
	slice := strings.TrimSuffix(properties["Slice"], ".slice")
	if properties["LoadState"] != "loaded" || filepath.Ext(s.Name) != ".service" || slice == "" {
		return s, &InputError{fmt.Errorf("%s: expected a service that systemd knows (systemctl list-unit-files)",
			name)}
	}
	for at, c := range slice + "-" { // a-b.slice is in a.slice, -.slice is the root: systemd.slice(5)
		if c == '-' && at > 0 && slice != "-" {
			s.Group += slice[:at] + ".slice/"
		}
	}
	s.Group += s.Name
	return s, nil
}

// Runs reports whether the service runs, is about to, or is about to end.
func (s Service) Runs() bool { return s.State != "inactive" && s.State != "failed" }

// Start has systemd start or restart a service, and does not wait for it.
func (s Service) Start(ctx context.Context) error {
	_, err := systemctl(ctx, "restart", "--no-block", "--", s.Name)
	return err
}

// Enable has systemd start a service now and at each boot.
func (s Service) Enable(ctx context.Context) error {
	_, err := systemctl(ctx, "enable", "--quiet", "--now", "--", s.Name)
	return err
}

// Stop ends a service. It waits for that as long as the unit allows.
func (s Service) Stop(ctx context.Context) error {
	_, err := systemctl(ctx, "stop", "--", s.Name)
	return err
}

func systemctl(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "systemctl", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("systemctl %s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}
