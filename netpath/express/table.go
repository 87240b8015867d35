package express

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/journal"
)

// kindFilesystem is the kernel's file system that keeps eBPF objects while no program has them open: "" or
// mounted.
const kindFilesystem = "bpffs"

// pins is where systemd, bpftool(8) and tc-bpf(8) mount that file system.
const pins = "/sys/fs/bpf"

// mounted is the value of a mounted file system.
const mounted = "mounted"

type filesystem struct{}

func (filesystem) Check(s journal.Step) error {
	if s.Target != pins {
		return fmt.Errorf("%s: expected %s", s.Target, pins)
	}
	return nil
}

func isMounted() (bool, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(pins, &stat); err != nil {
		return false, fmt.Errorf("%s: %w", pins, err)
	}
	return stat.Type == unix.BPF_FS_MAGIC, nil
}

// Read returns mounted only if nothing is pinned there, because unmounting would remove what others have
// pinned.
func (filesystem) Read(context.Context, journal.Step) (string, error) {
	is, err := isMounted()
	if !is || err != nil {
		return "", err
	}
	entries, err := os.ReadDir(pins)
	for _, e := range entries {
		if !strings.Contains(e.Name(), ".") { // only the kernel's own have dots (kernel/bpf/inode.c)
			return fmt.Sprintf("%s, with %s in it", mounted, e.Name()), nil
		}
	}
	return mounted, err
}

// InForce reports whether it is mounted.
func (filesystem) InForce(context.Context, journal.Step, string) (bool, error) { return isMounted() }

func (filesystem) Write(_ context.Context, _ journal.Step, value string) error {
	if value == "" {
		return unix.Unmount(pins, 0)
	}
	return unix.Mount("bpf", pins, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=700")
}

// Name says which file system it is.
func (filesystem) Name(s journal.Step) string { return "file system of eBPF at " + s.Target }

// Shell returns a command of mount(8).
func (filesystem) Shell(s journal.Step) string {
	if s.After == "" {
		return "umount " + s.Target
	}
	return "mount -t bpf bpf " + s.Target
}

// kindTable is the table that the programs of one uplink share. The target is its name among the pinned eBPF
// objects; a value is "" or netdev.Present.
const kindTable = "express-table"

// layout is the version of the table's keys and values. Programs with another layout use a table of another
// name, so that two versions of Isolane never share one. Layout 1 had no length of frames.
const layout = 2

// tableName returns the name of an uplink's table. "" is for no uplink: then only lanes of this host reach
// each other. The kernel allows no dots, and devices have no colons.
func tableName(uplink string) string {
	name := fmt.Sprintf("isolane-express-%d", layout)
	if uplink != "" {
		name += "-" + strings.ReplaceAll(uplink, ".", ":")
	}
	return name
}

// earlier matches the name of a table of this layout, or of one before, which lanes in force may have.
var earlier = regexp.MustCompile(fmt.Sprintf(`^isolane-express-[1-%d](?:-(.+))?$`, layout))

func checkTable(name string) error {
	switch m := earlier.FindStringSubmatch(name); {
	case m == nil:
		return fmt.Errorf("%q: expected %s, or that with the name of an uplink", name, tableName(""))
	case m[1] == "":
		return nil
	default:
		return netdev.CheckDevice(strings.ReplaceAll(m[1], ":", "."))
	}
}

// openTable opens a table. It returns nil if there is none.
func openTable(name string) (*ebpf.Map, error) {
	if is, err := isMounted(); !is || err != nil {
		return nil, err
	}
	m, err := ebpf.LoadPinnedMap(filepath.Join(pins, name), nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return m, err
}

// isOurs reports whether a table has this layout.
func isOurs(name string) bool {
	return name == tableName("") || strings.HasPrefix(name, tableName("")+"-")
}

func tableStep(name string) journal.Step {
	return journal.Step{Kind: kindTable, Target: name, After: netdev.Present}
}

type tables struct {
	collection func() (*ebpf.CollectionSpec, error) // what the programs are loaded from, read once
}

func (tables) Check(s journal.Step) error { return checkTable(s.Target) }

func (t tables) Read(_ context.Context, s journal.Step) (string, error) {
	m, err := openTable(s.Target)
	if m == nil || err != nil {
		return "", err
	}
	defer m.Close()
	spec, err := t.collection()
	if err != nil {
		return "", err
	}
	if err = spec.Maps["table"].Compatible(m); err != nil && isOurs(s.Target) {
		return "something else: " + err.Error(), nil
	}
	return netdev.Present, nil
}

func (t tables) Write(_ context.Context, s journal.Step, value string) error {
	file := filepath.Join(pins, s.Target)
	if value == "" {
		return os.Remove(file)
	}
	spec, err := t.collection()
	if err != nil {
		return err
	}
	m, err := ebpf.NewMap(spec.Maps["table"])
	if err != nil {
		return err
	}
	return errors.Join(m.Pin(file), m.Close())
}

// Name says which table it is.
func (tables) Name(s journal.Step) string { return "table of lanes " + s.Target }

// Shell returns a command of bpftool-map(8).
func (tables) Shell(s journal.Step) string {
	if s.After == "" {
		return "rm " + filepath.Join(pins, s.Target)
	}
	return "bpftool map create " + filepath.Join(pins, s.Target) +
		" type hash key 6 value 8 entries 1024 flags 1 name table"
}
