package bed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// The units, by their cgroups, of a node whose cgroups systemd makes: its daemons, and its pods.
const (
	daemons  = "system.slice/kubebed.scope"
	podSlice = "kubepods.slice"
	unified  = "/sys/fs/cgroup"
)

// driver is the kubelet's cgroup driver.
func (b *Bed) driver() string {
	if b.options.Systemd {
		return "systemd"
	}
	return "cgroupfs"
}

// cgroup returns the cgroup of a node, which contains kubepods; with systemd, the root.
func (b *Bed) cgroup(node string) string {
	if b.options.Systemd {
		return ""
	}
	return "/" + filepath.Join(link(b.number), node)
}

// prepareSystemd checks that this machine is not a node yet, and records that it becomes one.
func (b *Bed) prepareSystemd(hierarchies int) error {
	if len(b.options.Nodes) != 1 || hierarchies != 1 {
		return fmt.Errorf("%d nodes, %d cgroup hierarchies: with systemd as cgroup driver expected one of each",
			len(b.options.Nodes), hierarchies)
	}
	for _, unit := range []string{daemons, podSlice} {
		if _, err := os.Stat(filepath.Join(unified, unit)); err == nil {
			return fmt.Errorf("%s is there: this machine is a node already", path.Base(unit))
		}
	}
	b.record.Systemd = true
	return b.record.write(b.Dir)
}

// inScope returns a program that becomes a systemd unit with everything that it starts, as containerd and the
// kubelet are. Delegate= makes the root pass on all controllers, which the kubelet expects.
func inScope(program string, args ...string) *exec.Cmd {
	scope := []string{"--scope", "--quiet", "--collect", "--property=Delegate=yes",
		"--unit=" + path.Base(daemons), "--", program}
	return exec.Command("systemd-run", append(scope, args...)...)
}

// endUnits kills everything of a node at once, and makes systemd forget its units.
func endUnits() error {
	ctx, cancel := context.WithTimeout(context.Background(), Patient(30*time.Second))
	defer cancel()
	for _, unit := range []string{daemons, podSlice} {
		dir := filepath.Join(unified, unit)
		err := os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0o644)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		out, err := exec.CommandContext(ctx, "systemctl", "stop", path.Base(unit)).CombinedOutput()
		if _, there := os.Stat(dir); there == nil { // a unit that has ended by itself cannot be stopped
			return fmt.Errorf("systemctl stop %s: %w: %s", path.Base(unit), err, out)
		}
	}
	return nil
}

// scopeOf returns the cgroup of a container below the root, by systemd.slice(5): a-b.slice is in a.slice.
func scopeOf(class, uid, id string) string {
	pods := strings.TrimSuffix("kubepods-"+class, "-")
	pod := pods + "-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice"
	dir := podSlice
	if class != "" {
		dir = filepath.Join(dir, pods+".slice")
	}
	return filepath.Join(dir, pod, "cri-containerd-"+id+".scope")
}
