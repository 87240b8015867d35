package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
)

// lanesDir has the files whose lanes isolane.service puts in force at boot.
const lanesDir = "/etc/isolane/lanes.d"

func unitCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "unit LANE SERVICE",
		Short: "Have systemd start a service in its lane, by a drop-in",
		Long: "Writes /etc/systemd/system/SERVICE.d/isolane.conf: at each start the lane, which a file in\n" +
			lanesDir + " describes, comes to the service's own cgroup before its program begins,\n" +
			"whatever user and sandbox that has. Where the lane is not in force the service starts without\n" +
			"it, and its log says so. systemd itself gives the program the lane's scheduling policy, and the\n" +
			"network namespace of a lane with a path: such a service does not start without its lane.\n" +
			"Remove the file to undo it.",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := args[0]
			l, err := laneOfFile(name)
			if err != nil {
				return usage(err)
			}
			service, group, err := serviceOf(cmd.Context(), args[1])
			if err != nil {
				return usage(err)
			}
			file := filepath.Join("/etc/systemd/system", service+".d", "isolane.conf")
			if err = os.MkdirAll(filepath.Dir(file), 0o755); err == nil {
				err = os.WriteFile(file, []byte(dropIn(l, service, group)), 0o644)
			}
			if err != nil {
				return err
			}
			if _, err = systemctl(cmd.Context(), "daemon-reload"); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %s is in lane %s from its next start\n", file, service, name)
			return nil
		},
	}
}

// dropIn is what brings a lane to a service, in its cgroup, before its program begins.
func dropIn(l lane.Lane, service, group string) string {
	name := l.Metadata.Name
	escaped := strings.NewReplacer(`\`, `\\`, "%", "%%", "$", "$$").Replace(group)
	attach, more := "", ""
	if netpath.Namespaced(paths(), l.Spec.Network) {
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

// laneOfFile is a lane of lanesDir.
func laneOfFile(name string) (lane.Lane, error) {
	files, _ := lane.ReadEach([]string{lanesDir}, nil) // of the others isolane.service tells
	for _, l := range slices.Concat(files...) {
		if l.Metadata.Name == name {
			return l, nil
		}
	}
	return lane.Lane{}, fmt.Errorf("lane %s: expected a lane of a file in %s", name, lanesDir)
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
