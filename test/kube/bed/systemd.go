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

// The units of a node whose cgroups systemd makes, as their cgroups: its daemons, and its pods.
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

// cgroup is that of a node, which has kubepods: with systemd the root.
func (b *Bed) cgroup(node string) string {
	if b.options.Systemd {
		return ""
	}
	return "/" + filepath.Join(link(b.number), node)
}

// prepareSystemd looks that this machine is no node yet, and writes down that it becomes one.
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

// inScope is a program that becomes a unit of systemd with all that it starts, as containerd and the kubelet
// are. Delegate= has the root pass on all controllers, which the kubelet expects.
func inScope(program string, args ...string) *exec.Cmd {
	scope := []string{"--scope", "--quiet", "--collect", "--property=Delegate=yes",
		"--unit=" + path.Base(daemons), "--", program}
	return exec.Command("systemd-run", append(scope, args...)...)
}

// endUnits kills all of a node at once, and has systemd forget its units.
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
		if _, there := os.Stat(dir); there == nil { // one that ended by itself is not there to be stopped
			return fmt.Errorf("systemctl stop %s: %w: %s", path.Base(unit), err, out)
		}
	}
	return nil
}

// scopeOf is the cgroup of a container below the root, as systemd.slice(5) says: a-b.slice lies in a.slice.
func scopeOf(class, uid, id string) string {
	pods := strings.TrimSuffix("kubepods-"+class, "-")
	pod := pods + "-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice"
	dir := podSlice
	if class != "" {
		dir = filepath.Join(dir, pods+".slice")
	}
	return filepath.Join(dir, pod, "cri-containerd-"+id+".scope")
}
