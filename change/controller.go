package change

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/journal"
)

// KindController is a controller that a cgroup v2 enables for its children: its name, or "".
const KindController = "controller"

// ControllerTarget names a controller for a step of KindController, and the cgroup v2 that enables it.
func ControllerTarget(group, name string) string { return group + ":" + name }

type controller struct{ kernel }

// controllerOf returns the file that a step writes, and the controller's name.
func controllerOf(s journal.Step) (file, name string) {
	group, name, _ := strings.Cut(s.Target, ":")
	return path.Join(group, "cgroup.subtree_control"), name
}

func (c controller) Check(s journal.Step) error {
	name, controller := controllerOf(s)
	if controller != "cpuset" && controller != "memory" {
		return fmt.Errorf("%q: expected the controller cpuset or memory", controller)
	}
	return checkPath(name)
}

func (c controller) Read(_ context.Context, s journal.Step) (string, error) {
	name, controller := controllerOf(s)
	text, err := c.read(name)
	if slices.Contains(strings.Fields(text), controller) {
		return controller, err
	}
	return "", err
}

func (c controller) Write(_ context.Context, s journal.Step, value string) error {
	name, controller := controllerOf(s)
	switch {
	case !c.isLive(): // in a plain directory: the kernel would add to the list or remove from it
		now, err := c.read(name)
		if err != nil {
			return err
		}
		list := slices.DeleteFunc(strings.Fields(now), func(f string) bool { return f == controller })
		list = slices.Sorted(slices.Values(append(list, strings.Fields(value)...)))
		return c.write(name, strings.Join(list, " "))
	case value == "":
		err := c.write(name, "-"+controller)
		if by := c.enabledBelow(path.Dir(name), controller); errors.Is(err, unix.EBUSY) && by != "" {
			return &journal.NeededError{By: by}
		}
		return err
	}
	return c.write(name, "+"+controller)
}

// enabledBelow returns the first child of a cgroup that enables a controller for its own children, or "". The
// cgroup must keep it then (Documentation/admin-guide/cgroup-v2.rst, "Top-down Constraint").
func (c controller) enabledBelow(group, controller string) string {
	all, _ := filepath.Glob(filepath.Join(c.root, group, "*", "cgroup.subtree_control")) // the pattern is right
	for _, file := range all {
		if text, _ := os.ReadFile(file); slices.Contains(strings.Fields(string(text)), controller) {
			return strings.TrimPrefix(filepath.Dir(file), strings.TrimSuffix(c.root, "/"))
		}
	}
	return ""
}

// Shell returns a command that writes cgroup.subtree_control.
func (controller) Shell(s journal.Step) string {
	name, controller := controllerOf(s)
	if s.After == "" {
		return fmt.Sprintf("echo -%s > %s", controller, name)
	}
	return fmt.Sprintf("echo +%s > %s", controller, name)
}
